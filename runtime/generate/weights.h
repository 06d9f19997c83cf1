// Parameters for a plan that only reads them: from a checkpoint of any plan of the model, with or without its
// optimizer. Nothing is locked and nothing is written.
#pragma once

#include "runtime/checkpoint/sources.h"

#include <filesystem>

namespace espalier::rt {

class Weights {
public:
  /// `path`: a checkpoint, or the folder of a run, of which it is the newest. Throws PlanError where it is damaged, or
  /// of another model than the plan's.
  Weights(const Program &program, const std::filesystem::path &path);

  /// Fills the parameters of a rank, reading the bytes that it needs and no others.
  void load(Executor &executor) const;

private:
  const Program &program;
  std::filesystem::path path;
  Manifest manifest;
  Sources sources;
};

} // namespace espalier::rt
