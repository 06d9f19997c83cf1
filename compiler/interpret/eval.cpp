// Evaluates a function op by op. The eval_*.cpp files compute the numbers of each op.
#include "compiler/interpret/eval.h"

#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace espalier {

namespace {

/// The most elements of a tensor. Larger tensors are refused before allocation, because the interpreter is for small
/// shapes.
constexpr int64_t maxElements = int64_t(1) << 28;

llvm::Error failure(Location location, const llvm::Twine &message) {
  std::string text;
  llvm::raw_string_ostream(text) << message << " at " << location;
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

llvm::Error checkType(Location location, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return failure(location, "needs tensors of static shape");
  int64_t elements = 1;
  for (int64_t size : tensor.getShape())
    if (size < 0 || (size && elements > maxElements / size))
      return failure(location, "tensor of more than " + llvm::Twine(maxElements) + " elements");
    else
      elements *= size;
  return llvm::Error::success();
}

EvaluatorTable buildTable() {
  EvaluatorTable table;
  addArithmetic(table);
  addIndexing(table);
  addRandom(table);
  addAttention(table);
  addRecurrences(table);
  addMixtureOfExperts(table);
  addCollectives(table);
  return table;
}

/// Computes each result element from one element of each operand.
std::vector<Tensor> evaluateElementwise(ElementwiseOp op, Operands x) {
  std::vector<Tensor> results;
  Tensor &result = results.emplace_back(cast<RankedTensorType>(op->getResult(0).getType()));
  ArrayRef<StringAttr> dims = dimNames(result.type);
  SmallVector<SmallVector<int64_t>> strides = {rowMajorStrides(result.shape())};
  for (const Tensor *operand : x)
    strides.push_back(stridesAlong(operand->type, dims));
  SmallVector<double> numbers(x.size());
  forEachIndex(result.shape(), strides, [&](ArrayRef<int64_t> at) {
    for (size_t i = 0; i < x.size(); ++i)
      numbers[i] = x[i]->values[at[i + 1]];
    result.values[at[0]] = op.evaluate(numbers);
  });
  return results;
}

Results evaluateOp(Operation &op, Operands operands, const EvaluatorTable &table, EvalContext &context) {
  for (Type type : op.getResultTypes())
    if (llvm::Error error = checkType(op.getLoc(), type))
      return error;
  const EvaluatorTable::Function *function = table.find(op.getName().getStringRef());
  if (!function && !isa<ElementwiseOp>(op))
    return failure(op.getLoc(), op.getName().getStringRef() + " has no evaluation");
  Results results =
      function ? (*function)(&op, operands, context) : Results(evaluateElementwise(cast<ElementwiseOp>(op), operands));
  if (!results)
    return failure(op.getLoc(), op.getName().getStringRef() + ": " + llvm::toString(results.takeError()));
  if (!context.isExact)
    for (Tensor &result : *results)
      roundToStorage(result);
  return results;
}

llvm::Error checkArguments(func::FuncOp function, ArrayRef<Tensor> arguments) {
  if (function.isExternal())
    return failure(function.getLoc(), "a function without body");
  if (arguments.size() != function.getNumArguments())
    return failure(function.getLoc(), function.getName() + " needs " + llvm::Twine(function.getNumArguments()) +
                                          " arguments, got " + llvm::Twine(arguments.size()));
  for (auto [index, argument] : llvm::enumerate(arguments))
    if (argument.type != function.getArgumentTypes()[index]) {
      std::string types;
      llvm::raw_string_ostream(types) << function.getArgumentTypes()[index] << ", got " << argument.type;
      return failure(function.getLoc(), function.getName() + ": argument " + llvm::Twine(index) + " needs " + types);
    }
  return llvm::Error::success();
}

} // namespace

int64_t EvalContext::coordinate(StringRef axis) const {
  if (axis == "micro_batch")
    return microBatch;
  for (const MeshPlace &place : mesh)
    if (place.axis == axis)
      return place.coordinate;
  return 0;
}

int64_t EvalContext::axisSize(StringRef axis) const {
  for (const MeshPlace &place : mesh)
    if (place.axis == axis)
      return place.size;
  return 1;
}

void EvalContext::placeOn(dist::MeshAttr attribute, int64_t newRank) {
  rank = static_cast<int>(newRank);
  mesh.clear();
  for (auto [axis, size] : llvm::zip_equal(attribute.getAxes(), attribute.getSizes()))
    mesh.push_back({axis.str(), size, 0});
  for (MeshPlace &place : llvm::reverse(mesh)) {
    place.coordinate = newRank % place.size;
    newRank /= place.size;
  }
}

int64_t originOf(Attribute attribute, const EvalContext &context) {
  auto origin = dyn_cast_or_null<dist::OriginAttr>(attribute);
  int64_t sum = 0;
  if (origin)
    for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides()))
      sum += context.coordinate(axis) * stride;
  return sum;
}

llvm::Expected<std::vector<Tensor>> evaluate(func::FuncOp function, ArrayRef<Tensor> arguments, EvalContext &context) {
  if (llvm::Error error = checkArguments(function, arguments))
    return error;
  EvaluatorTable table = buildTable();
  Block &body = function.getBody().front();
  std::map<void *, Tensor> values; // a std::map keeps addresses stable, so operands can be pointers
  for (auto [argument, value] : llvm::zip_equal(body.getArguments(), arguments))
    values.emplace(argument.getAsOpaquePointer(), value);
  auto operandsOf = [&](Operation &op) {
    SmallVector<const Tensor *> operands;
    for (Value operand : op.getOperands())
      operands.push_back(&values.at(operand.getAsOpaquePointer()));
    return operands;
  };
  for (Operation &op : body.without_terminator()) {
    Results results = evaluateOp(op, operandsOf(op), table, context);
    if (!results)
      return results.takeError();
    for (auto [result, value] : llvm::zip_equal(op.getResults(), *results))
      values.emplace(result.getAsOpaquePointer(), std::move(value));
  }
  std::vector<Tensor> returned;
  for (const Tensor *value : operandsOf(*body.getTerminator()))
    returned.push_back(*value);
  return returned;
}

} // namespace espalier
