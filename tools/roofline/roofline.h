// Lower bounds of the step time of a plan on a device. Each kernel and product takes at least the time of its tightest
// limit.
#pragma once

#include "format/plan.pb.h"

#include <string>
#include <vector>

namespace espalier {

/// Rates of one device, per second. Product and memory rates are achieved rates.
struct DeviceRates {
  double f32Products = 0, halfProducts = 0; ///< FLOP/s of matrix products
  double matrixFlops = 0;                   ///< of 16-bit matrix instructions in kernels
  double memoryBytes = 0;
  double laneInstructions = 0; ///< single-lane instructions; special functions run at an eighth of this rate
  int multiprocessors = 1;     ///< a block runs on one of them
  double launchSeconds = 0;    ///< least time between kernel launches
};

/// Identical kernels or products of a step.
struct RooflineRow {
  std::string name, place; ///< "row_5 [32768]"; location in the model file
  int64_t launches = 0;    ///< in a step
  // Of one launch:
  double bytes = 0;        ///< least memory traffic: each buffer counts at most once
  double accessed = 0;     ///< bytes of all loads and stores
  double instructions = 0; ///< over all lanes
  double flops = 0;
  double seconds = 0;
  std::string limit; ///< memory, instructions, special functions, products, launches
};

/// The kernels and products of one entry, and a lower bound of its time.
struct Roofline {
  std::vector<RooflineRow> rows; ///< slowest first
  int stage = 0;                 ///< of the slowest stage
  double stepSeconds = 0;        ///< kernels and products, without transfers
  double tokensPerSecond = 0;
  bool hasTransfers = false;
};

/// Computes the roofline of entry train_step, else of the first entry. Throws PlanError if the target is not cuda.
Roofline makeRoofline(const rt::pb::Plan &plan, const DeviceRates &rates);

} // namespace espalier
