#include "compiler/codegen/describe_kernel.h"

#include "compiler/codegen/body_terms.h"
#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "compiler/codegen/program_builder.h"
#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier::codegen {

namespace pb = rt::pb;

namespace {

/// Factors of what an operand reaches, as the plan numbers them: the extent, or a scalar.
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
  pb::Operand &sum(pb::DataType type, const Reach &reach) {
    pb::Operand &operand = write(type, reach);
    operand.set_reduces(true);
    return operand;
  }
  /// Unless the kernel's parameters say otherwise it overwrites; `first` is the scalar that goes with `accumulate`.
  pb::Operand &store(pb::DataType type, const Reach &reach, cuda::Destination destination, unsigned first) {
    pb::Operand &operand = sum(type, reach);
    if (destination != cuda::Destination::Overwrite)
      operand.set_access(pb::Operand::ADD);
    if (destination == cuda::Destination::AddUnlessFirst) {
      operand.set_unless(scalar(first));
      use(first, pb::Kernel::FIRST);
    }
    return operand;
  }
  /// What a scalar is, if no size.
  void use(unsigned index, pb::Kernel::Scalar what) {
    while (message.uses_size() <= static_cast<int>(index))
      message.add_uses(pb::Kernel::SIZE);
    message.set_uses(static_cast<int>(index), what);
  }
  /// The operand that was added last is the table of which the scalar says where its rows begin.
  void isTable(unsigned firstRow) {
    message.set_space(static_cast<uint32_t>(message.operands_size()));
    use(firstRow, pb::Kernel::FIRST_ROW);
  }

  pb::Kernel &message;
};

pb::DataType elementOf(Value value) { return dataType(cast<RankedTensorType>(value.getType()).getElementType()); }

/// Of an operand of a generated kernel: rows times columns, or what its terms walk over. Scalar 0 are the columns of a
/// row, scalar 1 of column kernels the rows; flat kernels have one row, whose columns are the extent.
Reach reachOf(const KernelShape &shape, const Access &access, int firstTerm) {
  uint32_t columns = shape.kind == "flat" ? extent : scalar(0);
  Reach reach;
  if (access.isDense && shape.kind != "flat")
    reach.push_back(shape.kind == "column" ? scalar(1) : extent);
  for (unsigned term = 0; term < access.terms.size(); ++term)
    reach.push_back(scalar(firstTerm + 3 * term + 1)); // its modulus
  if (access.columns)
    reach.push_back(columns);
  return reach;
}

/// Says what the kernel uses its scalars for.
void describeUses(const KernelShape &shape, pb::Kernel &kernel) {
  kernel.mutable_uses()->Resize(static_cast<int>(shape.scalars.size()), pb::Kernel::SIZE);
  auto use = [&](int scalar, pb::Kernel::Scalar what) { kernel.set_uses(scalar, what); };
  if (shape.kind == "column")
    use(2, pb::Kernel::BLOCK_ROWS);
  for (auto [access, first] : llvm::zip_equal(shape.operands, shape.operandScalar))
    for (unsigned term = 0; term < access.terms.size(); ++term)
      use(first + 3 * static_cast<int>(term), pb::Kernel::DIVISOR);
  for (Operation &op : shape.body->without_terminator()) {
    int first = shape.firstScalar.lookup(&op);
    if (isa<model::MaskTailOp, model::PickOp, model::PickGradOp>(op))
      use(first, pb::Kernel::NUMBER);
    else if (auto accumulate = dyn_cast<model::AccumulateOp>(op); accumulate && !accumulate.getAlways())
      use(first, pb::Kernel::FIRST);
    else if (isa<model::DropoutOp>(op)) {
      // Seed, stream, first sample, rows of a sample, first element; then divisor, modulus and stride of each term.
      for (auto what : {pb::Kernel::NUMBER, pb::Kernel::NUMBER, pb::Kernel::NUMBER, pb::Kernel::DIVISOR,
                        pb::Kernel::NUMBER})
        use(first++, what);
      for (size_t i = 0; i < shape.dropoutTerms.lookup(&op).size(); ++i)
        for (auto what : {pb::Kernel::DIVISOR, pb::Kernel::DIVISOR, pb::Kernel::NUMBER})
          use(first++, what);
    }
  }
}

/// What a result reaches: of sums over rows there is a row per block.
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
  SmallVector<int> numbers; // of the operands' buffers
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
    pb::Operand &operand =
        kernel.write(isSummed ? pb::F32 : elementOf(stored[index]), reachOfOutput(shape, index));
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
  describeUses(shape, kernel.message);
}

