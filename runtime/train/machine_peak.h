// The peak FLOP/s of this machine, the base of MFU. The best of all measurements is stored, so that a load of the
// machine during one of them does not lower the base.
#pragma once

#include "format/plan.pb.h"

#include <filesystem>

namespace espalier::rt {

/// Returns the path of the file that stores the peaks: cpu_peaks.json in espalier's folder of XDG_CACHE_HOME or
/// ~/.cache. Returns an empty path if neither is set.
std::filesystem::path peakFile();

/// Returns the type of the plan's matrix products: bf16 if one multiplies two bf16 matrices, else f32.
pb::DataType productType(const pb::Plan &plan);

/// Returns the FLOP/s that `threads` threads of this machine reach in a matrix product of this type: the larger of a
/// measurement and the value in `peakFile`, which never falls. Measures for about 80 ms, or for 20 ms if the file has a
/// value. Ignores a file that cannot be read or written.
double machinePeakFlops(int threads, pb::DataType type);

/// Corrects the stored peak after a run that has reached more, because the machine was busy during the measurements.
/// Measures again and stores the largest value. Ignores more than twice the new measurement, which is a wrong number of
/// FLOPs.
void correctPeak(int threads, pb::DataType type, double reached);

} // namespace espalier::rt
