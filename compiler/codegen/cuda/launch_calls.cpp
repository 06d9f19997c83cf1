// Replaces library calls for which GPUs have no library by kernel launches. A kernel's row in functions.def gives its
// buffers, scalars and extent. This file chooses the grid, the width of loads, and the scratch buffers that the kernels
// of one call share.
#include "compiler/codegen/cuda/launch_calls.h"

#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/policy.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "compiler/codegen/program_builder.h"
#include "format/functions.h"
#include "format/geometry.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace espalier::codegen {

namespace {

using cuda::AttentionConfig;
using cuda::AttentionPass;

int64_t bytesOf(Type element) { return element.getIntOrFloatBitWidth() / 8; }

/// Makes the launches that replace one call.
class Launches {
public:
  Launches(const Call &call, MLIRContext *context, function_ref<exec::BufferAttr(Type)> newBuffer)
      : call(call), function(*rt::findFunction(call.function)), builder(context), newBuffer(newBuffer) {
    std::vector<const rt::OperandSignature *> operands =
        rt::operandsOf(function, nullptr, call.buffers.size(), call.sizes);
    for (auto [size, number] : llvm::zip(function.sizes, *rt::allSizes(function, call.sizes)))
      numbers[size.name] = number;
    for (auto [operand, buffer, element] : llvm::zip(operands, call.buffers, call.elements)) {
      buffers[operand->name] = buffer;
      elements[operand->name] = element;
    }
    // Kernels count elements of an operand of type b, but the call counts bytes.
    if (function.operands.front().type == 'b')
      numbers[function.operands.front().dims.back().name] /= bytesOf(call.elements.front());
    numbers["sums"] = static_cast<int64_t>(call.buffers.size() / function.operands.size());
  }

  /// Returns the launches, or nothing for a function that remains a library call.
  SmallVector<SpecialLaunch> make() {
    using Make = void (Launches::*)();
    static const llvm::StringMap<Make> makers = {{"attention_forward", &Launches::forward},
                                                 {"attention_backward", &Launches::backward},
                                                 {"attend_cache", &Launches::attendCache},
                                                 {"matmul", &Launches::fewRows},
                                                 {"take_row", &Launches::takeRow},
                                                 {"embed", &Launches::embed},
                                                 {"embed_gradient", &Launches::embedGradient},
                                                 {"route", &Launches::route},
                                                 {"dispatch", &Launches::dispatch},
                                                 {"combine", &Launches::combine},
                                                 {"rope", &Launches::rope},
                                                 {"concat", &Launches::concat},
                                                 {"columns", &Launches::takeColumns},
                                                 {"squared_norm", &Launches::squaredNorm},
                                                 {"reduce_parts", &Launches::reduceParts},
                                                 {"update_scalars", &Launches::updateScalars}};
    if (Make make = makers.lookup(call.function))
      (this->*make)();
    return std::move(launches);
  }

private:
  Attribute scalar(int64_t value) { return constantScalar(builder.getContext(), value); }
  exec::GeometryAttr geometry(int64_t threads, int64_t extent, int64_t columns = 0, int64_t shared = 0) {
    return exec::GeometryAttr::get(builder.getContext(), threads, extent, columns, shared);
  }
  int64_t number(StringRef name) const { return numbers.at(name); }

  /// Allocates a scratch buffer that kernels of the call share, as the operand `operand` of their rows.
  void scratch(StringRef operand, Type element, ArrayRef<int64_t> shape, ArrayRef<StringRef> names) {
    SmallVector<StringAttr> dims;
    for (StringRef name : names)
      dims.push_back(builder.getStringAttr(name));
    buffers[operand] = newBuffer(namedTensor(shape, dims, element));
  }

  /// Returns the largest number of neighbouring elements, up to `limit`, that one load can read from rows of `length`
  /// elements of all these operands.
  int64_t widthFor(ArrayRef<StringRef> operands, int64_t length, int64_t limit) const {
    bool areAligned =
        llvm::all_of(operands, [&](StringRef operand) { return cuda::isAligned(buffers.at(operand), 16); });
    int64_t width = areAligned ? limit : 1;
    while (length % width != 0)
      width /= 2;
    return width;
  }

