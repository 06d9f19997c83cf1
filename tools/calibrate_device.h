// What the GPUs of this machine do, measured by events of their queues, and a cluster file made of it.
#pragma once

#include "compiler/import/run_config.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <span>
#include <string>

namespace espalier {

/// Constants of one GPU, and of the way between them. Rates are per second.
struct MeasuredDevice {
  std::string device, libraries; ///< in words
  bool isEmulated = false;       ///< no rate is one of hardware
  int devices = 1, multiprocessors = 0;
  double memoryBytes = 0;                                ///< of a device
  double f32Flops = 0, bf16Flops = 0, f16Flops = 0;      ///< of the fastest product
  double matmulEfficiency = 0;                           ///< rate of a bf16 product of a layer over the fastest one
  double memoryBytesPerSecond = 0;                       ///< read plus written
  double launchSeconds = 0;                              ///< of the smallest work in a queue
  double linkBytesPerSecond = 0, linkLatencySeconds = 0; ///< of a ring over all devices; 0 with one
  MatmulAlgorithms algorithms;                           ///< the fastest one of each product of the given plans
};

/// Measures, each rate over at least `seconds`, or once on an emulated device, in whose sizes no rate shows; and the
/// algorithms of the plans' products, a tenth of that each. Throws PlanError where driver, cuBLASLt or, with several
/// devices, NCCL is missing.
MeasuredDevice measureDevice(double seconds, std::span<const rt::pb::Plan> plans);

/// A file of configs/clusters, as clusterYaml() writes it for CPUs.
std::string deviceClusterYaml(const std::string &name, const MeasuredDevice &device);

} // namespace espalier
