// A kernel's parameters say of which calls it is a part: such a call is made with small sizes, and lowered as calls of
// a program are. Where its launches are of kernels of the module, these are run.
#include "compiler/codegen/check_calls.h"

#include "compiler/codegen/checked_bytes.h"
#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/launch_calls.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "compiler/codegen/plan_numbers.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>
#include <random>

using namespace mlir;

namespace espalier::codegen {
namespace {

namespace pb = rt::pb;
using Call = ProgramBuilder::Call;

constexpr int64_t seed = 11;
/// Sizes of the calls; rows of a table have three vectors, which tells the width of a kernel's loads.
constexpr int64_t batch = 2, tokens = 9, keys = 96, queries = 70, kvHeads = 2, group = 2, experts = 6, choices = 2,
                  capacity = 4, rows = 29, parts = 5, sums = 77, squares = 20000, cached = 24, vectors = 3;

/// A call, and what its buffers hold before it.
struct SmallCall {
  Call call;
  std::vector<CheckedBytes> memory;
};

/// Makes the calls that kernels may be a part of.
class CallMaker {
public:
  /// `offset`: bytes that operands lie behind a multiple of 16.
  CallMaker(exec::KernelOp kernel, int64_t offset)
      : kernel(kernel), context(kernel.getContext()), builder(context), offset(offset) {}

  std::vector<SmallCall> make() {
    StringRef shape = kernel.getShape();
    if (shape == "attention_forward" || shape == "attention_query_gradient")
      attention(/*isForward=*/shape == "attention_forward");
    else if (shape == "attend_cache")
      attendCache();
    else if (shape == "take_row")
      takeRow();
    else if (shape == "embed")
      embed();
    else if (shape == "sum_segments")
      embedGradient();
    else if (shape == "choose_experts")
      route();
    else if (shape == "dispatch" || shape == "combine")
      moveRows(shape);
    else if (shape == "rope")
      rope();
    else if (shape == "add_squares")
      squaredNorm();
    else if (shape == "reduce_parts")
      reduceParts();
    else if (shape == "update_scalars")
      updateScalars();
    return std::move(calls);
  }

private:
  Type typeOf(StringRef name) { return cuda::typeParameter(kernel, name); }
  Type f32() { return builder.getF32Type(); }
  Type i32() { return builder.getI32Type(); }
  int64_t rowOf(StringRef width) { return vectors * cuda::integerParameter(kernel, width); }
  bool has(StringRef flag) { return kernel.getParameters()->contains(flag); }

  SmallCall &begin(StringRef function, ArrayRef<int64_t> sizes, int64_t outputs = 1) {
    SmallCall &made = calls.emplace_back();
    made.call.function = function;
    made.call.sizes.assign(sizes.begin(), sizes.end());
    made.call.outputs = outputs;
    return made;
  }

  /// The next buffer of a call: numbers of both signs.
  CheckedBytes &add(SmallCall &made, Type element, int64_t count) {
    CheckedBytes &bytes = made.memory.emplace_back(element, count);
    std::vector<double> values(static_cast<size_t>(count));
    for (double &value : values)
      value = std::uniform_real_distribution<double>(-1, 1)(random);
    bytes.write(values);
    int64_t number = static_cast<int64_t>(made.call.buffers.size());
    made.call.add(exec::BufferAttr::get(context, "inputs", offset, count * element.getIntOrFloatBitWidth() / 8,
                                        /*within=*/0, /*coordinates=*/{},
                                        builder.getStringAttr("operand" + Twine(number)), element, /*layer=*/0,
                                        /*part=*/0, /*bucket=*/1),
                  element);
    return bytes;
  }

  /// Whole numbers in [first, first + range).
  void addNumbers(SmallCall &made, int64_t count, int64_t first, int64_t range) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double &value : values)
      value = static_cast<double>(first + static_cast<int64_t>(random() % static_cast<uint64_t>(range)));
    add(made, i32(), count).write(values);
  }