  bool addsUnlessFirst() const { return !call.flags.get("always_adds") && call.flags.get("accumulate"); }

  /// Returns the parameters of a kernel's code: element types, and the numbers that its row lists as `code`.
  NamedAttrList parametersOf(const rt::KernelSignature &row) {
    NamedAttrList parameters;
    for (const rt::OperandSignature &operand : row.operands) {
      if ((operand.type == 'f' || operand.isOptional) && elements.contains(operand.name))
        parameters.set(operand.name, TypeAttr::get(elements[operand.name]));
      else if (operand.type == 'e' || operand.type == 'b')
        parameters.set("type", TypeAttr::get(call.elements.front()));
      if (operand.isStored() && call.flags.get("always_adds"))
        parameters.set("always_adds", builder.getUnitAttr());
      else if (operand.isStored() && call.flags.get("accumulate"))
        parameters.set("accumulate", builder.getUnitAttr());
    }
    for (const std::string &name : row.code) {
      if (std::optional<size_t> index = function.findFloat(name)) {
        if (*index < call.floats.size())
          parameters.set(name, builder.getF64FloatAttr(call.floats[*index]));
      } else if (std::optional<size_t> index = function.findSize(name)) {
        const rt::NumberSignature &size = function.sizes[*index];
        std::optional<size_t> other = function.findSize(size.initial);
        bool isOtherSize = other && !function.isWhole(name);
        if (other && !isOtherSize) { // a dimension of its own
          if (number(name) != number(size.initial))
            parameters.set(name, builder.getI64IntegerAttr(number(name)));
        } else if (!size.isFlag && !isOtherSize &&
                   (size.initial.empty() || std::to_string(number(name)) != size.initial))
          parameters.set(name, builder.getI64IntegerAttr(number(name)));
        else if (!size.isFlag && !isOtherSize)
          continue; // the number that stands for a size that is left out
        else if (size.isFlag ? number(name) != 0 : *index < call.sizes.size())
          parameters.set(name, builder.getUnitAttr());
      } else if (call.flags.get(name)) {
        parameters.set(name, builder.getUnitAttr());
      }
    }
    return parameters;
  }

  /// Returns the value of a scalar, or null if the launch does not have the scalar.
  Attribute scalarOf(const rt::ScalarSignature &row) {
    if (row.name == "FIRST")
      return addsUnlessFirst() ? firstScalar(builder.getContext(), call.buffers.back().getBucket()) : Attribute();
    if (row.name == "SEED")
      return exec::ScalarAttr::get(builder.getContext(), 0, 0, 0, /*seed=*/1, Attribute(), 0);
    if (row.isSize() && row.isOptional &&
        number(row.name) == number(function.sizes[*function.findSize(row.name)].initial))
      return Attribute();
    std::optional<size_t> ofCall = function.findScalar(row.name);
    return ofCall ? call.scalars[*ofCall] : scalar(number(row.name));
  }

  int64_t extentOf(const rt::KernelSignature &row, exec::GeometryAttr geometry) {
    int64_t extent = 1;
    for (const rt::SignatureDim &dim : row.extent)
      if (dim.flag.empty() || number(dim.flag) != 0)
        extent *= dim.isTiled ? static_cast<int64_t>(llvm::alignTo(number(dim.name), geometry.getExtentPerBlock()))
                              : number(dim.name);
    return extent;
  }

  /// Appends the launch of a kernel. `width` is the number of neighbouring elements that a thread loads at once, or 0
  /// if the kernel has no such parameter.
  void add(StringRef shape, exec::GeometryAttr geometry, int64_t width = 0) {
    const rt::KernelSignature &row = *rt::findKernel(shape);
    SpecialLaunch launch{.shape = shape, .parameters = parametersOf(row), .geometry = geometry, .outputs = 0};
    for (const rt::OperandSignature &operand : row.operands) {
      if (operand.isRepeated)
        launch.buffers = call.buffers;
      else if (auto buffer = buffers.find(operand.name); buffer != buffers.end())
        launch.buffers.push_back(buffer->second);
      launch.outputs += operand.isWritten() ? (operand.isRepeated ? number("sums") : 1) : 0;
    }
    for (const rt::ScalarSignature &scalar : row.scalars)
      if (Attribute made = scalarOf(scalar))
        launch.scalars.push_back(made);
    launch.extent = extentOf(row, geometry);
    if (width > 0)
      launch.parameters.set("width", builder.getI64IntegerAttr(width));
    launch.parameters.set("buffers", builder.getI64IntegerAttr(launch.buffers.size()));
    launch.parameters.set("scalars", builder.getI64IntegerAttr(launch.scalars.size()));
    launches.push_back(std::move(launch));
  }

