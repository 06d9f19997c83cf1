// The registration of the dist dialect, the syntax of its attributes and its verifiers.
#include "dialects/dist/dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/dist/dialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/dist/attrs.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/dist/ops.cpp.inc"

namespace espalier::dist {

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/dist/attrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/ops.cpp.inc"
      >();
}

namespace {

/// Parses `{dp, ep}` into string attributes.
ParseResult parseAxes(AsmParser &parser, SmallVectorImpl<StringAttr> &axes) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, [&]() -> ParseResult {
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    axes.push_back(StringAttr::get(parser.getContext(), keyword));
    return success();
  });
}

/// Parses `<name SEPARATOR integer, ...>`.
ParseResult parsePairs(AsmParser &parser, function_ref<ParseResult()> separator, SmallVectorImpl<StringAttr> &names,
                       SmallVectorImpl<int64_t> &numbers) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, [&]() -> ParseResult {
    StringRef keyword;
    int64_t number = 0;
    if (parser.parseKeyword(&keyword) || separator() || parser.parseInteger(number))
      return failure();
    names.push_back(StringAttr::get(parser.getContext(), keyword));
    numbers.push_back(number);
    return success();
  });
}

template <typename Range> void printAxes(AsmPrinter &printer, Range axes) {
  printer << "{";
  llvm::interleaveComma(axes, printer, [&](Attribute axis) { printer << cast<StringAttr>(axis).getValue(); });
  printer << "}";
}

} // namespace

// #dist.mesh<pp = 2, dp = 2, tp = 2>
Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> sizes;
  if (parsePairs(parser, [&] { return parser.parseEqual(); }, axes, sizes))
    return {};
  return MeshAttr::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), axes, sizes);
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(llvm::zip_equal(getAxes(), getSizes()), printer,
                        [&](auto pair) { printer << std::get<0>(pair).getValue() << " = " << std::get<1>(pair); });
  printer << ">";
}

LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<StringAttr> axes,
                               ArrayRef<int64_t> sizes) {
  for (auto [axis, size] : llvm::zip_equal(axes, sizes))
    if (size < 1)
      return emitError() << "needs axis sizes of at least 1, got " << size << " for " << axis;
  return success();
}

int64_t MeshAttr::size(StringRef name) const {
  for (auto [axis, size] : llvm::zip_equal(getAxes(), getSizes()))
    if (axis == name)
      return size;
  return 1;
}

int64_t MeshAttr::size(ArrayRef<StringAttr> names) const {
  int64_t product = 1;
  for (StringAttr name : names)
    product *= size(name.getValue());
  return product;
}

// #dist.sharding<[{dp}, {tp}, {}], partial = {tp}>
Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<ArrayAttr> dims;
  SmallVector<StringAttr> partial;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<StringAttr> axes;
    if (parseAxes(parser, axes))
      return failure();
    dims.push_back(ArrayAttr::get(parser.getContext(), SmallVector<Attribute>(axes.begin(), axes.end())));
    return success();
  };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  if (succeeded(parser.parseOptionalComma()) &&
      (parser.parseKeyword("partial") || parser.parseEqual() || parseAxes(parser, partial)))
    return {};
  if (parser.parseGreater())
    return {};
  return ShardingAttr::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), dims,
                                  partial);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getDims(), printer, [&](ArrayAttr axes) { printAxes(printer, axes); });
  printer << "]";
  if (!getPartial().empty()) {
    printer << ", partial = ";
    printAxes(printer, getPartial());
  }
  printer << ">";
}

LogicalResult ShardingAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<ArrayAttr> dims,
                                   ArrayRef<StringAttr> partial) {
  SmallVector<Attribute> seen(partial.begin(), partial.end());
  for (ArrayAttr axes : dims)
    llvm::append_range(seen, axes);
  for (size_t i = 0; i < seen.size(); ++i)
    if (llvm::is_contained(ArrayRef(seen).drop_front(i + 1), seen[i]))
      return emitError() << "needs each axis at most once, got " << seen[i] << " twice";
  return success();
}