  void addScalars(SmallCall &made, ArrayRef<int64_t> values) {
    for (int64_t value : values)
      made.call.scalars.push_back(constantScalar(context, value));
  }

  void attention(bool isForward) {
    cuda::AttentionConfig config = cuda::AttentionConfig::of(*kernel.getParameters());
    int64_t dim = config.headDim, ofKeys = config.isPart ? keys : queries;
    SmallVector<int64_t> sizes = {batch, queries, kvHeads, group, dim};
    if (config.isPart)
      sizes.push_back(keys);
    SmallCall &made = begin(isForward ? "attention_forward" : "attention_backward", sizes, isForward ? 2 : 3);
    made.call.floats = {config.scale, config.rate};
    if (config.isCausal)
      made.call.flags.set("causal", builder.getUnitAttr());
    addScalars(made,
               {/*stream=*/1287, /*sample=*/3, /*head=*/1, /*sequence=*/keys, config.isPart ? keys - queries : 0});
    int64_t heads = batch * queries * kvHeads * group;
    add(made, config.element, heads * dim);
    for (int i = 0; i < 2; ++i)
      add(made, config.element, batch * ofKeys * kvHeads * dim);
    add(made, config.element, heads * dim);
    add(made, f32(), heads);
    if (!isForward)
      add(made, config.element, heads * dim);
    addNumbers(made, 1, /*step=*/3, 1);
    if (!isForward)
      for (int64_t count : {heads * dim, batch * ofKeys * kvHeads * dim, batch * ofKeys * kvHeads * dim})
        add(made, config.element, count);
  }

  void attendCache() {
    int64_t dim = cuda::integerParameter(kernel, "head_dim"), room = batch * kvHeads * cached * dim;
    Type element = typeOf("type");
    SmallCall &made = begin("attend_cache", {batch, tokens, kvHeads, group, dim, cached}, 3);
    made.call.floats = {cuda::realParameter(kernel, "scale")};
    add(made, element, batch * tokens * kvHeads * group * dim);
    for (int i = 0; i < 2; ++i)
      add(made, element, batch * tokens * kvHeads * dim);
    std::vector<double> positions;
    for (int64_t token = 0; token < batch * tokens; ++token)
      positions.push_back(static_cast<double>(4 + token % tokens));
    add(made, i32(), batch * tokens).write(positions);
    add(made, element, batch * tokens * kvHeads * group * dim);
    for (int i = 0; i < 2; ++i)
      add(made, element, room);
  }

  void takeRow() {
    Type element = typeOf("type");
    int64_t columns = rowOf("width");
    SmallCall &made =
        begin("take_row", {batch, tokens, columns * static_cast<int64_t>(element.getIntOrFloatBitWidth()) / 8});
    add(made, element, batch * tokens * columns);
    addNumbers(made, batch, 0, tokens);
    add(made, element, batch * columns);
  }

  void embed() {
    int64_t hidden = rowOf("width");
    SmallCall &made = begin("embed", {tokens, rows, hidden});
    addScalars(made, {/*first row=*/4});
    add(made, typeOf("from"), rows * hidden);
    addNumbers(made, tokens, 0, rows + 8);
    add(made, typeOf("to"), tokens * hidden);
  }

  void embedGradient() {
    int64_t hidden = rowOf("width"), many = 5 * cuda::tokensPerSegment;
    for (StringRef store : {"", "accumulate", "always_adds"}) {
      SmallCall &made = begin("embed_gradient", {many, rows, hidden});
      addScalars(made, {/*first row=*/4});
      addNumbers(made, many, 0, rows + 8);
      add(made, typeOf("type"), many * hidden);
      add(made, f32(), rows * hidden);
      if (!store.empty())
        made.call.flags.set(store, builder.getUnitAttr());
    }
  }

