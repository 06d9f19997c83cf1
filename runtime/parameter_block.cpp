// Blocks, shares and places of parameters.
#include "runtime/parameter_block.h"

#include "runtime/kernels/dtype.h"

#include <algorithm>
#include <map>

namespace espalier::rt {

ParameterBlock::ParameterBlock(const pb::Parameter &parameter, const Mesh &mesh, int rank) {
  for (int i = 0; i < parameter.shape_size(); ++i) {
    std::vector<std::string> axes;
    if (i < parameter.dims_size())
      axes.assign(parameter.dims(i).axes().begin(), parameter.dims(i).axes().end());
    int64_t block = parameter.padded_shape(i) / mesh.product(axes);
    shape.push_back(parameter.shape(i));
    size.push_back(block);
    begin.push_back(block * mesh.index(rank, axes));
    count *= block;
  }
}

void ParameterBlock::visitRuns(const std::function<void(int64_t, int64_t, int64_t)> &visit) const {
  if (shape.empty())
    return visit(0, 0, 1);
  size_t last = shape.size() - 1;
  int64_t run = std::min(size[last], shape[last] - begin[last]);
  if (run <= 0 || count == 0)
    return;
  std::vector<int64_t> row(shape.size(), 0); // position within the block; the last entry stays 0
  for (int64_t rows = count / size[last], r = 0; r < rows; ++r) {
    int64_t global = 0;
    bool isPadding = false;
    for (size_t i = 0; i <= last; ++i) {
      isPadding |= begin[i] + row[i] >= shape[i];
      global = global * shape[i] + begin[i] + row[i];
    }
    if (!isPadding)
      visit(r * size[last], global, run);
    for (size_t i = last; i-- > 0;) {
      if (++row[i] < size[i])
        break;
      row[i] = 0;
    }
  }
}

bool ParameterBlock::isSpeaker(const pb::Parameter &parameter, const Mesh &mesh, int rank, bool isShared) {
  if (parameter.stages_size() == 0 ||
      static_cast<uint32_t>(mesh.stage(rank)) != *std::ranges::min_element(parameter.stages()))
    return false;
  for (const char *axis : {"dp", "cp", "ep", "tp"}) {
    bool splits = std::ranges::any_of(parameter.dims(), [&](const pb::ShardedDim &dim) {
      return std::ranges::find(dim.axes(), axis) != dim.axes().end();
    });
    bool isShare = isShared && std::ranges::count(zeroAxes(), axis) > 0;
    if (!splits && !isShare && mesh.coordinate(rank, axis) != 0)
      return false;
  }
  return true;
}

std::vector<ParameterPlace> parameterPlaces(const pb::Plan &plan, int stage) {
  std::vector<ParameterPlace> places;
  std::map<uint32_t, size_t> indexOf;
  for (const pb::Call &call : plan.stages(stage).calls()) {
    uint64_t bases[pb::Region_ARRAYSIZE] = {};
    for (const pb::Binding &binding : call.bindings())
      bases[binding.region()] = binding.base();
    for (const pb::ParameterSlot &slot : call.parameters()) {
      ParameterPlace place;
      place.parameter = &plan.parameters(slot.parameter());
      place.slot = &slot;
      place.values = bases[pb::PARAMETERS] + slot.parameter_offset();
      place.gradient = bases[pb::GRADIENTS] + slot.gradient_offset();
      place.state = bases[pb::STATE] + slot.state_offset();
      auto [entry, isNew] = indexOf.try_emplace(slot.parameter(), places.size());
      if (isNew)
        places.push_back(place);
      else if (slot.state_elements() > 0)
        places[entry->second] = place;
    }
  }
  return places;
}

StateRange stateRange(const pb::ParameterSlot &slot, const Mesh &mesh, int rank) {
  int64_t all = slot.local_elements(), held = slot.state_elements();
  if (held >= all)
    return {0, all};
  int64_t begin = std::min(all, held * mesh.index(rank, zeroAxes()));
  return {begin, std::min(all, begin + held)};
}

float loadElement(pb::DataType type, const void *values, int64_t i) {
  if (type == pb::BF16)
    return bf16ToFloat(static_cast<const uint16_t *>(values)[i]);
  if (type == pb::F16)
    return f16ToFloat(static_cast<const uint16_t *>(values)[i]);
  return static_cast<const float *>(values)[i];
}

void storeElement(pb::DataType type, void *values, int64_t i, float value) {
  if (type == pb::BF16)
    static_cast<uint16_t *>(values)[i] = floatToBf16(value);
  else if (type == pb::F16)
    static_cast<uint16_t *>(values)[i] = floatToF16(value);
  else
    static_cast<float *>(values)[i] = value;
}

} // namespace espalier::rt
