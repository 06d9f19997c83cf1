// Finds the programs of a plan by name, and the bytes that a program accesses in each region.
#pragma once

#include "dialects/exec/dialect.h"

#include "format/plan.pb.h"

#include <map>
#include <string>
#include <vector>

namespace espalier {

/// Index of the programs of a plan. The plan must already have its programs.
class ProgramExtents {
public:
  explicit ProgramExtents(const rt::pb::Plan &plan);

  /// Returns the index of a program + 1, as layer calls name programs. Returns 0 if the plan has no program with this
  /// name, or if the program has no instructions.
  uint32_t find(const std::string &name) const;

  /// Returns the access extent of a program in a region, in bytes. `program` is an index + 1, or 0 for no program.
  uint64_t bytes(uint32_t program, exec::Region region) const;
  /// Returns the access extent of the program that a layer call runs in a role.
  uint64_t bytes(const rt::pb::Call &call, exec::Role role, exec::Region region) const;
  /// Returns the largest access extent of all programs that the layer calls of a stage run.
  uint64_t largest(const rt::pb::Stage &stage, exec::Region region) const;

private:
  std::map<std::string, uint32_t> numbers;
  std::vector<std::vector<uint64_t>> extents; ///< by program and region
};

} // namespace espalier
