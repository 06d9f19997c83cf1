#include "compiler/codegen/describe_kernel.h"

#include "compiler/codegen/body_terms.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "compiler/codegen/program_builder.h"
#include "dialects/model/dialect.h"
#include "format/functions.h"
#include "format/plan_access.h"

using namespace mlir;

namespace espalier::codegen {

namespace pb = rt::pb;

namespace {

/// The factors of an operand's access extent, as the plan numbers them: 0 is the launch extent, i + 1 is scalar i.
using Reach = SmallVector<uint32_t>;
constexpr uint32_t extent = 0;
constexpr uint32_t scalar(unsigned index) { return index + 1; }

class Description {
public:
  explicit Description(pb::Kernel &message) : message(message) {}

  pb::Operand &add(pb::Operand::Access access, pb::DataType type, const Reach &reach) {
    pb::Operand &operand = *message.add_operands();
    operand.set_access(access);
    operand.set_type(type);
    operand.mutable_reach()->Add(reach.begin(), reach.end());
    return operand;
  }
  pb::Operand &read(pb::DataType type, const Reach &reach) { return add(pb::Operand::READ, type, reach); }
  pb::Operand &write(pb::DataType type, const Reach &reach) { return add(pb::Operand::WRITE, type, reach); }
  pb::Kernel &message;
};

pb::DataType elementOf(Value value) { return dataType(cast<RankedTensorType>(value.getType()).getElementType()); }

/// Returns the access extent of a generated kernel's operand: rows times columns, or the product of its terms' moduli.
/// Scalar 0 is the number of columns of a row. In column kernels, scalar 1 is the number of rows. Flat kernels have one
/// row, whose columns are the launch extent.
Reach reachOf(const KernelShape &shape, const Access &access, int firstTerm) {
  uint32_t columns = shape.kind == "flat" ? extent : scalar(0);
  Reach reach;
  if (access.isDense && shape.kind != "flat")
    reach.push_back(shape.kind == "column" ? scalar(1) : extent);
  for (unsigned term = 0; term < access.terms.size(); ++term)
    reach.push_back(scalar(firstTerm + 3 * term + 1)); // the term's modulus
  if (access.columns)
    reach.push_back(columns);
  return reach;
}

/// Returns the access extent of an output. A sum over rows has one row per block.
Reach reachOfOutput(const KernelShape &shape, unsigned output) {
  const Access &access = shape.outputs[output];
  if (shape.isSummed(output))
    return {extent, scalar(0)};
  Reach reach;
  if (access.isDense && shape.kind != "flat")
    reach.push_back(shape.kind == "column" ? scalar(1) : extent);
  if (access.columns)
    reach.push_back(shape.kind == "flat" ? extent : scalar(0));
  return reach;
}

void describeShape(const KernelShape &shape, Description &kernel) {
  SmallVector<int> numbers; // indices of the operands' buffers
  BodyTerms terms(shape);
  kernel.message.set_whole_columns(terms.needsWholeColumns);
  for (auto [index, access] : llvm::enumerate(shape.operands)) {
    numbers.push_back(shape.isAccumulator(index) ? -1 : kernel.message.operands_size());
    if (numbers.back() < 0)
      continue;
    Value argument = shape.body->getArgument(index);
    pb::Operand &operand = kernel.read(elementOf(argument), reachOf(shape, access, shape.operandScalar[index]));
    if (!access.terms.empty())
      operand.set_walk(scalar(static_cast<unsigned>(shape.operandScalar[index])));
    operand.set_linear(terms.arguments[index]);
  }
  for (int64_t slot : shape.slots)
    kernel.read(slot == rt::Step ? pb::I32 : pb::F32, {}).set_slot(static_cast<uint32_t>(slot) + 1);
  auto stored = shape.body->getTerminator()->getOperands();
  for (unsigned index = 0; index < shape.outputs.size(); ++index) {
    bool isSummed = shape.isSummed(index);
    pb::Operand &operand = kernel.write(isSummed ? pb::F32 : elementOf(stored[index]), reachOfOutput(shape, index));
    operand.set_linear(terms.results[index]);
    operand.set_reduces(terms.isReduced[index]);
    for (auto [input, number] : llvm::enumerate(numbers))
      if (number >= 0 && mayShare(shape, index, input))
        operand.add_over(number);
  }
  int first = kernel.message.operands_size() - static_cast<int>(shape.outputs.size());
  for (const Accumulation &sum : shape.accumulations) {
    pb::Operand &operand = *kernel.message.mutable_operands(first + static_cast<int>(sum.output));
    operand.set_access(pb::Operand::ADD);
    if (sum.scalar >= 0)
      operand.set_unless(scalar(sum.scalar));
  }
  kernel.message.set_scalars(shape.scalars.size());
  for (const KernelScalar &scalar : shape.scalars)
    kernel.message.add_uses(scalar.use);
}

/// Describes a kernel of a library call from its row in format/functions.def and its parameters.
class RowDescription {
public:
  RowDescription(exec::KernelOp kernel, const rt::KernelSignature &row, pb::Kernel &message)
      : kernel(kernel), row(row), message(message) {}

