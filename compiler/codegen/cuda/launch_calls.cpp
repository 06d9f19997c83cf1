// Turns library calls for which GPUs have no library into kernel launches: chooses kernel, grid, buffers and scalars.
// The comments of the kernels define their buffers and scalars.
#include "compiler/codegen/cuda/launch_calls.h"

#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "runtime/geometry.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

using cuda::AttentionConfig;
using cuda::AttentionPass;
using cuda::SpecialLaunch;

/// Returns the most neighbours, up to `limit`, that one access can read from rows of `length` elements.
int64_t widthFor(ArrayRef<exec::BufferAttr> buffers, int64_t length, int64_t limit) {
  bool areAligned = llvm::all_of(buffers, [](exec::BufferAttr buffer) { return cuda::isAligned(buffer, 16); });
  int64_t width = areAligned ? limit : 1;
  while (length % width != 0)
    width /= 2;
  return width;
}

/// Makes the launches of one call.
class Launches {
public:
  Launches(const ProgramBuilder::Call &call, MLIRContext *context, function_ref<exec::BufferAttr(Type)> newBuffer)
      : call(call), builder(context), newBuffer(newBuffer) {}

  /// Returns the launches; empty for calls that remain library calls.
  SmallVector<SpecialLaunch> make() {
    if (call.function == "attention_forward")
      forward();
    else if (call.function == "attention_backward")
      backward();
    else if (call.function == "attend_cache")
      attendCache();
    else if (call.function == "take_row")
      takeRow();
    else if (call.function == "embed")
      embed();
    else if (call.function == "embed_gradient")
      embedGradient();
    else if (call.function == "route")
      route();
    else if (call.function == "dispatch" || call.function == "combine")
      moveRows(/*isDispatch=*/call.function == "dispatch");
    else if (call.function == "rope")
      rope();
    else if (call.function == "squared_norm")
      squaredNorm();
    else if (call.function == "reduce_parts")
      reduceParts();
    else if (call.function == "update_scalars")
      updateScalars();
    return std::move(launches);
  }

private:
  Attribute scalar(int64_t value) { return constantScalar(builder.getContext(), value); }
  exec::GeometryAttr geometry(int64_t threads, int64_t extent, int64_t columns = 0, int64_t shared = 0) {
    return exec::GeometryAttr::get(builder.getContext(), threads, extent, columns, shared);
  }
  exec::BufferAttr scratch(Type element, ArrayRef<int64_t> shape, ArrayRef<StringRef> names) {
    SmallVector<StringAttr> dims;
    for (StringRef name : names)
      dims.push_back(builder.getStringAttr(name));
    return newBuffer(namedTensor(shape, dims, element));
  }

  /// Adds a launch. Completes `parameters` with the numbers of buffers and scalars.
  void add(SpecialLaunch launch) {
    launch.parameters.set("buffers", builder.getI64IntegerAttr(launch.buffers.size()));
    launch.parameters.set("scalars", builder.getI64IntegerAttr(launch.scalars.size()));
    launches.push_back(std::move(launch));
  }

  bool alwaysAdds() const { return static_cast<bool>(call.flags.get("always_adds")); }

  /// Sets the parameter and the scalar of a kernel that may add to the call's last buffer.
  void setDestination(SpecialLaunch &launch) {
    if (alwaysAdds())
      launch.parameters.set("always_adds", builder.getUnitAttr());
    else if (call.flags.get("accumulate")) {
      launch.parameters.set("accumulate", builder.getUnitAttr());
      launch.scalars.push_back(firstScalar(builder.getContext(), call.buffers.back().getBucket()));
    }
  }

  // Attention sizes.
  int64_t batch() const { return call.sizes[0]; }
  int64_t queries() const { return call.sizes[1]; }
  int64_t keys() const { return call.sizes.size() > 5 ? call.sizes[5] : queries(); }
  int64_t kvHeads() const { return call.sizes[2]; }
  int64_t heads() const { return kvHeads() * call.sizes[3]; }

  AttentionConfig config() {
    return {.element = call.elements[0],
            .headDim = call.sizes[4],
            .isCausal = static_cast<bool>(call.flags.get("causal")),
            .isPart = call.sizes.size() > 5,
            .scale = call.floats[0],
            .rate = call.floats[1]};
  }

