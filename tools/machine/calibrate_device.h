// Measures the GPUs of this machine with stream events, and writes a cluster file.
#pragma once

#include "compiler/import/run/run_config.h"
#include "format/plan.pb.h"

#include <cstdint>
#include <span>
#include <string>

namespace espalier {

/// Measured constants of one GPU and of the link between GPUs. Rates are per second.
struct MeasuredDevice {
  std::string name;              ///< of the device, from the driver
  std::string device, libraries; ///< descriptions
  bool isEmulated = false;       ///< the rates are not those of hardware
  int devices = 1, multiprocessors = 0;
  double memoryBytes = 0;                                ///< per device
  double f32Flops = 0, bf16Flops = 0, f16Flops = 0;      ///< of the fastest product
  double matmulEfficiency = 0;                           ///< rate of a layer's bf16 product over the fastest one
  double memoryBytesPerSecond = 0;                       ///< read plus written
  double launchSeconds = 0;                              ///< of the smallest kernel or copy on a stream
  double linkBytesPerSecond = 0, linkLatencySeconds = 0; ///< of a ring over all devices; 0 with one device
  MatmulAlgorithms algorithms;                           ///< the fastest algorithm of each product of the given plans
};

/// Measures each rate for at least `seconds`, or once on an emulated device, whose rates are meaningless. Times the
/// algorithms of the plans' products for a tenth of that each. Throws PlanError if the driver, cuBLASLt or, with
/// several devices, NCCL is missing.
MeasuredDevice measureDevice(double seconds, std::span<const rt::pb::Plan> plans);

/// Returns a file for configs/clusters, like clusterYaml() for CPUs.
std::string deviceClusterYaml(const std::string &name, const MeasuredDevice &device);

} // namespace espalier
