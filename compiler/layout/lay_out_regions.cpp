// Assigns region offsets and value names to the arguments and results of phase functions. Sets the attributes
// `exec.offset`, `exec.value`, `exec.part`, `exec.bucket` and `exec.region`. Adds the ops exec.region and exec.value,
// which stages are built from.
#include "compiler/layout/lay_out_regions.h"

#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/guards.h"
#include "compiler/layout/bucket_values.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"
#include "format/model_inputs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>
#include <tuple>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_LAYOUTREGIONS
#include "compiler/passes.h.inc"

namespace {

uint64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

/// Returns the offset of a part of the optimizer state, such as "block.decayed.moment2".
uint64_t stateOffset(exec::SegmentOp segment, StringRef name) {
  auto [bucketName, part] = name.rsplit('.');
  exec::BucketOp bucket = segment.bucket(bucketName);
  auto parts = bucket.stateParts();
  return bucket.getStateOffset() + (llvm::find(parts, part) - parts.begin()) * bucket.getPartElements() * 4;
}

/// Returns whether a name is that of a bucket. Bucket names contain a dot, parameter names do not.
bool isBucketName(StringRef name) { return name.contains('.'); }

class RegionLayout {
public:
  explicit RegionLayout(ModuleOp module) : module(module), context(module.getContext()) {
    sizes.guardBytes = guardBytes(module);
  }

  /// Lays out the inputs of training. All functions of training read inputs of one shape, [batch, seq] with four bytes
  /// per element.
  void placeInputs() {
    uint64_t bytes = 0;
    std::set<StringRef> read;
    module.walk([&](func::FuncOp function) {
      for (BlockArgument argument : function.getArguments())
        if (role(function, argument) == "input") {
          bytes = bytesOf(argument.getType());
          if (auto name = model::nameAttr.ofArgument(function, argument.getArgNumber()))
            read.insert(name.getValue());
        }
    });
    for (const rt::ModelInput &input : rt::modelInputs)
      if (input.isAlwaysPlaced || read.contains(input.name))
        placeInput(std::string(input.name), bytes);
  }

  LogicalResult place(func::FuncOp function) {
    if (function.getName().starts_with("step."))
      return success();
    auto [kind, phase] = function.getName().split('.');
    segment = exec::findSegment(module, kind);
    if (!segment)
      return function.emitError("needs an exec.segment of kind '") << kind << "', which form-buckets lists";
    policy = phase.split('.').first;
    for (BlockArgument argument : function.getArguments()) {
      unsigned index = argument.getArgNumber();
      if (!isKnown(function.getArgAttrDict(index)))
        return emitError(argument.getLoc()) << unknownText << " argument " << index << " of @" << function.getSymName();
      for (NamedAttribute attribute : describe(function.getArgAttrDict(index), argument.getType()))
        function.setArgAttr(index, attribute.getName(), attribute.getValue());
    }
    for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
      if (!isKnown(function.getResultAttrDict(index)))
        return function.emitError(unknownText) << " result " << index << " of @" << function.getSymName();
      for (NamedAttribute attribute : describe(function.getResultAttrDict(index), type))
        function.setResultAttr(index, attribute.getName(), attribute.getValue());
    }
    return success();
  }

  /// Lists the laid-out regions as ops.
  void write() {
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    auto add = [&](exec::Region region, StringRef holds, uint64_t offset, uint64_t bytes) {
      b.create<exec::RegionOp>(module.getLoc(), exec::stringifyRegion(region), holds, offset, bytes);
    };
    std::vector<std::pair<std::string, RegionSizes::Input>> inputs(sizes.inputs.begin(), sizes.inputs.end());
    llvm::sort(inputs, [](const auto &a, const auto &b) {
      return std::tie(a.second.offset, a.first) < std::tie(b.second.offset, b.first);
    });
    for (const auto &[name, input] : inputs)
      add(exec::Region::Inputs, name, input.offset, input.bytes);
    for (const auto &[key, bytes] : sizes.savedBytes)
      add(*exec::symbolizeRegion(key.second), key.first, 0, bytes);
    add(exec::Region::StreamIn, "stream", 0, sizes.streamBytes);
    for (const auto &[kind, bytes] : sizes.cacheBytes)
      add(exec::Region::Cache, kind, 0, bytes);
    if (sizes.logitsBytes > 0)
      add(exec::Region::Logits, "logits", 0, sizes.logitsBytes);
  }

private:
  /// Returns the input's offset in a slot of the inputs. Allocates it at the first use.
  uint64_t placeInput(const std::string &name, uint64_t bytes) {
    auto [entry, isNew] = sizes.inputs.try_emplace(name, RegionSizes::Input{sizes.inputBytes, bytes});
    if (isNew)
      sizes.inputBytes += alignUp(bytes, sizes.guardBytes);
    return entry->second.offset;
  }

