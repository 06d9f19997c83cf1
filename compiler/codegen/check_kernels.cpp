// A kernel's sizes are run-time scalars. Its body with small dimensions therefore has the same code (the same key) and
// different scalars. The rounding bound assumes that the kernel computes in f32 with one rounding of 2^-23 per op and
// per term of a sum, relative to the largest value that occurs. Results of 16 bits are rounded once more when they are
// stored.
#include "compiler/codegen/check_kernels.h"

#include "compiler/codegen/check_calls.h"
#include "compiler/codegen/checked_bytes.h"
#include "compiler/codegen/kernel_shape.h"
#include "compiler/codegen/target.h"
#include "compiler/interpret/eval.h"
#include "dialects/attributes.h"
#include "dialects/model/dialect.h"
#include "format/abi.h"

#include "llvm/Support/DynamicLibrary.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <bit>
#include <cmath>
#include <random>
#include <span>

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Larger values are fill values, such as that of mask_tail, and are not rounded.
constexpr double largestNumber = 1e30;

RankedTensorType tensorOf(Type type) { return cast<RankedTensorType>(type); }

/// The executable kernels of a plan at one level.
class Code {
public:
  virtual ~Code() = default;
  virtual std::string level() const = 0;
  /// Runs a kernel over its whole extent. Returns false if there is no kernel with this symbol.
  virtual bool run(StringRef symbol, ArrayRef<std::span<char>> buffers, ArrayRef<int64_t> scalars, int64_t extent) = 0;
};

/// Kernels on a device.
class DeviceCode : public Code {
public:
  DeviceCode(const rt::pb::Plan &plan, KernelRunner &runner) : plan(plan), runner(runner) {}

  std::string level() const override { return runner.level(); }
  bool run(StringRef symbol, ArrayRef<std::span<char>> buffers, ArrayRef<int64_t> scalars, int64_t extent) override {
    auto found = llvm::find_if(plan.kernels(), [&](const auto &kernel) { return kernel.symbol() == symbol; });
    if (found == plan.kernels().end())
      return false;
    runner.run(static_cast<uint32_t>(found - plan.kernels().begin()), {buffers.data(), buffers.size()},
               {scalars.data(), scalars.size()}, extent);
    return true;
  }

private:
  const rt::pb::Plan &plan;
  KernelRunner &runner;
};

/// A shared object of the plan for this processor, loaded for the check.
class LoadedObject : public Code {
public:
  explicit LoadedObject(const rt::pb::Object &object) : name(object.level()) {
    SmallString<128> path;
    int descriptor = -1;
    if (llvm::sys::fs::createTemporaryFile("kernels", "so", descriptor, path))
      return;
    llvm::FileRemover remover(path);
    {
      llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
      stream << object.code();
    }
    library = llvm::sys::DynamicLibrary::getLibrary(path.c_str());
  }
  ~LoadedObject() override {
    if (library.isValid())
      llvm::sys::DynamicLibrary::closeLibrary(library);
  }
  LoadedObject(const LoadedObject &) = delete;
  LoadedObject &operator=(const LoadedObject &) = delete;

  std::string level() const override { return name; }
  bool run(StringRef symbol, ArrayRef<std::span<char>> buffers, ArrayRef<int64_t> scalars, int64_t extent) override {
    void *address = library.isValid() ? library.getAddressOfSymbol(symbol.str().c_str()) : nullptr;
    if (!address)
      return false;
    auto code = reinterpret_cast<rt::KernelFunction>(address);
    SmallVector<void *> places;
    for (std::span<char> buffer : buffers)
      places.push_back(buffer.data());
    // Runs two subranges, as two threads would.
    code(places.data(), scalars.data(), 0, extent / 2);
    code(places.data(), scalars.data(), extent / 2, extent);
    return true;
  }

private:
  const std::string name;
  llvm::sys::DynamicLibrary library;
};

bool hasLevel(StringRef level) {
#if defined(__x86_64__)
  return level == "x86-64" || (level == "x86-64-v3" && __builtin_cpu_supports("x86-64-v3")) ||
         (level == "x86-64-v4" && __builtin_cpu_supports("x86-64-v4"));
#else
  return false;
#endif
}

/// A kernel's body as a function on small tensors.
class SmallKernel {
public:
  /// Few rows. The number of columns exceeds the widest vector, so that both a full vector and a tail occur. GPU
  /// kernels keep their columns, because their code depends on them, except for flat kernels.
  static constexpr int64_t mostRows = 3, mostColumns = 37, mostOuterColumns = 2;

