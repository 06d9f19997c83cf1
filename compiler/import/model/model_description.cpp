// Implements queries of a model description, without IR.
#include "compiler/import/model/model_description.h"

#include <algorithm>
#include <cassert>

namespace espalier {

bool hasState(const OpDescription &op) { return op.kind == "recurrence" || op.kind == "causal_conv"; }

const SegmentDescription &ModelDescription::segment(const std::string &kind) const {
  for (const SegmentDescription &candidate : segments)
    if (candidate.kind == kind)
      return candidate;
  assert(false && "runs name only segments of the model; the loader checks it");
  return segments.front();
}

bool ModelDescription::splitsSequence() const {
  bool isDropless = !hasExperts() || dims.at("capacity") == dims.at("seq");
  return isDropless && std::ranges::none_of(segments, [](const SegmentDescription &segment) {
           return std::ranges::any_of(segment.ops, [](const OpDescription &op) { return hasState(op); });
         });
}

int ModelDescription::layerCount() const {
  int layers = 0;
  for (size_t i = 1; i + 1 < runs.size(); ++i)
    layers += runs[i].count;
  return layers;
}

std::vector<std::string> ModelDescription::tensorParallelDims() const {
  std::vector<std::string> split;
  for (const auto &[dim, size] : dims)
    if (dim == "heads" || dim == "kv_heads" || dim == "state_heads" || dim.starts_with("ffn"))
      split.push_back(dim);
  return split;
}

bool ModelDescription::isOfExperts(const std::string &dim) const {
  for (const SegmentDescription &segment : segments)
    for (const ParameterDescription &parameter : segment.parameters)
      if (std::ranges::count(parameter.dims, "expert") > 0 && std::ranges::count(parameter.dims, dim) > 0)
        return true;
  return false;
}

int64_t ModelDescription::parameterCount() const { return countOf(/*withFrozen=*/true); }

int64_t ModelDescription::trainableCount() const { return countOf(/*withFrozen=*/false); }

int64_t ModelDescription::countOf(bool withFrozen) const {
  int64_t total = 0;
  for (const SegmentRun &run : runs)
    for (const ParameterDescription &parameter : segment(run.kind).parameters) {
      if (!parameter.tiedTo.empty() || (parameter.frozen && !withFrozen))
        continue;
      int64_t elements = 1;
      for (const std::string &dim : parameter.dims)
        elements *= dims.at(dim);
      total += elements * run.count;
    }
  return total;
}

} // namespace espalier
