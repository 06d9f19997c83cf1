// What a step of a plan takes at least on a device: each kernel and product by the most that keeps it from being
// faster.
#pragma once

#include "runtime/plan.pb.h"

#include <string>
#include <vector>

namespace espalier {

/// Rates of one device, per second; those of products and memory as they are achieved.
struct DeviceRates {
  double f32Products = 0, halfProducts = 0; ///< FLOP/s of matrix products
  double matrixFlops = 0;                   ///< of 16-bit matrix instructions in kernels
  double memoryBytes = 0;
  double laneInstructions = 0; ///< one instruction of one lane; special functions an eighth of it
  int multiprocessors = 1;     ///< a block runs on one of them
  double launchSeconds = 0;    ///< kernels follow each other no faster
};

/// Kernels or products of a step that are alike in everything.
struct RooflineRow {
  std::string name, place; ///< "row_5 [32768]"; where in the model file
  int64_t launches = 0;    ///< in a step
  // Of one launch:
  double bytes = 0;        ///< that memory must move: of each buffer at most all of it
  double accessed = 0;     ///< that loads and stores ask for
  double instructions = 0; ///< of lanes
  double flops = 0;
  double seconds = 0;
  std::string limit; ///< memory, instructions, special functions, products, launches
};

struct Roofline {
  std::vector<RooflineRow> rows; ///< those that take most first
  int stage = 0;                 ///< of the slowest stage
  double stepSeconds = 0;        ///< of its kernels and products; transfers are not in it
  double tokensPerSecond = 0;
  bool hasTransfers = false;
};

/// Of entry train_step, else of the first. Throws PlanError for a plan of another target than cuda.
Roofline makeRoofline(const rt::pb::Plan &plan, const DeviceRates &rates);

} // namespace espalier