  SmallKernel(exec::KernelOp kernel, const KernelShape &shape)
      : holder(ModuleOp::create(kernel.getLoc())), whole(shape.space) {
    bool keepsColumns = kernel.getGeometry() && shape.kind != "flat";
    for (auto [index, size] : llvm::enumerate(whole.getShape())) {
      bool isRow = static_cast<int64_t>(index) < shape.split,
           isLast = static_cast<int64_t>(index) + 1 == whole.getRank();
      sizes.push_back(!isRow && keepsColumns ? size
                                             : std::min(size, isRow    ? mostRows
                                                              : isLast ? mostColumns
                                                                       : mostOuterColumns));
    }
    build(kernel);
    FailureOr<KernelShape> analyzed = analyzeKernel(function.getBody().front(), kernel.getShape(), kernel.getSplit());
    if (succeeded(analyzed) && analyzed->key() == shape.key())
      small = std::move(*analyzed);
    returnAll();
  }

  /// Returns whether the small body has the same code as the kernel.
  bool isSame() const { return small.has_value(); }
  const KernelShape &shape() const { return *small; }
  /// the small body as a function; returns the stored values, then every value of the body
  func::FuncOp function;

private:
  Type smaller(Type type) {
    auto tensor = tensorOf(type);
    SmallVector<int64_t> shape(tensor.getShape());
    for (auto [name, size] : llvm::zip_equal(dimNames(tensor), shape))
      if (int64_t at = dimIndex(whole, name); at >= 0 && whole.getDimSize(at) == size)
        size = sizes[at];
    return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
  }

  void build(exec::KernelOp kernel) {
    OpBuilder b = OpBuilder::atBlockEnd(holder->getBody());
    Block &body = kernel.getBody().front();
    SmallVector<Type> arguments, results;
    for (Type type : body.getArgumentTypes())
      arguments.push_back(smaller(type));
    for (Type type : body.getTerminator()->getOperandTypes())
      results.push_back(smaller(type));
    function = b.create<func::FuncOp>(kernel.getLoc(), kernel.getSymName(), b.getFunctionType(arguments, results));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToStart(entry);
    IRMapping map;
    map.map(body.getArguments(), entry->getArguments());
    for (Operation &op : body.without_terminator()) {
      Operation *copy = b.clone(op, map);
      for (Value result : copy->getResults())
        result.setType(smaller(result.getType()));
      if (auto dropout = dyn_cast<model::DropoutOp>(copy); dropout && dropout.getUnsplit())
        dropout.setUnsplit(unsplitOf(cast<model::DropoutOp>(op), dropout));
      if (auto mask = dyn_cast<model::MaskTailOp>(copy))
        mask.setValid(std::max<int64_t>(1, tensorOf(mask.getType()).getShape().back() - 2));
    }
    SmallVector<Value> stored;
    for (Value value : body.getTerminator()->getOperands())
      stored.push_back(map.lookup(value));
    b.create<func::ReturnOp>(kernel.getLoc(), stored);
  }

  /// Keeps a sharded dimension sharded.
  SmallVector<int64_t> unsplitOf(model::DropoutOp from, model::DropoutOp to) {
    SmallVector<int64_t> unsplit;
    for (auto [whole, local, size] : llvm::zip_equal(*from.getUnsplit(), tensorOf(from.getX().getType()).getShape(),
                                                     tensorOf(to.getX().getType()).getShape()))
      unsplit.push_back(whole == local ? size : 2 * size);
    return unsplit;
  }

  void returnAll() {
    Block &body = function.getBody().front();
    SmallVector<Value> values(body.getTerminator()->getOperands());
    for (Operation &op : body.without_terminator())
      llvm::append_range(values, op.getResults());
    body.getTerminator()->setOperands(values);
    function.setType(FunctionType::get(function.getContext(), body.getArgumentTypes(), ValueRange(values).getTypes()));
  }

  OwningOpRef<ModuleOp> holder;
  RankedTensorType whole;
  SmallVector<int64_t> sizes;
  std::optional<KernelShape> small;
};

