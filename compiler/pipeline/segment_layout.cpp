#include "compiler/pipeline/segment_layout.h"

#include "compiler/codegen/guards.h"

#include <map>

using namespace mlir;

namespace espalier {

const SegmentParameter &SegmentLayout::parameter(StringRef name) const {
  for (const SegmentParameter &parameter : parameters)
    if (parameter.description->name == name)
      return parameter;
  llvm_unreachable("a function reads a parameter that its segment does not declare");
}

std::string stateName(StringRef parameter, StringRef part) { return (parameter + "." + part).str(); }

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
        if (llvm::is_contained(sharding.partial, axis))
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
  parameter.stateElements = (parameter.localElements + shares - 1) / shares;
  parameter.heldElements = parameter.stateElements * shares;
  int64_t splits = 1;
  for (const Axes &axes : parameter.sharding.dims)
    splits *= layout.size(axes);
  parameter.replicas = plan.ranks() / plan.pp / splits / shares;
  return parameter;
}

/// Gives a parameter of its own its offsets behind the bytes of `segment`.
void place(SegmentParameter &parameter, SegmentLayout &segment, uint64_t guard) {
  parameter.parameterOffset = segment.parameterBytes;
  parameter.gradientOffset = segment.gradientBytes;
  parameter.stateOffset = segment.stateBytes;
  segment.parameterBytes += alignUp(parameter.heldElements * parameter.elementBytes, guard);
  segment.gradientBytes += alignUp(parameter.heldElements * 4, guard);
  segment.stateBytes += alignUp((segment.master ? 3 : 2) * parameter.stateElements * 4, guard);
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
    segments.push_back(std::move(segment));
  }
  std::map<std::string, SegmentLayout *> byKind;
  for (SegmentLayout &segment : segments) {
    byKind[segment.kind] = &segment;
    SegmentLayout *owner = nullptr;
    for (SegmentParameter &parameter : segment.parameters) {
      StringRef tied = parameter.description->tiedTo;
      if (plan.pp == 1 && !tied.empty())
        owner = byKind.at(tied.split('.').first.str());
    }
    if (owner) { // continue the owner's regions
      segment.parameterBytes = owner->parameterBytes;
      segment.gradientBytes = owner->gradientBytes;
      segment.stateBytes = owner->stateBytes;
    }
    for (SegmentParameter &parameter : segment.parameters) {
      auto [kind, name] = StringRef(parameter.description->tiedTo).split('.');
      if (!owner || name.empty()) {
        place(parameter, segment, guardBytes(module));
        continue;
      }
      const SegmentParameter &shared = owner->parameter(name);
      parameter.parameterOffset = shared.parameterOffset;
      parameter.gradientOffset = shared.gradientOffset;
      parameter.stateOffset = shared.stateOffset;
      parameter.isTiedHere = true;
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
