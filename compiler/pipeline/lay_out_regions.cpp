#include "compiler/pipeline/lay_out_regions.h"

#include "compiler/codegen/guards.h"
#include "compiler/pipeline/add_buckets.h"

#include <set>

using namespace mlir;

namespace espalier {

namespace {

uint64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

rt::pb::DataType dataType(Type type) {
  Type element = cast<RankedTensorType>(type).getElementType();
  return element.isBF16()      ? rt::pb::BF16
         : element.isF16()     ? rt::pb::F16
         : element.isInteger() ? rt::pb::I32
                               : rt::pb::F32;
}

/// Offset of "block.decayed.moment2" and its like in the state.
uint64_t stateOffset(const SegmentLayout &segment, StringRef name) {
  auto [bucketName, part] = name.rsplit('.');
  const SegmentBucket &bucket = segment.bucket(bucketName);
  auto parts = stateParts(segment);
  return bucket.stateOffset + (llvm::find(parts, part) - parts.begin()) * bucket.partElements * 4;
}

/// Buckets have a point in their names, parameters have none.
bool isBucketName(StringRef name) { return name.contains('.'); }

class RegionLayout {
public:
  RegionLayout(ModuleOp module, const std::vector<SegmentLayout> &segments)
      : context(module.getContext()), segments(segments) {
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
    if (function.getName().starts_with("step."))
      return;
    auto [kind, phase] = function.getName().split('.');
    segment = &*llvm::find_if(segments, [&, name = kind](const SegmentLayout &s) { return s.kind == name; });
    policy = phase.split('.').first;
    for (BlockArgument argument : function.getArguments()) {
      unsigned index = argument.getArgNumber();
      for (NamedAttribute attribute : describe(function.getArgAttrDict(index), argument.getType()))
        function.setArgAttr(index, attribute.getName(), attribute.getValue());
    }
    for (auto [index, type] : llvm::enumerate(function.getResultTypes()))
      for (NamedAttribute attribute : describe(function.getResultAttrDict(index), type))
        function.setResultAttr(index, attribute.getName(), attribute.getValue());
  }

  RegionSizes sizes;

private:
  static StringRef role(func::FuncOp function, BlockArgument argument) {
    auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "model.role");
    return role ? role.getValue() : "";
  }

  bool isGeneration() const { return policy == "prefill" || policy == "decode"; }

  /// What an argument or result gets, by its role.
  NamedAttrList describe(DictionaryAttr attributes, Type type) {
    StringRef role = cast<StringAttr>(attributes.get("model.role")).getValue();
    StringRef name = cast<StringAttr>(attributes.get("model.name")).getValue();
    Builder b(type.getContext());
    NamedAttrList list;
    auto offset = [&](uint64_t bytes) { list.set("exec.offset", b.getI64IntegerAttr(static_cast<int64_t>(bytes))); };
    auto value = [&](const std::string &text) { list.set("exec.value", b.getStringAttr(text)); };
    if (role == "parameter" || role == "accumulator") {
      describeBucket(role == "parameter", name, list, attributes.getAs<ArrayAttr>("exec.share"));
    } else if (role == "state") {
      offset(stateOffset(*segment, name));
      value(name.str());
    } else if (role == "cache") {
      uint64_t &end = sizes.cacheBytes[segment->kind];
      auto [entry, isNew] = savedOffsets.try_emplace(segment->kind + "/" + name.str(), end);
      if (isNew)
        end += alignUp(bytesOf(type), sizes.guardBytes);
      offset(entry->second);
      value(passing(segment->kind + "." + name.str(), type, /*isResident=*/true));
    } else if (role == "logits") {
      sizes.logitsBytes = bytesOf(type);
      value(passing("logits", type));
    } else if (role == "input" && isGeneration()) { // each phase has inputs of its own size
      std::string key = name.str() + "." + policy;
      auto [entry, isNew] = sizes.inputOffsets.try_emplace(key, sizes.inputBytes);
      if (isNew)
        sizes.inputBytes += alignUp(bytesOf(type), sizes.guardBytes);
      offset(entry->second);
      value(passing(key, type));
    } else if (role == "input") {
      offset(sizes.inputOffsets.at(name.str()));
      value(passing(name.str(), type));
    } else if (role.starts_with("saved")) { // the phase that makes them lists them first, in order
      std::string key = segment->kind + "." + policy;
      uint64_t &bytes = sizes.savedBytes[{key, role.str()}];
      auto [entry, isNew] = savedOffsets.try_emplace(key + "/" + name.str(), bytes);
      if (isNew)
        bytes += alignUp(bytesOf(type), sizes.guardBytes);
      offset(entry->second);
      value(passing(key + ".saved." + name.str(), type));
    } else if (role == "stream" || role == "cotangent") {
      if (role == "stream")
        sizes.streamBytes = std::max(sizes.streamBytes, bytesOf(type));
      value(passing(isGeneration() ? "stream." + policy : role.str(), type));
    }
    return list;
  }

  void describeBucket(bool isStored, StringRef name, NamedAttrList &list, ArrayAttr share) const {
    bool isWhole = isBucketName(name);
    const SegmentParameter *parameter = isWhole ? nullptr : &segment->parameter(name);
    const SegmentBucket &bucket = isWhole ? segment->bucket(name) : segment->bucketOf(*parameter);
    Builder b(context);
    uint64_t offset = isWhole    ? (isStored ? bucket.storedOffset : bucket.gradientOffset)
                      : isStored ? segment->parameterOffset(*parameter)
                                 : segment->gradientOffset(*parameter);
    list.set("exec.offset", b.getI64IntegerAttr(static_cast<int64_t>(offset)));
    list.set("exec.value", b.getStringAttr(isWhole    ? (isStored ? storedValue(bucket) : totalValue(bucket))
                                           : isStored ? parameterValue(*segment, *parameter)
                                                      : parameterValue(*segment, *parameter) + ".gradient"));
    if (!isStored && !isWhole)
      list.set("exec.bucket", b.getI64IntegerAttr(bucket.number + 1));
    uint32_t part = share ? axisBits(SmallVector<StringAttr>(share.getAsRange<StringAttr>())) : 0;
    if (part)
      list.set("exec.part", b.getI64IntegerAttr(part));
  }

  /// A value that passes between programs, of a micro-batch unless it is resident; the first one to name it describes it.
  std::string passing(const std::string &name, Type type, bool isResident = false) {
    if (!known.insert(name).second)
      return name;
    rt::pb::Value &value = sizes.values.emplace_back();
    value.set_name(name);
    value.set_type(dataType(type));
    value.set_elements(cast<RankedTensorType>(type).getNumElements());
    value.set_per_micro_batch(!isResident);
    value.set_resident(isResident);
    return name;
  }

  MLIRContext *context;
  const std::vector<SegmentLayout> &segments;
  const SegmentLayout *segment = nullptr;
  std::string policy;
  std::set<std::string> known;
  std::map<std::string, uint64_t> savedOffsets;
};

} // namespace

RegionSizes layOutRegions(ModuleOp module, const std::vector<SegmentLayout> &segments) {
  RegionLayout layout(module, segments);
  if (!module->hasAttr("exec.generation"))
    layout.placeInputs(module);
  for (auto function : module.getOps<func::FuncOp>())
    layout.place(function);
  return layout.sizes;
}

} // namespace espalier