void describeAttention(exec::KernelOp op, Description &kernel) {
  using namespace cuda;
  pb::DataType type = dataType(typeParameter(op, "type"));
  Reach queries = {scalar(Batch), scalar(Queries), scalar(KvHeads), scalar(Group), scalar(HeadDim)};
  Reach keys = {scalar(Batch), scalar(Keys), scalar(KvHeads), scalar(HeadDim)};
  Reach rows(ArrayRef(queries).drop_back());
  for (const Reach &reach : {queries, keys, keys})
    kernel.read(type, reach);
  bool isForward = op.getShape() == "attention_forward";
  if (!isForward) {
    kernel.read(pb::F32, rows); // lse
    kernel.read(type, queries).set_linear(1); // dout
    bool ofQueries = op.getShape() == "attention_query_gradient";
    kernel.read(ofQueries ? type : pb::F32, ofQueries ? queries : rows); // out, or delta
  }
  kernel.read(pb::I32, {}).set_slot(rt::Step + 1);
  kernel.message.set_space(1);
  unsigned next = FirstPosition;
  for (auto use : {pb::Kernel::FIRST_QUERY, pb::Kernel::STREAM, pb::Kernel::FIRST_SAMPLE, pb::Kernel::FIRST_HEAD,
                   pb::Kernel::WHOLE_SEQUENCE, pb::Kernel::SEED})
    kernel.use(next++, use);
  if (isForward) {
    kernel.write(type, queries);
    kernel.write(pb::F32, rows);
  } else if (op.getShape() == "attention_query_gradient") {
    kernel.write(type, queries).set_linear(1);
    kernel.write(pb::F32, rows); // delta
  } else {
    for (int i = 0; i < 2; ++i)
      kernel.sum(type, keys).set_linear(1);
  }
}

/// A cache is kept but for the rows that are written: as a whole it is the same value afterwards.
void describeCache(exec::KernelOp op, Description &kernel) {
  using namespace cuda;
  pb::DataType type = dataType(typeParameter(op, "type"));
  Reach tokens = {scalar(CacheBatch), scalar(CacheTokens)};
  Reach cache = {scalar(CacheBatch), scalar(CacheKvHeads), scalar(CacheContext), scalar(CacheHeadDim)};
  Reach rows = {extent, scalar(CacheHeadDim)};
  bool keeps = op.getShape() == "keep_rows";
  for (int i = 0; i < (keeps ? 2 : 1); ++i)
    kernel.read(type, rows);
  kernel.read(pb::I32, tokens);
  for (int i = 0; i < 2; ++i)
    kernel.add(keeps ? pb::Operand::UPDATE : pb::Operand::READ, type, cache);
  if (!keeps)
    kernel.write(type, rows);
}

void describeTakeRow(exec::KernelOp op, Description &kernel) {
  pb::DataType type = dataType(cuda::typeParameter(op, "type"));
  kernel.read(type, {extent, scalar(0), scalar(1)});
  kernel.read(pb::I32, {extent});
  kernel.write(type, {extent, scalar(1)});
}

void describeEmbed(exec::KernelOp op, Description &kernel) {
  kernel.read(dataType(cuda::typeParameter(op, "from")), {scalar(1), scalar(2)}).set_linear(1);
  kernel.isTable(/*firstRow=*/0);
  kernel.read(pb::I32, {extent});
  kernel.sum(dataType(cuda::typeParameter(op, "to")), {extent, scalar(2)}).set_linear(1);
}

/// The table's gradient has one term of the three kernels: order_tokens begins it, the others go on with it.
void describeOrderTokens(exec::KernelOp op, Description &kernel) {
  kernel.read(pb::I32, {scalar(3)});
  kernel.write(pb::I32, {scalar(3)});
  kernel.store(pb::F32, {scalar(1), scalar(2)}, cuda::destinationOf(op), /*first=*/4);
  kernel.isTable(/*firstRow=*/0);
}

void describeSegments(exec::KernelOp op, Description &kernel) {
  Reach partial = {extent, scalar(4), scalar(0)}, table = {scalar(3), scalar(0)};
  for (int i = 0; i < 2; ++i)
    kernel.read(pb::I32, {scalar(2)});
  if (op.getShape() == "join_segments") {
    kernel.read(pb::F32, partial).set_linear(1);
  } else {
    kernel.read(dataType(cuda::typeParameter(op, "type")), {scalar(2), scalar(0)}).set_linear(1);
    kernel.write(pb::F32, partial).set_linear(1);
  }
  pb::Operand &sum = kernel.sum(pb::F32, table);
  sum.set_access(pb::Operand::UPDATE);
  sum.set_linear(1);
  kernel.isTable(/*firstRow=*/1);
}

void describeRoute(exec::KernelOp op, Description &kernel) {
  using namespace cuda;
  Reach places = {scalar(RouteChoices), scalar(RouteBatch), scalar(RouteSeq)};
  if (op.getShape() == "choose_experts")
    kernel.read(dataType(typeParameter(op, "type")), {extent, scalar(RouteExperts)});
  else
    kernel.read(pb::I32, places);
  kernel.write(pb::I32, places);
}