  void route() {
    SmallCall &made = begin("route", {batch, tokens, experts, choices, capacity}, 2);
    add(made, typeOf("type"), batch * tokens * experts);
    for (int i = 0; i < 2; ++i)
      addNumbers(made, choices * batch * tokens, 0, 1);
  }

  /// Choice c of token t goes to expert (t + c) % experts, in the order of tokens, while it has room.
  void moveRows(StringRef function) {
    int64_t hidden = rowOf("width"), places = choices * batch * tokens;
    bool hasChoice = has("has_choice"), isDispatch = function == "dispatch";
    int64_t ofTokens = (hasChoice ? choices : 1) * batch * tokens * hidden;
    int64_t ofExperts = experts * batch * capacity * hidden;
    SmallCall &made = begin(function, {choices, batch, tokens, hidden, experts, capacity, hasChoice});
    std::vector<double> ids(static_cast<size_t>(places)), slots(ids);
    std::map<std::pair<int64_t, int64_t>, int64_t> taken;
    for (int64_t i = 0; i < places; ++i) {
      int64_t choice = i / (batch * tokens), sample = i / tokens % batch;
      int64_t expert = (i % tokens * 5 / 4 + choice) % experts;
      int64_t slot = taken[{sample, expert}]++;
      ids[static_cast<size_t>(i)] = static_cast<double>(expert);
      slots[static_cast<size_t>(i)] = static_cast<double>(slot < capacity ? slot : -1);
    }
    add(made, i32(), places).write(ids);
    add(made, i32(), places).write(slots);
    add(made, typeOf("from"), isDispatch ? ofTokens : ofExperts);
    if (has("weights"))
      add(made, typeOf("weights"), places);
    add(made, typeOf("to"), isDispatch ? ofExperts : ofTokens);
  }

  void rope() {
    int64_t dim = cuda::integerParameter(kernel, "head_dim");
    SmallCall &made = begin("rope", {tokens, kvHeads, dim, has("inverse")});
    made.call.floats = {cuda::realParameter(kernel, "theta")};
    add(made, typeOf("from"), tokens * kvHeads * dim);
    addNumbers(made, tokens, 0, cached);
    add(made, typeOf("to"), tokens * kvHeads * dim);
  }

  void squaredNorm() {
    SmallCall &made = begin("squared_norm", {squares});
    made.call.floats = {cuda::realParameter(kernel, "weight")};
    made.call.flags.set("always_adds", builder.getUnitAttr());
    add(made, f32(), squares);
    add(made, f32(), 1);
  }

  /// Parts of several sums, then the sums.
  void reduceParts() {
    int64_t outputs = cuda::integerParameter(kernel, "buffers") / 2;
    SmallCall &made = begin("reduce_parts", {parts, sums}, outputs);
    for (int64_t i = 0; i < 2 * outputs; ++i)
      add(made, f32(), i < outputs ? parts * sums : sums);
    for (StringRef store : {"accumulate", "always_adds"})
      if (has(store))
        made.call.flags.set(store, builder.getUnitAttr());
  }

  void updateScalars() {
    SmallCall &made = begin("update_scalars", {}, 2);
    made.call.floats = {cuda::realParameter(kernel, "max_grad_norm")};
    for (double value : {5.5, 37.0, 91.25, 8.0, 0.0, 0.0})
      add(made, f32(), 1).write(value);
  }

  exec::KernelOp kernel;
  MLIRContext *context;
  Builder builder;
  int64_t offset;
  std::mt19937 random{1};
  std::vector<SmallCall> calls;
};