  void attention(AttentionPass pass, StringRef shape, ArrayRef<exec::BufferAttr> buffers, int64_t outputs) {
    cuda::TileSizes tiles = cuda::attentionTiles(pass, config());
    bool ofKeys = pass == AttentionPass::KeyGradient;
    SpecialLaunch launch{.shape = shape,
                         .parameters = config().attributes(builder.getContext()),
                         .geometry =
                             geometry(tiles.threads(), tiles.rows, 0, cuda::attentionSharedBytes(pass, config())),
                         .buffers = SmallVector<exec::BufferAttr>(buffers),
                         .outputs = outputs,
                         .extent = batch() * (ofKeys ? kvHeads() : heads()) *
                                   static_cast<int64_t>(llvm::alignTo(ofKeys ? keys() : queries(), tiles.rows))};
    for (int64_t size : {batch(), queries(), keys(), kvHeads(), call.sizes[3], call.sizes[4]})
      launch.scalars.push_back(scalar(size));
    launch.scalars.push_back(call.scalars[4]);                             // position of the first query
    launch.scalars.append(call.scalars.begin(), call.scalars.begin() + 4); // random stream, sample, head, sequence
    launch.scalars.push_back(exec::ScalarAttr::get(builder.getContext(), 0, 0, 0, /*seed=*/1, Attribute(), 0));
    add(std::move(launch));
  }

  void forward() {
    ArrayRef<exec::BufferAttr> all = call.buffers; // q, k, v, out, lse, step
    attention(AttentionPass::Forward, "attention_forward", {all[0], all[1], all[2], all[5], all[3], all[4]}, 2);
  }

  void backward() {
    ArrayRef<exec::BufferAttr> all = call.buffers; // q, k, v, out, lse, dout, step, dq, dk, dv
    exec::BufferAttr delta = scratch(builder.getF32Type(), {batch(), queries(), kvHeads(), call.sizes[3]},
                                     {"batch", "seq", "kv_heads", "group"});
    attention(AttentionPass::QueryGradient, "attention_query_gradient",
              {all[0], all[1], all[2], all[4], all[5], all[3], all[6], all[7], delta}, 2);
    attention(AttentionPass::KeyGradient, "attention_key_gradient",
              {all[0], all[1], all[2], all[4], all[5], delta, all[6], all[8], all[9]}, 2);
  }

  void attendCache() {
    ArrayRef<exec::BufferAttr> all = call.buffers; // q, k, v, positions, out, keys, values
    int64_t headDim = call.sizes[4], tokens = batch() * queries();
    int64_t width = widthFor(all, headDim, 16 / (call.elements[0].getIntOrFloatBitWidth() / 8));
    while (width > 1 && 16 * width >= headDim) // until every lane has a piece
      width /= 2;
    SpecialLaunch keep{.shape = "keep_rows", .geometry = geometry(256, 8),
                       .buffers = {all[1], all[2], all[3], all[5], all[6]}, .outputs = 2,
                       .extent = tokens * kvHeads()};
    for (int64_t size : call.sizes)
      keep.scalars.push_back(scalar(size));
    keep.parameters.set("type", TypeAttr::get(call.elements[0]));
    keep.parameters.set("head_dim", builder.getI64IntegerAttr(headDim));
    keep.parameters.set("width", builder.getI64IntegerAttr(width));
    SpecialLaunch attend = keep;
    add(std::move(keep));
    attend.shape = "attend_cache";
    attend.geometry = geometry(32 * cuda::cacheWarps, 1, 0, 4 * cuda::cacheWarps * (headDim + 2));
    attend.buffers = {all[0], all[3], all[5], all[6], all[4]};
    attend.outputs = 1;
    attend.extent = tokens * heads();
    attend.parameters.set("scale", builder.getF64FloatAttr(call.floats[0]));
    add(std::move(attend));
  }

  void takeRow() { // sizes: sequences, rows of each, bytes of a row
    int64_t bytes = call.elements[0].getIntOrFloatBitWidth() / 8, columns = call.sizes[2] / bytes;
    SpecialLaunch launch{.shape = "take_row", .geometry = geometry(256, 1), .buffers = call.buffers,
                         .scalars = {scalar(call.sizes[1]), scalar(columns)}, .extent = call.sizes[0]};
    launch.parameters.set("type", TypeAttr::get(call.elements[0]));
    launch.parameters.set("width", builder.getI64IntegerAttr(
                                       widthFor({call.buffers[0], call.buffers[2]}, columns, 16 / bytes)));
    add(std::move(launch));
  }