/// find_rows, dispatch and combine, of which the last writes rows of tokens.
void describeMove(exec::KernelOp op, Description &kernel) {
  using namespace cuda;
  Reach places = {scalar(MoveChoices), scalar(MoveBatch), scalar(MoveSeq)}, tokens = places;
  Reach experts = {scalar(MoveExperts), scalar(MoveBatch), scalar(MoveCapacity), scalar(MoveHidden)};
  auto type = [&](StringRef name) { return dataType(typeParameter(op, name)); };
  bool isDispatch = op.getShape() == "dispatch";
  if (isDispatch)
    kernel.read(pb::I32, {extent});
  else
    for (int i = 0; i < 2; ++i)
      kernel.read(pb::I32, places);
  if (op.getShape() == "find_rows") {
    kernel.write(pb::I32, {extent, scalar(MoveCapacity)});
    return;
  }
  if (!op.getParameters()->contains("has_choice"))
    tokens.erase(tokens.begin());
  tokens.push_back(scalar(MoveHidden));
  kernel.read(type("from"), isDispatch ? tokens : experts).set_linear(1);
  if (op.getParameters()->contains("weights"))
    kernel.read(type("weights"), places);
  kernel.write(type("to"), {extent, scalar(MoveHidden)}).set_linear(1);
}

void describeRope(exec::KernelOp op, Description &kernel) {
  kernel.read(dataType(cuda::typeParameter(op, "from")), {extent, scalar(0), scalar(1)}).set_linear(1);
  kernel.read(pb::I32, {extent});
  kernel.write(dataType(cuda::typeParameter(op, "to")), {extent, scalar(0), scalar(1)}).set_linear(1);
}

void describeSquareBlocks(exec::KernelOp, Description &kernel) {
  kernel.read(pb::F32, {scalar(0)});
  kernel.write(pb::F32, {extent, scalar(2)});
  kernel.use(1, pb::Kernel::BLOCK_ROWS);
}

void describeAddSquares(exec::KernelOp op, Description &kernel) {
  kernel.read(pb::F32, {scalar(0), scalar(1)});
  kernel.add(pb::Operand::ADD, pb::F32, {extent});
  kernel.message.set_norm_weight(cuda::realParameter(op, "weight"));
}

void describeReduceParts(exec::KernelOp op, Description &kernel) {
  int64_t sums = cuda::integerParameter(op, "buffers") / 2;
  for (int64_t sum = 0; sum < sums; ++sum)
    kernel.read(pb::F32, {scalar(2), scalar(1)}).set_linear(static_cast<uint32_t>(sum) + 1);
  for (int64_t sum = 0; sum < sums; ++sum)
    kernel.store(pb::F32, {extent}, cuda::destinationOf(op), /*first=*/3).set_linear(static_cast<uint32_t>(sum) + 1);
}

void describeUpdateScalars(exec::KernelOp, Description &kernel) {
  for (uint32_t slot : {rt::LossSum, rt::TokenCount, rt::SquaredNorm, rt::LossScale})
    kernel.read(pb::F32, {}).set_slot(slot + 1);
  for (uint32_t slot : {rt::GradientScale, rt::Apply})
    kernel.write(pb::F32, {extent}).set_slot(slot + 1);
}

using Describe = void (*)(exec::KernelOp, Description &);

Describe describerOf(StringRef shape) {
  static const llvm::StringMap<Describe> describers = {{"attention_forward", describeAttention},
                                                       {"attention_key_gradient", describeAttention},
                                                       {"attention_query_gradient", describeAttention},
                                                       {"keep_rows", describeCache},
                                                       {"attend_cache", describeCache},
                                                       {"take_row", describeTakeRow},
                                                       {"embed", describeEmbed},
                                                       {"order_tokens", describeOrderTokens},
                                                       {"sum_segments", describeSegments},
                                                       {"join_segments", describeSegments},
                                                       {"choose_experts", describeRoute},
                                                       {"give_slots", describeRoute},
                                                       {"find_rows", describeMove},
                                                       {"dispatch", describeMove},
                                                       {"combine", describeMove},
                                                       {"rope", describeRope},
                                                       {"square_blocks", describeSquareBlocks},
                                                       {"add_squares", describeAddSquares},
                                                       {"reduce_parts", describeReduceParts},
                                                       {"update_scalars", describeUpdateScalars}};
  return describers.lookup(shape);
}

} // namespace

pb::DataType dataType(Type element) {
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

void describeKernel(exec::KernelOp kernel, pb::Kernel &message) {
  Description description(message);
  if (Describe describe = describerOf(kernel.getShape())) {
    describe(kernel, description);
    message.set_scalars(cuda::integerParameter(kernel, "scalars"));
    message.mutable_uses()->Resize(static_cast<int>(message.scalars()), pb::Kernel::SIZE);
    assert(message.operands_size() == cuda::integerParameter(kernel, "buffers") && "operands as its launches have");
    return;
  }
  auto shape = analyzeKernel(kernel.getBody().front(), kernel.getShape(), kernel.getSplit());
  assert(succeeded(shape) && "made from a body that was analyzed");
  describeShape(*shape, description);
}

} // namespace espalier::codegen
