// Unsharded parameters and gradients of a run, for tests and dumps.
#pragma once

#include "runtime/executor.h"
#include "runtime/parameter_block.h"
#include "runtime/train/run_options.h"

#include <mutex>

namespace espalier::rt {

/// Gathers the shards of all ranks of the process into unsharded tensors.
class Gatherer {
public:
  /// Creates an empty gatherer.
  explicit Gatherer(const Program &program) : program(program) {}

  /// Adds this rank's parameters after step `step` of the run.
  void addParameters(const Executor &executor, size_t step);

  /// Adds the gradients that this rank summed in step `step`, divided by tokens * loss scale. `scalars` are the results
  /// of the step.
  void addGradients(const Executor &executor, const Scalars &scalars, size_t step);

  /// The gathered tensors, by step.
  std::vector<Tensors> parameters, gradients;

private:
  /// Copies the elements `held` of a bucket buffer to their positions in the tensor.
  void add(const Executor &executor, Tensors &tensors, const PlacedParameter &placed, const pb::Buffer &buffer,
           pb::DataType type, const HeldElements &held, float scale) const;
  /// Returns the tensors of a step. Adds the step if it is new.
  static Tensors &at(std::vector<Tensors> &steps, size_t step);

  const Program &program;
  std::mutex mutex;
};

} // namespace espalier::rt
