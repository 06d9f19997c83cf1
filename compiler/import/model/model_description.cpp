// Implements queries of a model description, without IR.
#include "compiler/import/model/model_description.h"

#include <algorithm>
#include <cassert>
#include <cmath>

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
  return !hasExperts() || isDropless || dims.at("capacity") == dims.at("seq");
}

int64_t ModelDescription::holderSlots(int64_t tokens, int64_t holders) const {
  int64_t choices = dims.at("choice"), all = tokens * std::min(choices, dims.at("expert") / holders);
  double even = static_cast<double>(tokens * choices) / static_cast<double>(holders);
  return static_cast<int64_t>(std::min(std::ceil(droplessHeadroom(tokens) * even), static_cast<double>(all)));
}

double ModelDescription::overflowBound(int64_t tokens, double headroom) const {
  auto experts = static_cast<double>(dims.at("expert"));
  double mean = static_cast<double>(tokens * dims.at("choice")) / experts;
  double parts = static_cast<double>(stepSamples) * std::max(layerCount(), 1) * experts;
  return std::min(1.0, parts * std::exp(-mean * (headroom * std::log(headroom) - headroom + 1)));
}

double ModelDescription::droplessHeadroom(int64_t tokens) const {
  if (statedHeadroom > 0)
    return std::max(statedHeadroom, 1.0);
  double least = 1, most = 2;
  while (overflowBound(tokens, most) > 1e-6)
    most *= 2;
  for (int i = 0; i < 60; ++i) {
    double middle = (least + most) / 2;
    (overflowBound(tokens, middle) > 1e-6 ? least : most) = middle;
  }
  return most;
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
