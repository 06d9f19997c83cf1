// Blocks and shards of parameters. Calls are identified across stages by their layers.
#include "runtime/parameter_block.h"

#include "format/optimizers.h"

#include <algorithm>
#include <map>
#include <set>

namespace espalier::rt {
namespace {

/// Returns the names of the model's calls, keyed by layer.
std::map<int64_t, std::string> callNames(const pb::Plan &plan) {
  std::map<int64_t, std::string> names;
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      names.emplace(call.layer(), call.name());
  return names;
}

/// Returns whether the rank saves elements that several ranks hold, sharded along the axes `cut`. The owner has
/// coordinate 0 on all other axes and is in the first stage that holds the bucket.
bool isSpeaker(const pb::Bucket &bucket, uint32_t cut, const Mesh &mesh, int rank) {
  if (mesh.index(rank, allAxes & ~(PP | cut)) != 0)
    return false;
  return bucket.holders().empty() ||
         static_cast<uint32_t>(mesh.stage(rank)) == *std::ranges::min_element(bucket.holders());
}

/// Returns the elements of a block in the rank's shard of the bucket. The block has `elements` and begins at `first`.
HeldElements ownElements(const pb::Bucket &bucket, int64_t first, int64_t elements, const Mesh &mesh, int rank) {
  auto part = static_cast<int64_t>(bucket.elements()) / mesh.count(bucket.share());
  int64_t partFirst = part * mesh.index(rank, bucket.share());
  int64_t begin = std::clamp<int64_t>(partFirst - first, 0, elements);
  int64_t end = std::clamp<int64_t>(partFirst + part - first, begin, elements);
  return {{begin, end}, first + begin - partFirst};
}

} // namespace

ParameterBlock::ParameterBlock(const pb::Parameter &parameter, const Mesh &mesh, int rank) {
  for (int i = 0; i < parameter.shape_size(); ++i) {
    uint32_t axes = i < parameter.split_size() ? parameter.split(i) : 0;
    uint32_t slow = i < parameter.slow_size() ? parameter.slow(i) : 0, fast = axes & ~slow;
    int64_t block = static_cast<int64_t>(parameter.padded_shape(i)) / mesh.count(axes);
    global.push_back(static_cast<int64_t>(parameter.shape(i)));
    size.push_back(block);
    begin.push_back(block * (mesh.index(rank, slow) * mesh.count(fast) + mesh.index(rank, fast)));
    count *= block;
  }
}

void ParameterBlock::visitRuns(const std::function<void(int64_t, int64_t, int64_t)> &visit) const {
  if (global.empty())
    return visit(0, 0, 1);
  // The dimensions behind `last` are whole, so that their elements are contiguous in both tensors.
  size_t last = global.size() - 1;
  int64_t inner = 1;
  while (last > 0 && begin[last] == 0 && size[last] == global[last])
    inner *= size[last--];
  int64_t run = std::min(size[last], global[last] - begin[last]) * inner;
  if (run <= 0 || count == 0)
    return;
  std::vector<int64_t> row(last + 1, 0); // indices within the block; the last entry stays 0
  for (int64_t length = size[last] * inner, rows = count / length, r = 0; r < rows; ++r) {
    int64_t place = 0;
    bool isPadding = false;
    for (size_t i = 0; i <= last; ++i) {
      isPadding |= begin[i] + row[i] >= global[i];
      place = place * global[i] + begin[i] + row[i];
    }
    if (!isPadding)
      visit(r * length, place * inner, run);
    for (size_t i = last; i-- > 0;) {
      if (++row[i] < size[i])
        break;
      row[i] = 0;
    }
  }
}

int64_t NamedParameter::elements() const {
  int64_t elements = 1;
  for (uint64_t extent : parameter->shape())
    elements *= static_cast<int64_t>(extent);
  return elements;
}

HeldElements PlacedParameter::whole() const {
  return {{0, block.elements()}, static_cast<int64_t>(parameter->first())};
}

HeldElements PlacedParameter::heldStored() const { return bucket->has_whole_stored() ? own : whole(); }

HeldElements PlacedParameter::heldGradient() const { return bucket->has_whole_gradient() ? own : whole(); }

bool PlacedParameter::isStoredSpokenFor() const { return bucket->has_whole_stored() ? isOwnSpokenFor : isSpokenFor; }

std::set<std::string> adapterNames(const pb::Plan &plan) {
  std::set<std::string> names;
  for (const pb::WeightNames::Run &run : plan.weights().runs())
    for (const pb::WeightNames::Parameter &parameter : run.parameters())
      if (parameter.is_adapter())
        names.insert(parameter.name());
  return names;
}

std::vector<NamedParameter> parametersOf(const pb::Plan &plan) {
  std::vector<NamedParameter> parameters;
  std::map<int64_t, std::string> names = callNames(plan);
  std::set<std::string> seen;
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      for (const pb::BucketUse &use : call.buckets())
        for (const pb::Parameter &parameter : plan.buckets(use.bucket()).parameters()) {
          std::string name = names[use.owner()] + "." + parameter.name();
          if (seen.insert(name).second)
            parameters.push_back({name, &plan.buckets(use.bucket()), &parameter});
        }
  return parameters;
}

std::vector<PlacedParameter> placedParameters(const pb::Plan &plan, const Mesh &mesh, int rank) {
  std::vector<PlacedParameter> placed;
  std::map<int64_t, std::string> names = callNames(plan);
  const pb::Stage &stage = plan.stages(mesh.stage(rank));
  for (int call = 0; call < stage.calls_size(); ++call)
    for (const pb::BucketUse &use : stage.calls(call).buckets()) {
      if (!use.updates())
        continue; // another call of the stage also holds it
      const pb::Bucket &bucket = plan.buckets(use.bucket());
      for (const pb::Parameter &parameter : bucket.parameters()) {
        ParameterBlock block(parameter, mesh, rank);
        uint32_t cut = 0;
        for (uint32_t axes : parameter.split())
          cut |= axes;
        HeldElements own = ownElements(bucket, static_cast<int64_t>(parameter.first()), block.elements(), mesh, rank);
        placed.push_back({{names[use.owner()] + "." + parameter.name(), &bucket, &parameter},
                          static_cast<uint32_t>(call),
                          std::move(block),
                          own,
                          isSpeaker(bucket, cut, mesh, rank),
                          isSpeaker(bucket, cut | bucket.share(), mesh, rank)});
      }
    }
  return placed;
}

bool hasMaster(const pb::Bucket &bucket) {
  return bucket.state_size() > static_cast<int>(optimizerRow(bucket.optimizer()).states.size());
}

} // namespace espalier::rt