pb::DataType dataType(Type element) {
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

/// The runtime's own kernels.
class Reference {
public:
  explicit Reference(KernelRunner &runner) : runner(runner) {}

  void run(const Call &call, std::vector<CheckedBytes> &memory) {
    if (call.function == "attention_backward")
      attendBefore(call, memory);
    if (call.function != "reduce_parts")
      return run(call, pointers(memory));
    for (size_t i = 0; i < memory.size() / 2; ++i)
      run(call, {&memory[i], &memory[i + memory.size() / 2]});
  }

private:
  static std::vector<CheckedBytes *> pointers(std::vector<CheckedBytes> &memory) {
    std::vector<CheckedBytes *> all;
    for (CheckedBytes &bytes : memory)
      all.push_back(&bytes);
    return all;
  }

  /// Backward reads what forward left.
  void attendBefore(const Call &backward, std::vector<CheckedBytes> &memory) {
    Call forward = backward;
    forward.function = "attention_forward";
    run(forward, {&memory[0], &memory[1], &memory[2], &memory[3], &memory[4], &memory[6]});
  }

  void run(const Call &call, const std::vector<CheckedBytes *> &memory) {
    pb::LibraryCall message;
    message.set_function(numberOf<pb::LibraryCall::Function>(exec::symbolizeFunction(call.function)));
    std::vector<pb::DataType> types;
    std::vector<std::span<char>> buffers;
    for (CheckedBytes *bytes : memory) {
      types.push_back(dataType(bytes->type()));
      buffers.push_back(bytes->span());
      message.add_buffers()->set_bytes(bytes->size() * bytes->type().getIntOrFloatBitWidth() / 8);
    }
    message.mutable_sizes()->Add(call.sizes.begin(), call.sizes.end());
    message.mutable_floats()->Add(call.floats.begin(), call.floats.end());
    std::vector<int64_t> scalars;
    for (Attribute scalar : call.scalars) {
      scalars.push_back(cast<exec::ScalarAttr>(scalar).getConstant());
      message.add_scalars()->set_constant(scalars.back());
    }
    message.set_causal(static_cast<bool>(call.flags.get("causal")));
    if (call.flags.get("accumulate") || call.flags.get("always_adds"))
      message.set_store(pb::ADD);
    runner.call(message, types, buffers, scalars, seed);
  }

  KernelRunner &runner;
};

/// The module's kernels without a body, and which of them a call has launched.
class CallCheck {
public:
  CallCheck(ModuleOp module, const pb::Plan &plan, KernelRunner &runner)
      : module(module), runner(runner) {
    for (auto [number, kernel] : llvm::enumerate(plan.kernels()))
      numbers[kernel.symbol()] = static_cast<uint32_t>(number);
  }

  LogicalResult check() {
    LogicalResult result = success();
    for (auto kernel : specials())
      for (int64_t offset : {0, 4})
        for (SmallCall &made : CallMaker(kernel, offset).make())
          if (std::string fault = compare(made); !fault.empty())
            result = kernel.emitOpError("'") << kernel.getSymName() << "' at " << runner.level() << " " << fault;
    for (auto kernel : specials())
      if (!launched.contains(kernel))
        result = kernel.emitOpError("'") << kernel.getSymName() << "' stands for a library call that is not checked";
    return result;
  }

private:
  SmallVector<exec::KernelOp> specials() {
    SmallVector<exec::KernelOp> all;
    for (auto kernel : module.getOps<exec::KernelOp>())
      if (kernel.getBody().front().without_terminator().empty())
        all.push_back(kernel);
    return all;
  }

  exec::KernelOp kernelOf(const cuda::SpecialLaunch &launch) {
    DictionaryAttr parameters = launch.parameters.getDictionary(module.getContext());
    for (auto kernel : specials())
      if (kernel.getShape() == launch.shape && kernel.getGeometry() == launch.geometry &&
          kernel.getParameters() == parameters)
        return kernel;
    return {};
  }

  /// What is wrong with the launches of a call; empty for nothing, and for a call that the module has not.
  std::string compare(SmallCall &made) {
    std::vector<std::pair<exec::BufferAttr, CheckedBytes>> scratch;
    auto newBuffer = [&](Type type) {
      CheckedBytes bytes(cast<RankedTensorType>(type));
      auto name = StringAttr::get(module.getContext(), "scratch" + Twine(scratch.size()));
      auto buffer = exec::BufferAttr::get(module.getContext(), "virtual", 0, static_cast<int64_t>(bytes.span().size()),
                                          0, {}, name, bytes.type(), 0, 0, 0);
      scratch.emplace_back(buffer, std::move(bytes));
      return buffer;
    };
    auto launches = cuda::launchesOf(made.call, module.getContext(), newBuffer);
    SmallVector<exec::KernelOp> kernels;
    for (const cuda::SpecialLaunch &launch : launches)
      kernels.push_back(kernelOf(launch));
    bool isNew = llvm::any_of(kernels, [&](exec::KernelOp kernel) { return kernel && !launched.contains(kernel); });
    if (!isNew || llvm::is_contained(kernels, exec::KernelOp()))
      return "";
    std::vector<CheckedBytes> wanted = made.memory;
    Reference(runner).run(made.call, wanted);
    if (made.call.function == "attention_backward") // the forward results that both read
      for (int i : {3, 4})
        made.memory[i] = wanted[i];
    auto memoryOf = [&](exec::BufferAttr buffer) {
      for (auto [operand, bytes] : llvm::zip_equal(made.call.buffers, made.memory))
        if (operand == buffer)
          return bytes.span();
      return llvm::find_if(scratch, [&](const auto &own) { return own.first == buffer; })->second.span();
    };
    for (auto [launch, kernel] : llvm::zip_equal(launches, kernels)) {
      std::vector<std::span<char>> buffers;
      for (exec::BufferAttr buffer : launch.buffers)
        buffers.push_back(memoryOf(buffer));
      std::vector<int64_t> scalars;
      for (Attribute attribute : launch.scalars) { // no RUN is a first one
        auto scalar = cast<exec::ScalarAttr>(attribute);
        scalars.push_back(scalar.getConstant() + scalar.getSeed() * seed);
      }
      runner.run(numbers.at(kernel.getSymName().str()), buffers, scalars, launch.extent);
      launched.insert(kernel);
    }
    for (const auto &[buffer, bytes] : scratch)
      if (bytes.isOverrun())
        return "writes past the end of what its launches hand to each other";
    return difference(made, wanted);
  }

  static std::string difference(const SmallCall &made, ArrayRef<CheckedBytes> wanted) {
    double unit = 0x1p-17; // sums of some hundred terms, and approximate functions
    for (const CheckedBytes &bytes : wanted)
      if (bytes.type().getIntOrFloatBitWidth() == 16)
        unit = std::max(unit, bytes.type().isBF16() ? 0x1p-6 : 0x1p-9);
    for (auto [number, got, want] : llvm::enumerate(made.memory, wanted)) {
      if (got.isOverrun())
        return llvm::formatv("writes past the end of buffer {0} of {1}", number, made.call.function);
      double largest = 0;
      for (int64_t i = 0; i < want.size(); ++i)
        largest = std::max(largest, std::abs(want.read(i)));
      double bound = want.type().isInteger() ? 0 : unit * largest;
      for (int64_t i = 0; i < want.size(); ++i)
        if (!(std::abs(got.read(i) - want.read(i)) <= bound))
          return llvm::formatv("gives {0} at element {1} of buffer {2} of {3}, the runtime's own kernel {4}; roundings "
                               "explain {5:e}",
                               got.read(i), i, number, made.call.function, want.read(i), bound);
    }
    return "";
  }

  ModuleOp module;
  KernelRunner &runner;
  std::map<std::string, uint32_t> numbers; ///< of the plan's kernels
  llvm::DenseSet<Operation *> launched;
};

} // namespace

LogicalResult checkCalls(ModuleOp module, const pb::Plan &plan, KernelRunner &runner) {
  return CallCheck(module, plan, runner).check();
}

} // namespace espalier::codegen
