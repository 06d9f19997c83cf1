// The peak FLOP/s of this machine, the base of MFU. The peak is measured once and stored, so that all runs use the same
// base.
#pragma once

#include <filesystem>

namespace espalier::rt {

/// Returns the path of the file that stores the peaks: cpu_peaks.json in espalier's folder of XDG_CACHE_HOME or
/// ~/.cache. Returns an empty path if neither is set.
std::filesystem::path peakFile();

/// Returns the FLOP/s that `threads` threads of this machine reach in an f32 matrix product. Reads the value from
/// `peakFile`, or measures for about 80 ms and stores the value. Ignores a file that cannot be read or written.
double machinePeakFlops(int threads);

/// Measures again and stores the larger value for later runs. Called if a step exceeded the peak, because the machine
/// was then busy during the measurement.
void measurePeakAgain(int threads);

} // namespace espalier::rt