  static StringRef role(func::FuncOp function, BlockArgument argument) {
    auto role = model::roleAttr.ofArgument(function, argument.getArgNumber());
    return role ? role.getValue() : "";
  }

  bool isGeneration() const { return policy == "prefill" || policy == "decode"; }

  static constexpr const char *unknownText =
      "needs model.role and the model.name of something that exec.segment lists, at";

  /// Returns whether an argument or result has a role and name that `describe` can handle.
  bool isKnown(DictionaryAttr attributes) {
    auto role = model::roleAttr.in(attributes);
    auto name = model::nameAttr.in(attributes);
    if (!role || !name)
      return false;
    if (role == "input")
      return isGeneration() || rt::modelInput(name.getValue());
    if (role.getValue().starts_with("saved"))
      return exec::symbolizeRegion(role.getValue()).has_value();
    if (role == "state" || role == "parameter" || role == "accumulator" || role == "scattered") {
      StringRef bucket = role == "state" ? name.getValue().rsplit('.').first : name.getValue();
      return isBucketName(bucket) ? bool(segment.bucket(bucket)) : bool(segment.parameter(bucket));
    }
    return true;
  }

  /// Returns the attributes of an argument or result, by its role.
  NamedAttrList describe(DictionaryAttr attributes, Type type) {
    StringRef role = cast<StringAttr>(attributes.get(model::roleAttr)).getValue();
    StringRef name = cast<StringAttr>(attributes.get(model::nameAttr)).getValue();
    Builder b(type.getContext());
    NamedAttrList list;
    auto offset = [&](uint64_t bytes) { list.set(exec::offsetAttr, b.getI64IntegerAttr(static_cast<int64_t>(bytes))); };
    auto value = [&](const std::string &text) { list.set(exec::valueAttr, b.getStringAttr(text)); };
    if (role == "parameter" || role == "accumulator" || role == "scattered") {
      describeBucket(role, name, list, exec::shareAttr.in(attributes));
    } else if (role == "state") {
      offset(stateOffset(segment, name));
      value(name.str());
    } else if (role == "cache" || role == "counter") {
      std::string kind = segment.getKind().str();
      uint64_t &end = sizes.cacheBytes[kind];
      auto [entry, isNew] = savedOffsets.try_emplace(kind + "/" + name.str(), end);
      if (isNew)
        end += alignUp(bytesOf(type), sizes.guardBytes);
      offset(entry->second);
      value(kind + "." + name.str());
    } else if (role == "logits") {
      sizes.logitsBytes = bytesOf(type);
      value("logits");
    } else if (role == "input" && isGeneration()) { // each phase has inputs of its own size
      std::string key = name.str() + "." + policy;
      offset(placeInput(key, bytesOf(type)));
      value(key);
    } else if (role == "input") {
      offset(sizes.inputs.at(name.str()).offset);
      value(name.str());
    } else if (role.starts_with("saved")) { // the phase that makes the values lists them first, in order
      std::string key = (segment.getKind() + "." + policy).str();
      uint64_t &bytes = sizes.savedBytes[{key, role.str()}];
      auto [entry, isNew] = savedOffsets.try_emplace(key + "/" + name.str(), bytes);
      if (isNew)
        bytes += alignUp(bytesOf(type), sizes.guardBytes);
      offset(entry->second);
      value(key + ".saved." + name.str());
    } else if (role == "stream" || role == "cotangent") {
      if (role == "stream")
        sizes.streamBytes = std::max(sizes.streamBytes, bytesOf(type));
      value(isGeneration() ? "stream." + policy : role.str());
    }
    return list;
  }

