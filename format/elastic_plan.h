// The names of the plans of an elastic run. `compile` writes them, and `run --elastic` looks for them.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::rt {

/// Returns the file of the plan of the same run for `ranks` ranks, for example "X.4.plan" beside "X.plan".
inline std::string planFileFor(const std::filesystem::path &plan, int ranks) {
  std::filesystem::path other = plan;
  return other.replace_extension("." + std::to_string(ranks) + plan.extension().string()).string();
}

} // namespace espalier::rt