  void embed() {
    int64_t tokens = call.sizes[0], rows = call.sizes[1], hidden = call.sizes[2];
    SpecialLaunch launch{.shape = "embed",
                         .geometry = geometry(256, 8),
                         .buffers = call.buffers,
                         .scalars = {call.scalars[0], scalar(rows), scalar(hidden)},
                         .extent = tokens};
    launch.parameters.set("from", TypeAttr::get(call.elements[0]));
    launch.parameters.set("to", TypeAttr::get(call.elements[2]));
    launch.parameters.set("width", builder.getI64IntegerAttr(widthFor({call.buffers[0], call.buffers[2]}, hidden, 8)));
    add(std::move(launch));
  }

  void embedGradient() {
    int64_t tokens = call.sizes[0], rows = call.sizes[1], hidden = call.sizes[2];
    int64_t segments = llvm::divideCeil(tokens, cuda::tokensPerSegment), threads = 128;
    exec::BufferAttr ids = call.buffers[0], dout = call.buffers[1], table = call.buffers[2];
    exec::BufferAttr order = scratch(builder.getI32Type(), {tokens}, {"token"});
    exec::BufferAttr partial = scratch(builder.getF32Type(), {segments, 2, hidden}, {"segment", "side", "hidden"});
    SpecialLaunch sort{.shape = "order_tokens",
                       .geometry = geometry(256, cuda::rowsPerOrderBlock, 0, cuda::orderSharedBytes),
                       .buffers = {ids, order, table},
                       .outputs = 2,
                       .scalars = {call.scalars[0], scalar(rows), scalar(hidden), scalar(tokens)},
                       .extent = rows};
    setDestination(sort);
    add(std::move(sort));
    IntegerAttr width = builder.getI64IntegerAttr(widthFor({dout, table}, hidden, 4));
    SpecialLaunch sum{.shape = "sum_segments",
                      .geometry = geometry(threads, 1, threads * width.getInt()),
                      .buffers = {ids, order, dout, partial, table},
                      .outputs = 2,
                      .scalars = {scalar(hidden), call.scalars[0], scalar(tokens), scalar(rows), scalar(2)},
                      .extent = segments};
    sum.parameters.set("width", width);
    SpecialLaunch join = sum;
    sum.parameters.set("type", TypeAttr::get(call.elements[1]));
    add(std::move(sum));
    join.shape = "join_segments";
    join.buffers = {ids, order, partial, table};
    join.outputs = 1;
    add(std::move(join));
  }

  void route() { // sizes: batch, seq, experts, choices, capacity
    int64_t tokens = call.sizes[0] * call.sizes[1];
    SpecialLaunch choose{.shape = "choose_experts", .geometry = geometry(256, 8),
                         .buffers = {call.buffers[0], call.buffers[1]}, .extent = tokens};
    for (int64_t size : call.sizes)
      choose.scalars.push_back(scalar(size));
    SpecialLaunch give = choose;
    choose.parameters.set("type", TypeAttr::get(call.elements[0]));
    add(std::move(choose));
    give.shape = "give_slots";
    give.buffers = {call.buffers[1], call.buffers[2]};
    give.extent = call.sizes[2] * call.sizes[0];
    add(std::move(give));
  }

  void moveRows(bool isDispatch) { // sizes: choices, batch, seq, hidden, experts, capacity, rows by choice
    int64_t choices = call.sizes[0], batch = call.sizes[1], seq = call.sizes[2], hidden = call.sizes[3];
    int64_t experts = call.sizes[4], capacity = call.sizes[5], ofTokens = (call.sizes[6] ? choices : 1) * batch * seq;
    SpecialLaunch move{.shape = isDispatch ? "dispatch" : "combine", .geometry = geometry(256, 8),
                       .buffers = call.buffers, .extent = isDispatch ? experts * batch * capacity : ofTokens};
    for (int64_t size : ArrayRef(call.sizes).drop_back())
      move.scalars.push_back(scalar(size));
    if (isDispatch) {
      exec::BufferAttr places =
          scratch(builder.getI32Type(), {experts, batch, capacity}, {"expert", "batch", "capacity"});
      add({.shape = "find_rows", .geometry = geometry(256, 1), .buffers = {call.buffers[0], call.buffers[1], places},
           .scalars = move.scalars, .extent = experts * batch});
      move.buffers.erase(move.buffers.begin());
      move.buffers.front() = places;
    }
    move.parameters.set("from", TypeAttr::get(call.elements[2]));
    move.parameters.set("to", TypeAttr::get(call.elements.back()));
    if (call.elements.size() == 5)
      move.parameters.set("weights", TypeAttr::get(call.elements[3]));
    if (call.sizes[6])
      move.parameters.set("has_choice", builder.getUnitAttr());
    move.parameters.set("width", builder.getI64IntegerAttr(
                                     widthFor({call.buffers[2], call.buffers.back()}, hidden, 8)));
    add(std::move(move));
  }

