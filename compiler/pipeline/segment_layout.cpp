#include "compiler/pipeline/segment_layout.h"

#include "compiler/codegen/guards.h"
#include "compiler/pipeline/stage_calls.h"

#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;

namespace espalier {

const SegmentParameter &SegmentLayout::parameter(StringRef name) const {
  for (const SegmentParameter &parameter : parameters)
    if (parameter.description->name == name)
      return parameter;
  llvm_unreachable("a function reads a parameter that its segment does not declare");
}

const SegmentBucket &SegmentLayout::bucket(StringRef name) const {
  for (const SegmentBucket &bucket : buckets)
    if (bucket.name == name)
      return bucket;
  llvm_unreachable("a function reads a bucket that its segment does not have");
}

uint64_t SegmentLayout::parameterOffset(const SegmentParameter &parameter) const {
  return bucketOf(parameter).storedOffset + parameter.first * parameter.elementBytes;
}

uint64_t SegmentLayout::gradientOffset(const SegmentParameter &parameter) const {
  return bucketOf(parameter).gradientOffset + parameter.first * 4;
}

std::vector<std::string> stateParts(const SegmentLayout &segment) {
  if (segment.master)
    return {"master", "moment1", "moment2"};
  return {"moment1", "moment2"};
}

namespace {

/// What the arguments of a localized joint function say about one parameter.
SegmentParameter readParameter(func::FuncOp function, const ParameterDescription &description, const Layout &layout,
                               const planner::Plan &plan) {
  SegmentParameter parameter;
  parameter.description = &description;
  for (BlockArgument argument : function.getArguments()) {
    auto attribute = [&](StringRef name) {
      return function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), name);
    };
    if (!attribute("model.name") || attribute("model.name").getValue() != description.name)
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    auto sharding = Sharding(function.getArgAttrOfType<dist::ShardingAttr>(argument.getArgNumber(), "dist.sharding"));
    if (attribute("model.role").getValue() == "parameter") {
      parameter.sharding = sharding;
      parameter.localElements = type.getNumElements();
      parameter.elementBytes = type.getElementTypeBitWidth() / 8;
      for (auto [size, axes] : llvm::zip_equal(type.getShape(), sharding.dims))
        parameter.paddedShape.push_back(size * layout.size(axes));
    } else if (attribute("model.role").getValue() == "accumulator") {
      // Gradients meet in the order in which they were added up; a group is named in the order of the mesh.
      for (StringAttr axis : layout.mesh().getAxes())
        if (llvm::is_contained(sharding.partial, axis) && layout.mesh().size(axis.getValue()) > 1)
          parameter.partialAxes.push_back(axis);
    }
  }
  int64_t shares = 1;
  for (StringAttr axis : layout.mesh().getAxes()) {
    bool isOfSamples = axis == "dp" || axis == "cp" || axis == "ep";
    bool splits =
        llvm::any_of(parameter.sharding.dims, [&](const Axes &axes) { return llvm::is_contained(axes, axis); });
    // What works on whole sequences has the same gradient on all context ranks.
    bool isSummed = llvm::is_contained(parameter.partialAxes, axis);
    if (plan.zero >= 1 && isOfSamples && isSummed && !splits && layout.mesh().size(axis.getValue()) > 1) {
      parameter.shareAxes.push_back(axis);
      shares *= layout.mesh().size(axis.getValue());
    }
  }
  int64_t splits = 1;
  for (const Axes &axes : parameter.sharding.dims)
    splits *= layout.size(axes);
  parameter.replicas = plan.ranks() / plan.pp / splits / shares;
  return parameter;
}

/// The owner's name of a parameter that is tied with another segment's, "embed.table"; empty for others.
std::string tiedName(const RunConfig &run, StringRef kind, const ParameterDescription &parameter) {
  if (!parameter.tiedTo.empty())
    return parameter.tiedTo;
  std::string name = kind.str() + "." + parameter.name;
  for (const SegmentDescription &segment : run.model.segments)
    for (const ParameterDescription &other : segment.parameters)
      if (other.tiedTo == name)
        return name;
  return "";
}

/// Forms the buckets of one segment and numbers its parameters in them.
class BucketBuilder {
public:
  BucketBuilder(SegmentLayout &segment, const RunConfig &run, const planner::Plan &plan, const Layout &layout)
      : segment(segment), run(run), plan(plan), layout(layout) {}

