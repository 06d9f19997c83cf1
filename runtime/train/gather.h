// Unsharded parameters and gradients of a run, for tests and dumps.
#pragma once

#include "runtime/executor.h"
#include "runtime/train/run.h"

#include <mutex>

namespace espalier::rt {

/// Collects what each rank of the process holds into whole tensors.
class Gatherer {
public:
  explicit Gatherer(const Program &program) : program(program) {}

  /// Adds this rank's parameters after step `step` of the run.
  void addParameters(const Executor &executor, size_t step);

  /// Adds this rank's gradients, divided by tokens * loss scale. Call between AGREE and OPTIMIZER.
  void addGradients(const Executor &executor, size_t step);

  std::vector<Tensors> parameters, gradients;

private:
  void add(const Executor &executor, std::vector<Tensors> &steps, size_t step, bool wantsGradients);

  const Program &program;
  std::mutex mutex;
};

} // namespace espalier::rt
