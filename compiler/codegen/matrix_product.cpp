#include "compiler/codegen/matrix_product.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

using Names = MatrixProduct::Names;

bool isConcatenation(ArrayRef<StringAttr> whole, std::initializer_list<ArrayRef<StringAttr>> parts) {
  Names joined;
  for (ArrayRef<StringAttr> part : parts)
    llvm::append_range(joined, part);
  return whole == ArrayRef(joined);
}

/// Returns the names of `from` for which `keep` holds, in order.
Names namesWhere(Type from, function_ref<bool(StringAttr)> keep) {
  Names names;
  for (StringAttr name : dimNames(from))
    if (keep(name))
      names.push_back(name);
  return names;
}

} // namespace

bool MatrixProduct::orient() {
  ArrayRef<StringAttr> inA = dimNames(a.getType()), inB = dimNames(b.getType());
  transposeA = !isConcatenation(inA, {batch, m, k});
  transposeB = !isConcatenation(inB, {batch, k, n});
  return (!transposeA || isConcatenation(inA, {batch, k, m})) && (!transposeB || isConcatenation(inB, {batch, n, k}));
}

std::optional<MatrixProduct> collapse(Operation *op) {
  Type result = op->getResult(0).getType();
  auto has = [](Value value, StringAttr name) { return dimIndex(value.getType(), name) >= 0; };
  for (auto [a, b] :
       {std::pair(op->getOperand(0), op->getOperand(1)), std::pair(op->getOperand(1), op->getOperand(0))}) {
    MatrixProduct product{a, b, {}, {}, {}, {}};
    product.batch = namesWhere(result, [&](StringAttr name) { return has(a, name) && has(b, name); });
    product.m = namesWhere(result, [&](StringAttr name) { return has(a, name) && !has(b, name); });
    product.n = namesWhere(result, [&](StringAttr name) { return !has(a, name) && has(b, name); });
    product.k = namesWhere(a.getType(), [&](StringAttr name) { return dimIndex(result, name) < 0; });
    if (isConcatenation(dimNames(result), {product.batch, product.m, product.n}) && product.orient())
      return product;
  }
  return std::nullopt;
}

} // namespace espalier::codegen