  void build() {
    for (bool ofTied : {true, false})
      for (auto [index, parameter] : llvm::enumerate(segment.parameters)) {
        std::string tied = tiedName(run, segment.kind, *parameter.description);
        if (ofTied == !tied.empty())
          put(index, parameter, tied);
      }
    for (SegmentBucket &bucket : segment.buckets) {
      int64_t parts = 1;
      for (StringAttr axis : bucket.shareAxes)
        parts *= layout.mesh().size(axis.getValue());
      bucket.elements = llvm::alignTo(bucket.elements, parts * bucketAlignment);
      bucket.partElements = bucket.elements / parts;
    }
  }

private:
  SegmentBucket &bucketFor(const SegmentParameter &parameter, const std::string &tied) {
    double weight = 1.0 / parameter.replicas;
    bool acrossStages = !tied.empty() && headStage(plan) > 0;
    if (acrossStages)
      weight /= 2;
    for (SegmentBucket &bucket : segment.buckets)
      if (tied.empty() && bucket.holders.empty() && bucket.decays == parameter.description->decay &&
          bucket.elementBytes == parameter.elementBytes && bucket.partialAxes == parameter.partialAxes &&
          bucket.shareAxes == parameter.shareAxes && bucket.normWeight == weight && !isAlone(bucket))
        return bucket;
    SegmentBucket bucket;
    bucket.name = tied.empty() ? freeName(parameter.description->decay) : tied;
    bucket.elementBytes = parameter.elementBytes;
    bucket.partialAxes = parameter.partialAxes;
    bucket.shareAxes = parameter.shareAxes;
    bucket.decays = parameter.description->decay;
    bucket.normWeight = weight;
    if (acrossStages)
      bucket.holders = {0, static_cast<uint32_t>(headStage(plan))};
    bucket.isTied = !parameter.description->tiedTo.empty();
    bucket.isTiedHere = bucket.isTied && headStage(plan) == 0;
    segment.buckets.push_back(std::move(bucket));
    return segment.buckets.back();
  }

  /// Tied parameters have a bucket each.
  bool isAlone(const SegmentBucket &bucket) const {
    const ParameterDescription &first = *segment.parameters[bucket.parameters.front()].description;
    return !tiedName(run, segment.kind, first).empty();
  }

  std::string freeName(bool decays) const {
    std::string base = segment.kind + (decays ? ".decayed" : ".plain"), name = base;
    for (int number = 2; llvm::any_of(segment.buckets, [&](const SegmentBucket &b) { return b.name == name; });
         ++number)
      name = base + std::to_string(number);
    return name;
  }

  void put(size_t index, SegmentParameter &parameter, const std::string &tied) {
    SegmentBucket &bucket = bucketFor(parameter, tied);
    parameter.bucket = &bucket - segment.buckets.data();
    parameter.first = bucket.elements;
    bucket.parameters.push_back(index);
    bucket.elements += llvm::alignTo(parameter.localElements, bucketAlignment);
  }

  SegmentLayout &segment;
  const RunConfig &run;
  const planner::Plan &plan;
  const Layout &layout;
};

/// Gives a bucket of its own its offsets behind the bytes of `segment`.
void place(SegmentBucket &bucket, SegmentLayout &segment, uint64_t guard) {
  bucket.storedOffset = segment.parameterBytes;
  bucket.gradientOffset = segment.gradientBytes;
  bucket.stateOffset = segment.stateBytes;
  segment.parameterBytes += alignUp(bucket.elements * bucket.elementBytes, guard);
  segment.gradientBytes += alignUp(bucket.elements * 4, guard);
  segment.stateBytes += alignUp(stateParts(segment).size() * bucket.partElements * 4, guard);
}

} // namespace

std::vector<SegmentLayout> layOutSegments(ModuleOp module, const RunConfig &run, const planner::Plan &plan) {
  Layout layout(module);
  std::vector<SegmentLayout> segments;
  for (const SegmentDescription &description : run.model.segments) {
    auto function = module.lookupSymbol<func::FuncOp>(description.kind);
    SegmentLayout segment;
    segment.kind = description.kind;
    segment.master = run.dtypes.masterWeights && run.dtypes.parameters != DType::F32;
    for (const ParameterDescription &parameter : description.parameters)
      segment.parameters.push_back(readParameter(function, parameter, layout, plan));
    BucketBuilder(segment, run, plan, layout).build();
    segments.push_back(std::move(segment));
  }
  uint32_t numbers = 0;
  std::map<std::string, SegmentBucket *> byName;
  std::map<std::string, SegmentLayout *> byKind;
  for (SegmentLayout &segment : segments) {
    byKind[segment.kind] = &segment;
    SegmentLayout *owner = nullptr;
    for (const SegmentBucket &bucket : segment.buckets)
      if (bucket.isTiedHere)
        owner = byKind.at(StringRef(bucket.name).split('.').first.str());
    if (owner) { // continue the owner's regions
      segment.parameterBytes = owner->parameterBytes;
      segment.gradientBytes = owner->gradientBytes;
      segment.stateBytes = owner->stateBytes;
    }
    for (SegmentBucket &bucket : segment.buckets) {
      auto [known, isNew] = byName.try_emplace(bucket.name, &bucket);
      bucket.number = isNew ? numbers++ : known->second->number;
      if (bucket.isTiedHere) {
        bucket.storedOffset = known->second->storedOffset;
        bucket.gradientOffset = known->second->gradientOffset;
        bucket.stateOffset = known->second->stateOffset;
      } else {
        place(bucket, segment, guardBytes(module));
      }
    }
    if (owner) {
      owner->parameterBytes = segment.parameterBytes;
      owner->gradientBytes = segment.gradientBytes;
      owner->stateBytes = segment.stateBytes;
    }
  }
  return segments;
}

} // namespace espalier