  void attention(AttentionPass pass, StringRef shape) {
    auto config = AttentionConfig::of(parametersOf(*rt::findKernel(shape)).getDictionary(builder.getContext()));
    cuda::TileSizes tiles = cuda::attentionTiles(pass, config);
    add(shape, geometry(tiles.threads(), tiles.rows, 0, cuda::attentionSharedBytes(pass, config)));
  }

  void scratchOfQueries(StringRef operand);
  void forward();
  void backward();

  void attendCache() {
    int64_t headDim = number("head_dim"), valueDim = number("value_dim"), common = std::gcd(headDim, valueDim);
    int64_t width =
        widthFor({"q", "k", "v", "positions", "out", "keys", "values"}, common, 16 / bytesOf(call.elements.front()));
    while (width > 1 && 16 * width >= std::min(headDim, valueDim)) // so that every lane has elements to load
      width /= 2;
    add("keep_rows", geometry(256, 8), width);
    add("attend_cache", geometry(32 * cuda::cacheWarps, 1, 0, 4 * cuda::cacheWarps * (valueDim + 2)), width);
  }

  void takeRow() {
    add("take_row", geometry(256, 1), widthFor({"x", "row"}, number("bytes"), 16 / bytesOf(call.elements.front())));
  }

  void embed() { add("embed", geometry(256, 8), widthFor({"table", "out"}, number("hidden"), 8)); }

  void embedGradient() {
    int64_t tokens = number("tokens"), hidden = number("hidden"), threads = 128;
    numbers["segments"] = llvm::divideCeil(tokens, cuda::tokensPerSegment);
    numbers["sides"] = 2;
    scratch("order", builder.getI32Type(), {tokens}, {"token"});
    scratch("partial", builder.getF32Type(), {number("segments"), 2, hidden}, {"segment", "side", "hidden"});
    add("order_tokens", geometry(256, cuda::rowsPerOrderBlock, 0, cuda::orderSharedBytes));
    int64_t width = widthFor({"dout", "dtable"}, hidden, 4);
    add("sum_segments", geometry(threads, 1, threads * width), width);
    add("join_segments", geometry(threads, 1, threads * width), width);
  }

  void route() {
    add("choose_experts", geometry(256, 8));
    add("give_slots", geometry(256, 8));
  }

  void dispatch() {
    scratch("places", builder.getI32Type(), {number("experts"), number("batch"), number("capacity")},
            {"expert", "batch", "capacity"});
    add("find_rows", geometry(256, 1));
    add("dispatch", geometry(256, 8), widthFor({"x", "y"}, number("hidden"), 8));
  }

  void combine() { add("combine", geometry(256, 8), widthFor({"x", "y"}, number("hidden"), 8)); }

  void rope() {
    int64_t headDim = number("head_dim"), rotary = number("rotary") > 0 ? number("rotary") : headDim;
    int64_t width = widthFor({"x", "y"}, std::gcd(std::gcd(headDim / 2, rotary / 2), number("first") / 2), 2);
    int64_t threads = 256, perToken = headDim / 2 / width;
    add("rope", geometry(threads, std::max<int64_t>(threads / perToken, 1)), width);
  }