/// The inputs, run-time scalars and expected results of one kernel.
class Trial {
public:
  Trial(SmallKernel &kernel, dist::MeshAttr mesh, int round) : kernel(kernel), random(round + 1) {
    context.isExact = true; // kernels keep f32 between ops
    context.seed = 5 + round;
    context.step = 3;
    context.layer = 2;
    context.microBatch = round;
    if (mesh)
      context.placeOn(mesh, round == 0 ? 0 : mesh.size(mesh.getAxes()) - 1);
    for (auto [name, slot] : scalarSlots)
      context.scalars[name] = slots[slot] = static_cast<float>(uniform());
    slots[rt::Apply] = static_cast<float>(context.scalars["apply"] = round == 0 ? 1 : 0);
    slots[rt::Step] = std::bit_cast<float>(context.step);
  }

  /// Generates inputs of both signs. If a result is not finite, such as a root or an overflow, retries with positive
  /// and smaller inputs.
  llvm::Error evaluate() {
    for (auto [isPositive, scale] : {std::pair(false, 1.0), {true, 1.0}, {true, 0x1p-3}, {true, 0x1p-6}}) {
      drawInputs(isPositive, scale);
      llvm::Expected<std::vector<Tensor>> results = espalier::evaluate(kernel.function, inputs, context);
      if (!results)
        return results.takeError();
      wanted = std::move(*results);
      if (llvm::all_of(wanted, isFinite))
        return llvm::Error::success();
    }
    return llvm::createStringError("no inputs were found for which all its values are numbers");
  }

  /// Returns a description of the first difference between code and interpreter, or an empty string.
  std::string compare(Code &code, StringRef symbol) {
    std::vector<CheckedBytes> memory;
    for (const Tensor &input : inputs)
      memory.emplace_back(input.type).write(input.values);
    std::vector<CheckedBytes> stored;
    if (!run(code, symbol, memory, stored))
      return "is missing";
    double bound = roundingBound();
    for (size_t output = 0; output < stored.size(); ++output) {
      const Tensor &result = wanted[output];
      if (stored[output].isOverrun())
        return llvm::formatv("writes past the end of its result {0}", output);
      for (size_t i = 0; i < result.values.size(); ++i) {
        double got = kernel.shape().isSummed(output) ? sumOfBlocks(stored[output], result, i) : stored[output].read(i);
        double want = result.values[i];
        if (!(std::abs(got - want) <= bound))
          return llvm::formatv(
              "gives {0} at element {1} of its result {2}, the interpreter {3}; roundings explain {4:e}", got, i,
              output, want, bound);
      }
    }
    return "";
  }

private:
  static bool isFinite(const Tensor &tensor) {
    return llvm::all_of(tensor.values, [&](double value) {
      return std::isfinite(roundToElement(tensor.type.getElementType(), value));
    });
  }

  double uniform() { return std::uniform_real_distribution<double>(0.1, 1.1)(random); }

  void drawInputs(bool isPositive, double scale) {
    inputs.clear();
    for (Type type : kernel.function.getArgumentTypes()) {
      Tensor &input = inputs.emplace_back(tensorOf(type));
      for (double &value : input.values)
        if (input.type.getElementType().isInteger())
          value = static_cast<double>(random() % std::max<int64_t>(1, kernel.shape().columns));
        else
          value = (isPositive || random() % 2 ? scale : -scale) * uniform();
      roundToStorage(input);
    }
  }

  int64_t number(exec::ScalarAttr scalar) const {
    return scalar.getConstant() + scalar.getMicroBatch() * context.microBatch + scalar.getLayer() * context.layer +
           scalar.getSeed() * context.seed + originOf(scalar.getCoordinates(), context);
  }

  /// Returns false if the code has no kernel with this symbol.
  bool run(Code &code, StringRef symbol, std::vector<CheckedBytes> &memory, std::vector<CheckedBytes> &outputs) {
    const KernelShape &shape = kernel.shape();
    SmallVector<int64_t> scalars;
    for (const KernelScalar &scalar : shape.scalars)
      scalars.push_back(number(scalar.value));
    int64_t extent = shape.kind == "flat" ? shape.columns : shape.rows;
    for (size_t output = 0; output < shape.outputs.size(); ++output)
      outputs.emplace_back(wanted[output].type);
    if (shape.kind == "column") { // each block of rows stores its own partial sums
      int64_t blockRows = llvm::divideCeil(shape.rows, 2);
      scalars[2] = blockRows;
      blocks = extent = llvm::divideCeil(shape.rows, blockRows);
      for (auto [output, bytes] : llvm::enumerate(outputs))
        if (shape.isSummed(output))
          bytes = CheckedBytes(RankedTensorType::get({blocks, wanted[output].type.getNumElements()},
                                                     Float32Type::get(wanted[output].type.getContext())));
    }
    for (const Accumulation &sum : shape.accumulations) {
      outputs[sum.output].write(inputs[sum.operand].values);
      if (sum.scalar >= 0)
        scalars[sum.scalar] = context.microBatch == 0 ? 1 : 0;
    }
    SmallVector<std::span<char>> buffers;
    for (auto [operand, bytes] : llvm::enumerate(memory))
      if (!shape.isAccumulator(operand))
        buffers.push_back(bytes.span());
    for (int64_t slot : shape.slots)
      buffers.emplace_back(reinterpret_cast<char *>(&slots[slot]), sizeof(float));
    for (CheckedBytes &bytes : outputs)
      buffers.push_back(bytes.span());
    return code.run(symbol, buffers, scalars, extent);
  }

