#include "compiler/partition/layout.h"

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace espalier {

Sharding::Sharding(dist::ShardingAttr attribute) : partial(attribute.getPartial()) {
  for (ArrayAttr axes : attribute.getDims())
    dims.emplace_back(axes.getAsRange<StringAttr>());
}

dist::ShardingAttr Sharding::attribute(MLIRContext *context) const {
  SmallVector<ArrayAttr> arrays;
  for (const Axes &axes : dims)
    arrays.push_back(ArrayAttr::get(context, SmallVector<Attribute>(axes.begin(), axes.end())));
  return dist::ShardingAttr::get(context, arrays, partial);
}

Layout::Layout(ModuleOp module) {
  meshAttribute = dist::meshAttr.of(module);
  if (!meshAttribute)
    meshAttribute = dist::MeshAttr::get(module.getContext(), {}, {});
  sequenceParallel = dist::sequenceParallelAttr.isOn(module);
  zigzag = dist::zigzagAttr.isOn(module);
  if (auto dims = dist::dimsAttr.of(module))
    for (NamedAttribute entry : dims)
      for (StringAttr axis : cast<ArrayAttr>(entry.getValue()).getAsRange<StringAttr>())
        if (meshAttribute.size(axis.getValue()) > 1)
          axesOfDim[entry.getName()].push_back(axis);
}

ArrayRef<StringAttr> Layout::axesOf(StringRef dim) const {
  auto found = axesOfDim.find(StringAttr::get(meshAttribute.getContext(), dim));
  return found == axesOfDim.end() ? ArrayRef<StringAttr>() : ArrayRef<StringAttr>(found->second);
}

Axes Layout::inMeshOrder(const Axes &axes) const {
  Axes ordered;
  for (StringAttr axis : meshAttribute.getAxes())
    if (llvm::is_contained(axes, axis))
      ordered.push_back(axis);
  return ordered;
}

Sharding Layout::byDimension(Type type) const {
  Sharding sharding;
  for (StringAttr dim : dimNames(type))
    sharding.dims.push_back(axesOfDim.lookup(dim));
  for (size_t dim = 0; dim < sharding.dims.size(); ++dim)
    if (dimNames(type)[dim] == "batch" || dimNames(type)[dim] == "capacity")
      llvm::erase_if(sharding.dims[dim], [&](StringAttr axis) {
        return llvm::any_of(llvm::enumerate(sharding.dims), [&](auto other) {
          return other.index() != dim && llvm::is_contained(other.value(), axis);
        });
      });
  return sharding;
}

Sharding Layout::nominal(Type type) const {
  Sharding sharding = byDimension(type);
  ArrayRef<StringAttr> dims = dimNames(type);
  bool isStream = dims.size() == 3 && dims[0] == "batch" && dims[1] == "seq" && dims[2] == "hidden";
  if (isStream && sequenceParallel && meshAttribute.size("tp") > 1)
    sharding.dims[1].push_back(StringAttr::get(type.getContext(), "tp"));
  return sharding;
}

Sharding Layout::argument(Type type, StringRef role) const {
  return role == "stream" || role == "cotangent" ? nominal(type) : byDimension(type);
}

RankedTensorType Layout::localType(Type global, const Sharding &sharding) const {
  auto type = cast<RankedTensorType>(global);
  SmallVector<int64_t> shape(type.getShape());
  for (auto [size, axes] : llvm::zip_equal(shape, sharding.dims))
    size /= this->size(axes);
  return namedTensor(shape, dimNames(type), type.getElementType());
}

Sharding shardingOf(Value value) {
  size_t rank = cast<RankedTensorType>(value.getType()).getRank();
  dist::ShardingAttr attribute;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
    attribute = dist::shardingAttr.ofArgument(function, argument.getArgNumber());
  } else if (auto reshard = value.getDefiningOp<dist::ReshardOp>()) {
    attribute = reshard.getTo();
  } else if (auto all = dist::shardingsAttr.of(value.getDefiningOp())) {
    attribute = cast<dist::ShardingAttr>(all[cast<OpResult>(value).getResultNumber()]);
  }
  return attribute ? Sharding(attribute) : Sharding(rank);
}

llvm::DenseSet<Operation *> backwardOps(Block &body) {
  llvm::DenseSet<Operation *> backward;
  for (Operation &op : body.without_terminator()) {
    bool isBackward = isa<model::CotangentOp>(op);
    for (Value operand : op.getOperands())
      isBackward |= operand.getDefiningOp() && backward.contains(operand.getDefiningOp());
    if (isBackward)
      backward.insert(&op);
  }
  return backward;
}

} // namespace espalier
