#include "compiler/import/run/split_limits.h"

namespace espalier {

std::vector<planner::Divisibility> splitLimits(const ModelDescription &model) {
  using planner::Axis;
  auto size = [&](const std::string &dim) {
    auto found = model.dims.find(dim);
    return found == model.dims.end() ? 0 : found->second;
  };
  std::vector<planner::Divisibility> limits;
  for (const std::string &dim : model.tensorParallelDims())
    limits.push_back({dim, size(dim), Axis::Tp});
  if (!limits.empty())
    limits.push_back({"hidden", size("hidden"), Axis::Tp});
  if (int64_t sequence = size("seq"); sequence > 0) {
    if (model.splitsSequence())
      limits.push_back({"seq", sequence, Axis::Cp});
    limits.push_back({"seq", sequence, Axis::Tp, 1, /*onlySequenceParallel=*/true});
  }
  if (model.hasExperts())
    limits.push_back({"expert", size("expert"), Axis::Ep, 1, /*onlySequenceParallel=*/false, /*ofExperts=*/true});
  return limits;
}

} // namespace espalier