// #dist.origin<dp * 4, tp * 2>
Attribute OriginAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> strides;
  if (parsePairs(parser, [&] { return parser.parseStar(); }, axes, strides))
    return {};
  return OriginAttr::get(parser.getContext(), axes, strides);
}

void OriginAttr::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(llvm::zip_equal(getAxes(), getStrides()), printer,
                        [&](auto pair) { printer << std::get<0>(pair).getValue() << " * " << std::get<1>(pair); });
  printer << ">";
}

LogicalResult ReshardOp::verify() {
  auto rank = static_cast<size_t>(cast<RankedTensorType>(getX().getType()).getRank());
  if (getFrom().getDims().size() != rank || getTo().getDims().size() != rank) // reshard_c1
    return emitOpError("needs one sharding entry per dimension: tensor has ")
           << rank << ", shardings have " << getFrom().getDims().size() << " and " << getTo().getDims().size();
  if (getX().getType() != getType()) // reshard_c2
    return emitOpError("needs equal types, got ") << getX().getType() << " and " << getType();
  for (StringAttr axis : getTo().getPartial()) // reshard_c3
    if (!llvm::is_contained(getFrom().getPartial(), axis))
      return emitOpError("cannot make a value partial over ") << axis;
  return success();
}

/// Checks that all dimensions except `dim` are equal, and that `dim` of `large` is a multiple of `dim` of `small`.
static LogicalResult verifyMove(Operation *op, Type large, Type small, uint64_t dim, ArrayAttr axes) {
  if (axes.empty()) // collective_c1
    return op->emitOpError("needs at least one axis");
  auto a = cast<RankedTensorType>(large), b = cast<RankedTensorType>(small);
  bool fits = a.getRank() == b.getRank() && dim < static_cast<uint64_t>(a.getRank()) &&
              a.getElementType() == b.getElementType();
  for (int64_t i = 0; fits && i < a.getRank(); ++i) {
    bool isDim = static_cast<uint64_t>(i) == dim;
    fits = isDim ? b.getDimSize(i) && a.getDimSize(i) % b.getDimSize(i) == 0 : a.getDimSize(i) == b.getDimSize(i);
  }
  if (!fits) // collective_c2
    return op->emitOpError("needs types that differ in dimension ")
           << dim << " by a whole factor, got " << large << " and " << small;
  return success();
}

LogicalResult AllToAllOp::verify() {
  if (getAxes().empty()) // all_to_all_c1
    return emitOpError("needs at least one axis");
  auto from = cast<RankedTensorType>(getX().getType()), to = cast<RankedTensorType>(getType());
  uint64_t rank = from.getRank(), split = getSplit(), concat = getConcat();
  bool fits = from.getRank() == to.getRank() && split < rank && concat < rank && split != concat &&
              from.getElementType() == to.getElementType() && to.getDimSize(split) && from.getDimSize(concat);
  int64_t parts = fits ? from.getDimSize(split) / to.getDimSize(split) : 0;
  for (uint64_t i = 0; fits && i < rank; ++i)
    fits = i == split    ? to.getDimSize(i) * parts == from.getDimSize(i)
           : i == concat ? from.getDimSize(i) * parts == to.getDimSize(i)
                         : from.getDimSize(i) == to.getDimSize(i);
  if (!fits) // all_to_all_c2
    return emitOpError("needs types in which dimension ")
           << split << " shrinks and dimension " << concat << " grows by one factor, got " << from << " and " << to;
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (getAxes().empty()) // all_reduce_c1
    return emitOpError("needs at least one axis");
  if (getX().getType() != getType()) // all_reduce_c2
    return emitOpError("needs equal types, got ") << getX().getType() << " and " << getType();
  if (getReduction() != "sum" && getReduction() != "max") // all_reduce_c3
    return emitOpError("needs reduction sum or max, got ") << getReduction();
  return success();
}
LogicalResult AllGatherOp::verify() { return verifyMove(*this, getType(), getX().getType(), getDim(), getAxes()); }
LogicalResult ReduceScatterOp::verify() { return verifyMove(*this, getX().getType(), getType(), getDim(), getAxes()); }
LogicalResult SliceOp::verify() { return verifyMove(*this, getX().getType(), getType(), getDim(), getAxes()); }

} // namespace espalier::dist
