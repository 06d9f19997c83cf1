// Unsharded parameters and gradients of a run, for tests and dumps.
#pragma once

#include "runtime/executor.h"
#include "runtime/parameter_block.h"
#include "runtime/train/run.h"

#include <mutex>

namespace espalier::rt {

/// Collects what each rank of the process holds into whole tensors.
class Gatherer {
public:
  explicit Gatherer(const Program &program) : program(program) {}

  /// Adds this rank's parameters after step `step` of the run.
  void addParameters(const Executor &executor, size_t step);

  /// Adds the gradients that this rank has summed in the step before, divided by tokens * loss scale: `scalars` are the
  /// step's results.
  void addGradients(const Executor &executor, const Scalars &scalars, size_t step);

  std::vector<Tensors> parameters, gradients;

private:
  /// Adds the elements `held` of one of a bucket's buffers to their tensor.
  void add(const Executor &executor, Tensors &tensors, const PlacedParameter &placed, const pb::Buffer &buffer,
           pb::DataType type, const HeldElements &held, float scale) const;
  /// Room for the tensors of a step.
  static Tensors &at(std::vector<Tensors> &steps, size_t step);

  const Program &program;
  std::mutex mutex;
};

} // namespace espalier::rt
