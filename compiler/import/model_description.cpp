// Questions that a description answers without any IR.
#include "compiler/import/model_description.h"

#include <cassert>

namespace espalier {

const SegmentDescription &ModelDescription::segment(const std::string &kind) const {
  for (const SegmentDescription &candidate : segments)
    if (candidate.kind == kind)
      return candidate;
  assert(false && "runs name only segments of the model; the loader checks it");
  return segments.front();
}

int ModelDescription::layerCount() const {
  int layers = 0;
  for (size_t i = 1; i + 1 < runs.size(); ++i)
    layers += runs[i].count;
  return layers;
}

int64_t ModelDescription::parameterCount() const {
  int64_t total = 0;
  for (const SegmentRun &run : runs)
    for (const ParameterDescription &parameter : segment(run.kind).parameters) {
      if (!parameter.tiedTo.empty())
        continue;
      int64_t elements = 1;
      for (const std::string &dim : parameter.dims)
        elements *= dims.at(dim);
      total += elements * run.count;
    }
  return total;
}

} // namespace espalier
