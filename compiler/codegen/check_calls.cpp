// A kernel's parameters and its function's row determine the calls that use the kernel. Such a call is made with small
// sizes and lowered like a call of a program. If its launches use kernels of the module, they are run.
#include "compiler/codegen/check_calls.h"

#include "compiler/codegen/checked_bytes.h"
#include "compiler/codegen/cuda/launch_calls.h"
#include "compiler/codegen/cuda/special_kernels.h"

#include "format/functions.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>
#include <random>

using namespace mlir;

namespace espalier::codegen {
namespace {

namespace pb = rt::pb;

constexpr int64_t seed = 11;
/// Positions of the cache, and keys of attention's unsharded sequence.
constexpr int64_t cached = 24, keys = 96;

/// Returns the test size with this name, or nothing if the kernel's parameters define it.
std::optional<int64_t> smallSize(StringRef name) {
  static const llvm::StringMap<int64_t> sizes = {
      {"batch", 2},       {"seq", 9},     {"tokens", 9},   {"kv_heads", 2}, {"heads", 2},     {"group", 2},
      {"experts", 6},     {"choices", 2}, {"capacity", 4}, {"rows", 29},    {"part", 5},      {"n", 77},
      {"a", 2},           {"b", 9},       {"keys", keys},  {"inverse", 0},  {"by_choice", 0}, {"elements", 20000},
      {"context", cached}};
  auto found = sizes.find(name);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

/// A call and the initial contents of its buffers.
struct SmallCall {
  Call call;
  std::vector<CheckedBytes> memory;
};

/// Makes the calls that may use a kernel, from its function's row. Types and constants that the kernel's parameters do
/// not give are those of another kernel of the function. Makes no call if no kernel gives them.
class CallMaker {
public:
  /// `offset` is the operands' distance, in bytes, from a multiple of 16.
  CallMaker(exec::KernelOp kernel, int64_t offset)
      : kernel(kernel), row(rt::findKernel(kernel.getShape())), context(kernel.getContext()), builder(context),
        offset(offset) {}

  std::vector<SmallCall> make() {
    std::vector<SmallCall> calls;
    if (!row || !findElements() || !findNumbers())
      return calls;
    if (llvm::none_of(row->function->operands, [](const auto &operand) { return operand.isStored(); })) {
      calls.push_back(makeCall(""));
    } else if (llvm::any_of(row->operands, [](const auto &operand) { return operand.isStored(); })) {
      cuda::Destination destination = cuda::destinationOf(kernel);
      calls.push_back(makeCall(destination == cuda::Destination::Overwrite ? ""
                               : destination == cuda::Destination::Add     ? "always_adds"
                                                                           : "accumulate"));
    } else {
      for (StringRef store : {"", "accumulate", "always_adds"})
        calls.push_back(makeCall(store));
    }
    return calls;
  }

private:
  Attribute parameter(StringRef name) { return kernel.getParameters()->get(name); }
  /// Returns a parameter of this kernel or, if it has none of this name, of another kernel of the function.
  Attribute parameterOfAny(StringRef name) {
    Attribute own = parameter(name);
    for (auto other : kernel->getParentOfType<ModuleOp>().getOps<exec::KernelOp>()) {
      const rt::KernelSignature *otherRow = other.getShape().empty() ? nullptr : rt::findKernel(other.getShape());
      if (!own && otherRow && otherRow->function == row->function && other.getParameters())
        own = other.getParameters()->get(name);
    }
    return own;
  }

  /// Finds the element types of the call's operands. Returns false if a type is unknown.
  bool findElements() {
    for (const rt::OperandSignature &operand : row->function->operands) {
      Type element = operand.type == 's' ? Type(builder.getF32Type()) : Type(builder.getI32Type());
      if (operand.type == 'f' || operand.type == 'e' || operand.type == 'b') {
        StringRef name = operand.type == 'f' ? StringRef(operand.name) : "type";
        auto type = dyn_cast_or_null<TypeAttr>(operand.isOptional ? parameter(name) : parameterOfAny(name));
        if (!type && !operand.isOptional)
          return false;
        element = type ? type.getValue() : Type();
      } else if ((operand.isOptional && !parameter(operand.name)) ||
                 (!operand.flag.empty() && !parameter(operand.flag))) {
        element = Type();
      }
      elements[operand.name] = element;
    }
    return true;
  }

  /// Finds all sizes and floats of the call. Returns false if a float is unknown.
  bool findNumbers() {
    const rt::FunctionSignature &function = *row->function;
    int64_t vectors = 3, width = 1; // a row has three vectors of the kernel's load width
    if (auto given = dyn_cast_or_null<IntegerAttr>(parameter("width")))
      width = given.getInt();
    size_t given = 0; // a call omits the sizes behind the last one that is given
    for (const rt::NumberSignature &size : function.sizes) {
      bool isConstant = isa_and_nonnull<IntegerAttr>(parameter(size.name));
      int64_t number = isConstant ? cuda::integerParameter(kernel, size.name) : smallSize(size.name).value_or(0);
      if (size.isFlag)
        number = parameter(size.name) ? 1 : 0;
      else if (std::optional<size_t> same = function.findSize(size.initial);
               same && !isConstant && !smallSize(size.name))
        number = sizes[*same];
      else if (!isConstant && !smallSize(size.name) && size.initial.empty()) // the size is `hidden` or `bytes`
        number = vectors * width * (size.name == "bytes" ? elements["x"].getIntOrFloatBitWidth() / 8 : 1);
      if (size.name == "seq" && function.findSize("keys"))
        number = 70;
      if (size.name == "n" && function.name == "matmul") // whole loads of neighbouring columns, in two blocks
        number = 33 * width;
      if (size.name == "tokens" && function.name == "embed_gradient")
        number = 5 * cuda::tokensPerSegment;
      sizes.push_back(number);
      if (size.initial.empty() || parameter(size.name))
        given = sizes.size();
    }
    sizes.resize(given);
    for (const rt::NumberSignature &number : function.floats) {
      auto value =
          dyn_cast_or_null<FloatAttr>(number.initial.empty() ? parameterOfAny(number.name) : parameter(number.name));
      if (!value)
        return !number.initial.empty();
      floats.push_back(value.getValueAsDouble());
    }
    return true;
  }

  int64_t sizeOf(StringRef name) { return (*rt::allSizes(*row->function, sizes))[*row->function->findSize(name)]; }

  int64_t scalarOf(StringRef kind) {
    return llvm::StringSwitch<int64_t>(kind)
        .Case("STREAM", 1287)
        .Case("FIRST_SAMPLE", 3)
        .Case("FIRST_HEAD", 1)
        .Case("WHOLE_SEQUENCE", keys)
        .Case("FIRST_QUERY", parameter("keys") ? (keys - sizeOf("seq")) / (parameter("zigzag") ? 4 : 1) : 0)
        .Default(4); // first row of a table
  }

  SmallCall makeCall(StringRef store) {
    const rt::FunctionSignature &function = *row->function;
    SmallCall made;
    made.call.function = function.name;
    made.call.sizes.assign(sizes.begin(), sizes.end());
    made.call.floats.assign(floats.begin(), floats.end());
    for (const rt::ScalarSignature &scalar : function.scalars)
      made.call.scalars.push_back(constantScalar(context, scalarOf(scalar.name)));
    for (const std::string &flag : function.flags)
      if (parameter(flag))
        made.call.flags.set(flag, builder.getUnitAttr());
    if (!store.empty())
      made.call.flags.set(store, builder.getUnitAttr());
    bool repeats = row->operands.front().isRepeated;
    int64_t times =
        repeats ? cuda::integerParameter(kernel, "buffers") / static_cast<int64_t>(row->operands.size()) : 1;
    for (const rt::OperandSignature &operand : function.operands)
      for (int64_t time = 0; elements[operand.name] && time < times; ++time)
        add(made, operand);
    return made;
  }

  /// Appends the next buffer of a call.
  void add(SmallCall &made, const rt::OperandSignature &operand) {
    Type element = elements[operand.name];
    int64_t width = element.getIntOrFloatBitWidth() / 8;
    int64_t count = *rt::elementsOf(operand, *row->function, *rt::allSizes(*row->function, sizes));
    count /= operand.type == 'b' ? width : 1;
    made.memory.emplace_back(element, count).write(valuesOf(operand, count));
    auto number = static_cast<int64_t>(made.call.buffers.size());
    made.call.add(exec::BufferAttr::get(context, "inputs", offset, count * width, /*within=*/0, /*coordinates=*/{},
                                        builder.getStringAttr("operand" + Twine(number)), element, /*layer=*/0,
                                        /*part=*/0, /*bucket=*/1),
                  element);
  }

  /// Returns the initial contents of an operand: reals of both signs, and integers that are valid for the function.
  std::vector<double> valuesOf(const rt::OperandSignature &operand, int64_t count) {
    std::vector<double> values(static_cast<size_t>(count));
    bool isMove = row->function->findSize("by_choice").has_value();
    if (operand.isSlot) {
      static const llvm::StringMap<double> slots = {
          {"loss_sum", 5.5}, {"token_count", 37}, {"squared_norm", 91.25}, {"loss_scale", 8}, {"step", 3}};
      values[0] = slots.lookup(operand.name);
    } else if (operand.type != 'i') {
      for (double &value : values)
        value = std::uniform_real_distribution<double>(-1, 1)(random);
    } else if (isMove) {
      return routed(operand.name == "slots");
    } else if (operand.name == "positions" && row->function->name == "attend_cache") {
      for (int64_t token = 0; token < count; ++token)
        values[static_cast<size_t>(token)] = static_cast<double>(4 + token % sizeOf("seq"));
    } else if (operand.name == "visible_from") { // documents of 29 tokens
      for (int64_t token = 0; token < count; ++token)
        values[static_cast<size_t>(token)] =
            static_cast<double>((scalarOf("FIRST_QUERY") + token % sizeOf("seq")) / 29 * 29);
    } else if (operand.isRead()) {
      int64_t range = operand.name == "ids" ? sizeOf("rows") + 8 : operand.name == "rows" ? sizeOf("b") : cached;
      for (double &value : values)
        value = static_cast<double>(random() % static_cast<uint64_t>(range));
    }
    return values;
  }

  /// Returns a routing: choice c of token t goes to expert (t * 5 / 4 + c) % experts, in token order, up to the
  /// capacity.
  std::vector<double> routed(bool ofSlots) {
    int64_t batch = sizeOf("batch"), tokens = sizeOf("seq"), experts = sizeOf("experts");
    std::vector<double> values;
    std::map<std::pair<int64_t, int64_t>, int64_t> taken;
    for (int64_t i = 0; i < sizeOf("choices") * batch * tokens; ++i) {
      int64_t expert = (i % tokens * 5 / 4 + i / (batch * tokens)) % experts;
      int64_t slot = taken[{i / tokens % batch, expert}]++;
      values.push_back(static_cast<double>(!ofSlots ? expert : slot < sizeOf("capacity") ? slot : -1));
    }
    return values;
  }

  exec::KernelOp kernel;
  const rt::KernelSignature *row;
  MLIRContext *context;
  Builder builder;
  int64_t offset;
  std::mt19937 random{1};
  llvm::StringMap<Type> elements; ///< by operand; null for an optional operand that the call omits
  std::vector<int64_t> sizes;
  std::vector<double> floats;
};

pb::DataType dataType(Type element) {
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

/// Runs the runtime's CPU kernels.
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

  /// Runs the forward pass, because the backward pass reads its results.
  void attendBefore(const Call &backward, std::vector<CheckedBytes> &memory) {
    Call forward = backward;
    forward.function = "attention_forward";
    llvm::StringMap<CheckedBytes *> given;
    std::vector<const rt::OperandSignature *> operands =
        rt::operandsOf(*rt::findFunction(backward.function), nullptr, memory.size());
    for (auto [operand, bytes] : llvm::zip_equal(operands, memory))
      given[operand->name] = &bytes;
    std::vector<CheckedBytes *> read;
    for (const rt::OperandSignature &operand : rt::findFunction(forward.function)->operands)
      if (CheckedBytes *bytes = given.lookup(operand.name))
        read.push_back(bytes);
    run(forward, read);
  }

  void run(const Call &call, const std::vector<CheckedBytes *> &memory) {
    pb::LibraryCall message;
    message.set_function(static_cast<pb::LibraryCall::Function>(rt::findFunction(call.function)->number));
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

/// Checks the module's kernels without a body and records which of them a call has launched.
class CallCheck {
public:
  CallCheck(ModuleOp module, const pb::Plan &plan, KernelRunner &runner) : module(module), runner(runner) {
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
        result = kernel.emitOpError("'") << kernel.getSymName() << "' implements a library call that is not checked";
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

  exec::KernelOp kernelOf(const SpecialLaunch &launch) {
    DictionaryAttr parameters = launch.parameters.getDictionary(module.getContext());
    for (auto kernel : specials())
      if (kernel.getShape() == launch.shape && kernel.getGeometry() == launch.geometry &&
          kernel.getParameters() == parameters)
        return kernel;
    return {};
  }

  /// Returns a description of the mismatch between a call's launches and the reference. Returns an empty string if they
  /// match or if the module does not have the call's kernels.
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
    auto launches = targetOf(module).launchesOf(made.call, module.getContext(), newBuffer);
    SmallVector<exec::KernelOp> kernels;
    for (const SpecialLaunch &launch : launches)
      kernels.push_back(kernelOf(launch));
    bool isNew = llvm::any_of(kernels, [&](exec::KernelOp kernel) { return kernel && !launched.contains(kernel); });
    if (!isNew || llvm::is_contained(kernels, exec::KernelOp()))
      return "";
    std::vector<CheckedBytes> wanted = made.memory;
    Reference(runner).run(made.call, wanted);
    if (made.call.function == "attention_backward") // both read the reference's forward results
      for (StringRef name : {"out", "lse"}) {
        size_t index = *rt::findFunction(made.call.function)->findOperand(name);
        made.memory[index] = wanted[index];
      }
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
      for (Attribute attribute : launch.scalars) { // no RUN is the first one, so sums are added to
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
    double unit = 0x1p-17; // covers sums of some hundred terms and approximate functions
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
  std::map<std::string, uint32_t> numbers; ///< indices of the plan's kernels by symbol
  llvm::DenseSet<Operation *> launched;
};

} // namespace

LogicalResult checkCalls(ModuleOp module, const pb::Plan &plan, KernelRunner &runner) {
  return CallCheck(module, plan, runner).check();
}

} // namespace espalier::codegen
