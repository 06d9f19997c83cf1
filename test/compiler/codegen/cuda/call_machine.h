// Runs a function of one model op twice, lowered for CPUs (a library call, by the runtime's kernels) and for GPUs
// (launches of emitted kernels, by the emulator), on the same regions.
#pragma once

#include "dialects/exec/dialect.h"
#include "runtime/abi.h"
#include "runtime/plan.pb.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::test {

/// What scalars are made of.
struct Moment {
  int64_t step = 3, microBatch = 0, layer = 5, seed = 11, coordinate = 1;
};

class CallMachine {
public:
  /// A function in `text`; all its arguments and results have a role and a name. Results have `slots` among them.
  explicit CallMachine(const std::string &text);

  /// Elements of an argument or result of type `type`, at the place of its name.
  std::vector<double> &values(const std::string &name) { return tensors.at(name).values; }
  rt::Scalars slots{}; ///< but for the step
  const std::vector<double> &cpu(const std::string &name) const { return onCpu.at(name); }
  const std::vector<double> &cuda(const std::string &name) const { return onCuda.at(name); }
  /// Runs both.
  void run(const Moment &moment);
  /// Runs the kernels for GPUs alone.
  void runCuda(const Moment &moment) { onCuda = runPlan(cudaPlan, moment); }

  const std::string &ptx() const { return cudaPlan.objects(0).code(); }
  /// That warps executed in all launches.
  uint64_t instructions() const { return executed; }
  /// Shapes of the kernels that are launched, in order.
  std::vector<std::string> kernels() const;

private:
  struct Tensor {
    exec::Region region;
    uint64_t offset;
    rt::pb::DataType type;
    std::vector<double> values;
  };
  using Results = std::map<std::string, std::vector<double>>;
  using Regions = std::map<uint32_t, std::vector<char>>;

  Results runPlan(const rt::pb::Plan &plan, const Moment &moment);
  void launch(const rt::pb::Plan &plan, const rt::pb::Launch &launch, Regions &regions, const Moment &moment);

  std::map<std::string, Tensor> tensors;
  rt::pb::Plan cpuPlan, cudaPlan;
  Results onCpu, onCuda;
  uint64_t executed = 0;
};

} // namespace espalier::test
