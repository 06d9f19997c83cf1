// The peak of this machine that MFU is a share of: measured once and kept, so that all steps of all runs have one base.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::rt {

/// The processor as the system names it.
std::string processorName();

/// The file that keeps the peaks: cpu_peaks.json in espalier's folder of XDG_CACHE_HOME, or of ~/.cache. Empty if
/// neither is set.
std::filesystem::path peakFile();

/// FLOP/s that `threads` threads of this machine reach in an f32 matrix product: what `peakFile` keeps of an earlier
/// measurement, else a new one, which takes some 80 ms and is kept. A file that cannot be read or written is no error.
double machinePeakFlops(int threads);

/// Measures again and keeps the larger value, for a later run: a step was faster than the peak, so the machine was busy
/// when the peak was measured.
void measurePeakAgain(int threads);

} // namespace espalier::rt
