// The registration of the model dialect and the syntax of #model.dims.
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/model/dialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/model/attrs.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/model/ops.cpp.inc"

namespace espalier::model {

void ModelDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/model/attrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/model/ops.cpp.inc"
      >();
}

Attribute DimsAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> names;
  auto parseName = [&]() -> ParseResult {
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    names.push_back(StringAttr::get(parser.getContext(), keyword));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, parseName))
    return {};
  return DimsAttr::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), names);
}

void DimsAttr::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(getNames(), printer, [&](StringAttr name) { printer << name.getValue(); });
  printer << ">";
}

LogicalResult DimsAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<StringAttr> names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (llvm::is_contained(names.drop_front(i + 1), names[i]))
      return emitError() << "needs distinct dimension names, got " << names[i] << " twice";
  return success();
}

} // namespace espalier::model