  void rope() {
    int64_t headDim = call.sizes[2], width = widthFor({call.buffers[0], call.buffers[2]}, headDim / 2, 2);
    int64_t threads = 256, perToken = headDim / 2 / width;
    SpecialLaunch launch{.shape = "rope",
                         .geometry = geometry(threads, std::max<int64_t>(threads / perToken, 1)),
                         .buffers = call.buffers,
                         .scalars = {scalar(call.sizes[1]), scalar(headDim)},
                         .extent = call.sizes[0]};
    launch.parameters.set("from", TypeAttr::get(call.elements[0]));
    launch.parameters.set("to", TypeAttr::get(call.elements[2]));
    launch.parameters.set("head_dim", builder.getI64IntegerAttr(headDim));
    launch.parameters.set("width", builder.getI64IntegerAttr(width));
    launch.parameters.set("theta", builder.getF64FloatAttr(call.floats[0]));
    if (call.sizes[3] != 0)
      launch.parameters.set("inverse", builder.getUnitAttr());
    add(std::move(launch));
  }

  void squaredNorm() {
    constexpr int64_t mostBlocks = 1024, leastElements = 16384, threads = 256;
    int64_t elements = call.sizes[0];
    int64_t mayBe = std::clamp<int64_t>(llvm::divideCeil(elements, leastElements), 1, mostBlocks);
    int64_t perBlock = std::max<int64_t>(llvm::alignTo(llvm::divideCeil(elements, mayBe), rt::squareBlockMultiple), 1);
    int64_t blocks = std::max<int64_t>(llvm::divideCeil(elements, perBlock), 1);
    exec::BufferAttr sums = scratch(builder.getF32Type(), {blocks, 2}, {"part", "word"}); // f64
    SpecialLaunch squares{.shape = "square_blocks",
                          .geometry = geometry(threads, 1, 0, threads * 8),
                          .buffers = {call.buffers[0], sums},
                          .scalars = {scalar(elements), scalar(perBlock), scalar(2)},
                          .extent = blocks};
    squares.parameters.set("width", builder.getI64IntegerAttr(widthFor({call.buffers[0]}, perBlock, 4)));
    add(std::move(squares));
    SpecialLaunch sum{.shape = "add_squares",
                      .geometry = geometry(threads, 1, 0, threads * 8),
                      .buffers = {sums, call.buffers[1]},
                      .scalars = {scalar(blocks), scalar(2)}};
    sum.parameters.set("weight", builder.getF64FloatAttr(call.floats[0]));
    add(std::move(sum));
  }

  void reduceParts() { // one block per sum along y
    int64_t threads = 256;
    SpecialLaunch launch{.shape = "reduce_parts",
                         .geometry = geometry(threads, cuda::columnsPerPartsBlock, /*columns=*/1, threads * 4),
                         .buffers = call.buffers,
                         .outputs = call.outputs,
                         .scalars = {scalar(call.outputs), scalar(call.sizes[1]), scalar(call.sizes[0])},
                         .extent = call.sizes[1]};
    setDestination(launch);
    add(std::move(launch));
  }

  void updateScalars() {
    SpecialLaunch launch{.shape = "update_scalars", .geometry = geometry(32, 1), .buffers = call.buffers, .outputs = 2};
    launch.parameters.set("max_grad_norm", builder.getF64FloatAttr(call.floats[0]));
    add(std::move(launch));
  }

  const ProgramBuilder::Call &call;
  Builder builder;
  function_ref<exec::BufferAttr(Type)> newBuffer;
  SmallVector<SpecialLaunch> launches;
};

} // namespace

SmallVector<SpecialLaunch> cuda::launchesOf(const ProgramBuilder::Call &call, MLIRContext *context,
                                            function_ref<exec::BufferAttr(Type)> newBuffer) {
  return Launches(call, context, newBuffer).make();
}

bool ProgramBuilder::launchInstead(const Call &call) {
  auto launches = cuda::launchesOf(call, builder.getContext(), [this](Type type) { return newBuffer(type); });
  for (const SpecialLaunch &launch : launches) {
    exec::KernelOp kernel =
        kernels.special(launch.shape, launch.parameters.getDictionary(builder.getContext()), launch.geometry);
    emit(kernel, {{launch.buffers.begin(), launch.buffers.end()},
                  launch.outputs,
                  {launch.scalars.begin(), launch.scalars.end()},
                  launch.extent,
                  /*grain=*/1,
                  /*inPlace=*/{}});
  }
  return !launches.empty();
}

} // namespace espalier::codegen
