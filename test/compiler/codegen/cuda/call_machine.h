// Runs a function with one model op twice on the same regions: lowered for CPUs to a library call of the runtime, and
// lowered for GPUs to kernel launches in the emulator.
#pragma once

#include "dialects/exec/dialect.h"
#include "format/abi.h"
#include "format/plan.pb.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::test {

/// The values of the variables in affine scalars.
struct Moment {
  int64_t step = 3, microBatch = 0, layer = 5, seed = 11, coordinate = 1;
};

class CallMachine {
public:
  /// Compiles the function in `text`. All its arguments and results have a role and a name. Results include `slots`.
  explicit CallMachine(const std::string &text);

  /// Returns the elements of the argument or result called `name`.
  std::vector<double> &values(const std::string &name) { return tensors.at(name).values; }
  rt::Scalars slots{}; ///< all slots except the step
  const std::vector<double> &cpu(const std::string &name) const { return onCpu.at(name); }
  const std::vector<double> &cuda(const std::string &name) const { return onCuda.at(name); }
  /// Runs the function on CPU and GPU.
  void run(const Moment &moment);
  /// Runs only the GPU kernels.
  void runCuda(const Moment &moment) { onCuda = runPlan(cudaPlan, moment); }

  const std::string &ptx() const { return cudaPlan.objects(0).code(); }
  /// Returns the number of instructions that warps executed in all launches.
  uint64_t instructions() const { return executed; }
  /// Returns the shapes of the launched kernels, in order.
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
