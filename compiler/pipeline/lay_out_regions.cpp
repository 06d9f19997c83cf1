#include "compiler/pipeline/lay_out_regions.h"

#include "compiler/codegen/guards.h"

using namespace mlir;

namespace espalier {

namespace {

uint64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

/// Offset of "w.moment2" and its like within STATE.
uint64_t stateOffset(const SegmentLayout &segment, StringRef name) {
  auto [parameterName, part] = name.rsplit('.');
  const SegmentParameter &parameter = segment.parameter(parameterName);
  int position = part == "master" ? 0 : (part == "moment1" ? 0 : 1) + (segment.master ? 1 : 0);
  return parameter.stateOffset + position * parameter.stateElements * 4;
}

class RegionLayout {
public:
  RegionLayout(ModuleOp module, const std::vector<SegmentLayout> &segments)
      : mesh(Layout(module).mesh()), segments(segments) {
    sizes.guardBytes = guardBytes(module);
    for (const char *name : {"tokens", "positions", "labels", "loss_weights"})
      sizes.inputOffsets[name] = 0;
  }

  /// All functions read inputs of one shape, [batch, seq] of four bytes each.
  void placeInputs(ModuleOp module) {
    module.walk([&](func::FuncOp function) {
      for (BlockArgument argument : function.getArguments())
        if (role(function, argument) == "input")
          sizes.oneInputBytes = bytesOf(argument.getType());
    });
    for (const char *name : {"tokens", "positions", "labels", "loss_weights"}) {
      sizes.inputOffsets[name] = sizes.inputBytes;
      sizes.inputBytes += alignUp(sizes.oneInputBytes, sizes.guardBytes);
    }
  }

  void place(func::FuncOp function) {
    auto [kind, phase] = function.getName().split('.');
    StringRef policy = phase.split('.').first;
    std::string saved = (kind + "." + policy).str();
    for (BlockArgument argument : function.getArguments()) {
      unsigned index = argument.getArgNumber();
      DictionaryAttr attributes = function.getArgAttrDict(index);
      if (std::optional<uint64_t> offset = offsetOf(kind, saved, attributes, argument.getType()))
        function.setArgAttr(index, "exec.offset", offsetAttribute(function, *offset));
      if (Attribute coordinates = shareOrigin(attributes, argument.getType()))
        function.setArgAttr(index, "exec.coordinates", coordinates);
    }
    for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
      DictionaryAttr attributes = function.getResultAttrDict(index);
      if (std::optional<uint64_t> offset = offsetOf(kind, saved, attributes, type))
        function.setResultAttr(index, "exec.offset", offsetAttribute(function, *offset));
      if (Attribute coordinates = shareOrigin(attributes, type))
        function.setResultAttr(index, "exec.coordinates", coordinates);
    }
  }

  RegionSizes sizes;

private:
  static StringRef role(func::FuncOp function, BlockArgument argument) {
    auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "model.role");
    return role ? role.getValue() : "";
  }

  static IntegerAttr offsetAttribute(func::FuncOp function, uint64_t offset) {
    return IntegerAttr::get(IntegerType::get(function.getContext(), 64), offset);
  }

  /// Bytes to the rank's own share of a flat range; null for a whole one.
  Attribute shareOrigin(DictionaryAttr attributes, Type type) const {
    auto share = attributes.getAs<ArrayAttr>("exec.share");
    if (!share)
      return {};
    SmallVector<StringAttr> axes(share.getAsRange<StringAttr>());
    SmallVector<int64_t> strides(axes.size(), bytesOf(type));
    for (size_t i = axes.size() - 1; i > 0; --i)
      strides[i - 1] = strides[i] * mesh.size(axes[i].getValue());
    return dist::OriginAttr::get(type.getContext(), axes, strides);
  }

  std::optional<uint64_t> offsetOf(StringRef kind, const std::string &policy, DictionaryAttr attributes, Type type) {
    StringRef role = cast<StringAttr>(attributes.get("model.role")).getValue();
    StringRef name = cast<StringAttr>(attributes.get("model.name")).getValue();
    const SegmentLayout &segment = *llvm::find_if(segments, [&](const SegmentLayout &s) { return s.kind == kind; });
    if (role == "parameter")
      return segment.parameter(name).parameterOffset;
    if (role == "accumulator")
      return segment.parameter(name).gradientOffset;
    if (role == "state")
      return stateOffset(segment, name);
    if (role == "input")
      return sizes.inputOffsets.at(name.str());
    if (role == "saved") { // forward lists them first, in order
      auto [entry, isNew] = savedOffsets.try_emplace(policy + "/" + name.str(), sizes.savedBytes[policy]);
      if (isNew)
        sizes.savedBytes[policy] += alignUp(bytesOf(type), sizes.guardBytes);
      return entry->second;
    }
    if (role == "stream")
      sizes.streamBytes = bytesOf(type);
    return std::nullopt;
  }

  dist::MeshAttr mesh;
  const std::vector<SegmentLayout> &segments;
  std::map<std::string, uint64_t> savedOffsets;
};

} // namespace

RegionSizes layOutRegions(ModuleOp module, const std::vector<SegmentLayout> &segments) {
  RegionLayout layout(module, segments);
  layout.placeInputs(module);
  for (auto function : module.getOps<func::FuncOp>())
    layout.place(function);
  return layout.sizes;
}

} // namespace espalier