  void describeBucket(StringRef role, StringRef name, NamedAttrList &list, ArrayAttr share) {
    bool isStored = role == "parameter";
    if (!isBucketName(name))
      return describeParameter(isStored, segment.parameter(name), list);
    exec::BucketOp bucket = segment.bucket(name);
    bool isAdded = policy == "add" && !isStored, isScattered = role == "scattered";
    bool isWhole = isScattered || !(isStored ? bucket.getWholeStoredOffset() : bucket.getWholeGradientOffset());
    setPlace(list,
             isScattered ? *bucket.getWholeGradientOffset()
             : isStored  ? bucket.getStoredOffset()
                         : bucket.getGradientOffset(),
             isStored      ? storedValue(bucket)
             : isScattered ? scatteredValue(bucket)
             : isAdded     ? accumulatedValue(bucket)
                           : totalValue(bucket));
    Builder b(context);
    if (isScattered)
      list.set(exec::regionAttr, b.getStringAttr(exec::stringifyRegion(exec::Region::WholeGradients)));
    else if (isAdded)
      list.set(exec::bucketAttr, b.getI64IntegerAttr(bucket.getNumber() + 1));
    // The rank's shard of an unsharded buffer.
    if (share && isWhole)
      list.set(exec::partAttr, b.getI64IntegerAttr(exec::axisBits(share)));
  }

  /// Describes a parameter or its gradient at the address where layer calls access it.
  void describeParameter(bool isStored, exec::ParameterOp parameter, NamedAttrList &list) const {
    exec::BucketOp bucket = parameter.bucket();
    Builder b(context);
    std::string value = parameterValue(parameter);
    setPlace(list, isStored ? parameter.storedOffset() : parameter.gradientOffset(),
             isStored ? value : value + ".gradient");
    if (isStored ? bucket.getWholeStoredOffset() : bucket.getWholeGradientOffset())
      list.set(exec::regionAttr, b.getStringAttr(exec::stringifyRegion(isStored ? exec::Region::WholeParameters
                                                                                : exec::Region::WholeGradients)));
    if (!isStored)
      list.set(exec::bucketAttr, b.getI64IntegerAttr(bucket.getNumber() + 1));
  }

  void setPlace(NamedAttrList &list, uint64_t offset, const std::string &value) const {
    Builder b(context);
    list.set(exec::offsetAttr, b.getI64IntegerAttr(static_cast<int64_t>(offset)));
    list.set(exec::valueAttr, b.getStringAttr(value));
  }

  ModuleOp module;
  MLIRContext *context;
  exec::SegmentOp segment;
  RegionSizes sizes;
  std::string policy;
  std::map<std::string, uint64_t> savedOffsets;
};

struct LayOutRegionsPass : impl::LayOutRegionsBase<LayOutRegionsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    RegionLayout layout(module);
    if (!exec::generates(module))
      layout.placeInputs();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(layout.place(function)))
        return signalPassFailure();
    layout.write();
  }
};

} // namespace

RegionSizes readRegions(ModuleOp module) {
  RegionSizes sizes;
  sizes.guardBytes = guardBytes(module);
  for (auto op : module.getOps<exec::RegionOp>()) {
    exec::Region region = *exec::symbolizeRegion(op.getRegion());
    std::string holds = op.getHolds().str();
    uint64_t offset = op.getOffset(), bytes = op.getBytes();
    if (region == exec::Region::Inputs) {
      sizes.inputs[holds] = {offset, bytes};
      sizes.inputBytes = std::max(sizes.inputBytes, offset + alignUp(bytes, sizes.guardBytes));
    } else if (region == exec::Region::StreamIn) {
      sizes.streamBytes = bytes;
    } else if (region == exec::Region::Cache) {
      sizes.cacheBytes[holds] = bytes;
    } else if (region == exec::Region::Logits) {
      sizes.logitsBytes = bytes;
    } else {
      sizes.savedBytes[{holds, op.getRegion().str()}] = bytes;
    }
  }
  return sizes;
}

} // namespace espalier