  void describe() {
    for (const rt::OperandSignature *operand : rt::operandsOf(row, cuda::integerParameter(kernel, "buffers")))
      describe(*operand);
    message.set_scalars(cuda::integerParameter(kernel, "scalars"));
    for (uint32_t i = 0; i < message.scalars(); ++i) {
      pb::Kernel::Scalar kind = pb::Kernel::SIZE;
      pb::Kernel::Scalar_Parse(row.scalars[i].name, &kind);
      message.add_uses(kind);
    }
    if (!row.norm.empty())
      message.set_norm_weight(cuda::realParameter(kernel, row.norm));
    assert(message.operands_size() == cuda::integerParameter(kernel, "buffers") && "operands as its launches have");
  }

private:
  void describe(const rt::OperandSignature &operand) {
    pb::Operand &made = *message.add_operands();
    made.set_type(typeOf(operand));
    made.set_access(rt::planAccess(operand.access, cuda::destinationOf(kernel) == cuda::Destination::Overwrite));
    if (operand.isStored() && cuda::destinationOf(kernel) == cuda::Destination::AddUnlessFirst)
      made.set_unless(scalar(*row.findScalar("FIRST")));
    addReach(operand, made);
    uint32_t time = ++times[operand.name]; // repeated operands that belong together have the same number
    if (operand.isLinear)
      made.set_linear(time);
    made.set_reduces(operand.isSum);
    if (operand.isSlot)
      made.set_slot(*rt::findSlot(operand.name) + 1);
    if (operand.name == row.space)
      message.set_space(static_cast<uint32_t>(message.operands_size()));
  }

  pb::DataType typeOf(const rt::OperandSignature &operand) {
    if (operand.type == 's' || operand.type == 'i')
      return operand.type == 's' ? pb::F32 : pb::I32;
    return dataType(cuda::typeParameter(kernel, operand.type == 'f' ? StringRef(operand.name) : "type"));
  }

  /// Adds the launch extent for the leading dims that it covers, and a scalar for each other dim.
  void addReach(const rt::OperandSignature &operand, pb::Operand &made) {
    ArrayRef<rt::SignatureDim> dims = operand.dims;
    if (row.reachesByExtent(operand)) {
      made.add_reach(extent);
      dims = dims.drop_front(row.extent.size());
    }
    for (const rt::SignatureDim &dim : dims)
      if (!dim.isOne() && (dim.flag.empty() || kernel.getParameters()->contains(dim.flag)))
        made.add_reach(scalar(scalarOf(dim.name)));
  }

  /// Returns the index of the scalar with this size. A launch omits an optional size that equals its default.
  size_t scalarOf(StringRef size) {
    size_t index = *row.findScalar(size.str());
    bool isOmitted = static_cast<int64_t>(index) >= cuda::integerParameter(kernel, "scalars");
    return isOmitted ? *row.findScalar(row.function->sizes[*row.function->findSize(size.str())].initial) : index;
  }

  exec::KernelOp kernel;
  const rt::KernelSignature &row;
  pb::Kernel &message;
  llvm::StringMap<uint32_t> times;
};

} // namespace

pb::DataType dataType(Type element) {
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

void describeKernel(exec::KernelOp kernel, pb::Kernel &message) {
  if (const rt::KernelSignature *row = rt::findKernel(kernel.getShape()))
    return RowDescription(kernel, *row, message).describe();
  auto shape = analyzeKernel(kernel.getBody().front(), kernel.getShape(), kernel.getSplit());
  assert(succeeded(shape) && "made from a body that was analyzed");
  Description description(message);
  describeShape(*shape, description);
}

} // namespace espalier::codegen