  double sumOfBlocks(const CheckedBytes &stored, const Tensor &result, int64_t i) const {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block)
      sum += stored.read(block * static_cast<int64_t>(result.values.size()) + i);
    return sum;
  }

  double roundingBound() const {
    const KernelShape &shape = kernel.shape();
    bool isColumn = shape.kind == "column";
    int64_t terms = (shape.kind == "row" || shape.hasRowWork() ? shape.columns : 0) + (isColumn ? shape.rows : 0);
    double largest = 0, roundings = 0x1p-23 * static_cast<double>(terms + wanted.size());
    for (size_t output = 0; output < shape.outputs.size(); ++output)
      if (Type element = wanted[output].type.getElementType(); element.getIntOrFloatBitWidth() == 16)
        roundings += element.isBF16() ? 0x1p-8 : 0x1p-11;
    auto consider = [&](ArrayRef<Tensor> tensors) {
      for (const Tensor &tensor : tensors)
        for (double value : tensor.values)
          if (std::abs(value) < largestNumber)
            largest = std::max(largest, std::abs(value));
    };
    consider(inputs);
    consider(wanted);
    return roundings * largest;
  }

  SmallKernel &kernel;
  std::mt19937 random;
  EvalContext context;
  std::array<float, rt::ScalarSlotCount> slots{};
  std::vector<Tensor> inputs, wanted;
  int64_t blocks = 1;
};

LogicalResult checkKernel(exec::KernelOp kernel, ArrayRef<std::unique_ptr<Code>> codes) {
  auto shape = analyzeKernel(kernel.getBody().front(), kernel.getShape(), kernel.getSplit());
  if (failed(shape))
    return kernel.emitOpError("is not a kernel of shape ") << kernel.getShape();
  SmallKernel small(kernel, *shape);
  if (!small.isSame())
    return kernel.emitOpError("'") << kernel.getSymName() << "' changes its code with its sizes, and cannot be checked";
  auto mesh = dist::meshAttr.of(kernel->getParentOfType<ModuleOp>());
  for (int round = 0; round < 2; ++round) {
    Trial trial(small, mesh, round);
    if (llvm::Error error = trial.evaluate())
      return kernel.emitOpError("'") << kernel.getSymName() << "': " << llvm::toString(std::move(error));
    for (const std::unique_ptr<Code> &code : codes)
      if (std::string fault = trial.compare(*code, kernel.getSymName()); !fault.empty())
        return kernel.emitOpError("'") << kernel.getSymName() << "' at " << code->level() << " " << fault;
  }
  return success();
}

} // namespace

LogicalResult checkKernels(ModuleOp module, const rt::pb::Plan &plan, const OpenKernelRunner &open) {
  if (plan.kernels_size() == 0)
    return success();
  std::vector<std::unique_ptr<Code>> codes;
  std::unique_ptr<KernelRunner> runner = !targetOf(module).isHost() && open ? open(plan) : nullptr;
  if (runner)
    codes.push_back(std::make_unique<DeviceCode>(plan, *runner));
  for (const rt::pb::Object &object : plan.objects())
    if (hasLevel(object.level()))
      codes.push_back(std::make_unique<LoadedObject>(object));
  if (codes.empty())
    return module.emitError("nothing here runs the plan's kernels, so that they cannot be checked");
  LogicalResult result = success();
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    bool hasBody =
        !kernel.getBody().front().without_terminator().empty(); // kernels without a body are checked by checkCalls
    if (hasBody && failed(checkKernel(kernel, codes)))
      result = failure(); // continue, so that all errors of a plan are reported at once
  }
  if (runner && failed(checkCalls(module, plan, *runner)))
    result = failure();
  return result;
}

} // namespace espalier::codegen