  /// A thread moves a few neighbouring columns of a row in all heads.
  void columns(StringRef shape, ArrayRef<StringRef> operands, ArrayRef<StringRef> sizes, StringRef moved) {
    int64_t common = number("columns"), threads = 256;
    for (StringRef size : sizes)
      common = std::gcd(common, number(size));
    int64_t width = widthFor(operands, common, 16 / bytesOf(call.elements.front()));
    int64_t perRow = std::max<int64_t>(number(moved) / width, 1);
    add(shape, geometry(threads, std::max<int64_t>(threads / perRow, 1)), width);
  }
  void concat() { columns("concat", {"a", "b", "y"}, {"a_columns", "b_columns"}, "columns"); }
  void takeColumns() { columns("columns", {"x", "y"}, {"first", "taken"}, "taken"); }

  void squaredNorm();
  void fewRows();

  void reduceParts() { // the grid has one block per sum in y
    int64_t threads = 256;
    elements["out"] = call.elements.back();
    add("reduce_parts", geometry(threads, cuda::columnsPerPartsBlock, /*columns=*/1, threads * 4));
  }

  void updateScalars() { add("update_scalars", geometry(32, 1)); }

  const Call &call;
  const rt::FunctionSignature &function;
  Builder builder;
  function_ref<exec::BufferAttr(Type)> newBuffer;
  llvm::StringMap<exec::BufferAttr> buffers; ///< by operand name
  llvm::StringMap<Type> elements;            ///< element types of the call's operands, by name
  llvm::StringMap<int64_t> numbers;          ///< sizes of the call, and sizes that only its kernels have, by name
  SmallVector<SpecialLaunch> launches;
};

/// Allocates a number per query as scratch.
void Launches::scratchOfQueries(StringRef operand) {
  scratch(operand, builder.getF32Type(), {number("batch"), number("seq"), number("kv_heads"), number("group")},
          {"batch", "seq", "kv_heads", "group"});
}

void Launches::forward() {
  if (!number("keeps_maxima"))
    return attention(AttentionPass::Forward, "attention_forward");
  int64_t threads = 512;
  scratchOfQueries("largest");
  attention(AttentionPass::Forward, "attention_forward_maxima");
  add("keep_maxima", geometry(threads, 1, 0, threads / 32 * 4));
}

void Launches::backward() {
  scratchOfQueries("delta");
  attention(AttentionPass::QueryGradient, "attention_query_gradient");
  attention(AttentionPass::KeyGradient, "attention_key_gradient");
}

/// Products of experts in generation. A library multiplies the rows of all experts, and reads their weights.
void Launches::fewRows() {
  bool isPlain = call.flags.empty() && call.buffers.size() == 3;
  if (!isPlain || number("batch") < 2 || number("m") > cuda::mostFewRows)
    return;
  int64_t width = widthFor({"b"}, number("n"), 16 / bytesOf(elements["b"]));
  while (width > 1 && width * number("m") > cuda::mostFewSums)
    width /= 2;
  int64_t columns = 32 * width;
  add("few_rows", geometry(32 * cuda::fewRowsWarps, 1, columns, 4 * cuda::fewRowsWarps * columns), width);
}

void Launches::squaredNorm() {
  constexpr int64_t mostBlocks = 1024, leastElements = 16384, threads = 256;
  int64_t elements = number("elements");
  int64_t mayBe = std::clamp<int64_t>(llvm::divideCeil(elements, leastElements), 1, mostBlocks);
  int64_t perBlock = std::max<int64_t>(llvm::alignTo(llvm::divideCeil(elements, mayBe), rt::squareBlockMultiple), 1);
  int64_t blocks = std::max<int64_t>(llvm::divideCeil(elements, perBlock), 1);
  numbers["BLOCK_ROWS"] = perBlock;
  numbers["blocks"] = blocks;
  numbers["words"] = 2;
  scratch("sums", builder.getF32Type(), {blocks, 2}, {"part", "word"}); // each sum is an f64, stored as two words
  add("square_blocks", geometry(threads, 1, 0, threads * 8), widthFor({"x"}, perBlock, 4));
  add("add_squares", geometry(threads, 1, 0, threads * 8));
}

} // namespace

SmallVector<SpecialLaunch> cuda::launchesOf(const Call &call, MLIRContext *context,
                                            function_ref<exec::BufferAttr(Type)> newBuffer) {
  return Launches(call, context, newBuffer).make();
}

} // namespace espalier::codegen
