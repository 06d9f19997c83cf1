// ATTENTION_FORWARD and ATTENTION_BACKWARD. A part is one (sample, kv head). In the forward pass, a part is also one
// block of queries.
#include "format/abi.h"
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <optional>

namespace espalier::rt {

namespace {

/// The shape and its limits, shared by forward and backward.
class Attention : public LibraryKernel {
protected:
  Attention(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops) : loops_(loops) {
    CallReader reader(call, types);
    step_ = reader.buffer("step");
    if (reader.has("visible_from"))
      visibleFrom_ = reader.buffer("visible_from");
    shape_ = {.batch = reader.size("batch"),
              .sequence = reader.size("seq"),
              .keys = reader.size("keys"),
              .kvHeads = reader.size("kv_heads"),
              .group = reader.size("group"),
              .headDim = reader.size("head_dim", 1),
              .valueDim = reader.size("value_dim", 1),
              .causal = call.causal(),
              .scale = static_cast<float>(reader.real("scale")),
              .storage = reader.storage("q"),
              .window = reader.size("window"),
              .softCap = static_cast<float>(reader.real("soft_cap")),
              .zigzag = reader.size("zigzag") != 0};
    rate_ = reader.real("rate");
    if (!(rate_ >= 0 && rate_ < 1))
      reader.refuse("dropout rate is " + std::to_string(rate_) + ", needs to be at least 0 and below 1");
    if (rate_ > 0)
      reader.needScalars(4, "for dropout");
    if (shape_.keys != shape_.sequence)
      reader.needScalars(5, "for a part of the queries");
    if (shape_.zigzag && (shape_.keys == shape_.sequence || shape_.sequence % 2 != 0))
      reader.refuse("is in zigzag order, needs an even number of queries, a part of the positions");
    if (visibleFrom_ && !shape_.causal)
      reader.refuse("has visible_from, needs to be causal");
    if (shape_.window > 0 && !shape_.causal)
      reader.refuse("has a window of " + std::to_string(shape_.window) + " keys, needs to be causal");
    if (!(shape_.softCap >= 0))
      reader.refuse("soft_cap is " + std::to_string(shape_.softCap) + ", needs to be at least 0");
    if (!(shape_.scale > 0))
      reader.refuse("scale is " + std::to_string(shape_.scale) + ", needs to be above 0");
    for (const char *columns : {"head_dim", "value_dim"})
      if (reader.size(columns) > cpu::kLargestHead)
        reader.refuse(std::string(columns) + " is " + std::to_string(reader.size(columns)) + ", needs to be at most " +
                      std::to_string(cpu::kLargestHead));
  }

  cpu::AttentionDropout dropout(const CallArguments &arguments) const {
    if (rate_ == 0)
      return {};
    return {.threshold = dropoutThreshold(rate_),
            .scale = static_cast<float>(1 / (1 - rate_)),
            .seed = arguments.seed,
            .step = *static_cast<const uint32_t *>(arguments.buffers[step_]),
            .stream = static_cast<uint32_t>(arguments.scalars[0]),
            .firstSample = static_cast<uint32_t>(arguments.scalars[1]),
            .firstHead = arguments.scalars[2],
            .unsplitSequence = arguments.scalars[3]};
  }

  /// Returns the position of q's first query. A position after the last key attends to all keys.
  int64_t firstPosition(const CallArguments &arguments) const {
    return shape_.keys == shape_.sequence ? 0 : std::clamp<int64_t>(arguments.scalars[4], 0, shape_.keys);
  }

  /// Returns the first visible keys of a sample; null if the call has none.
  const int32_t *visibleFrom(const CallArguments &arguments, int64_t sample) const {
    return visibleFrom_ ? static_cast<const int32_t *>(arguments.buffers[*visibleFrom_]) + sample * shape_.sequence
                        : nullptr;
  }

  const cpu::Loops &loops_;
  cpu::AttentionShape shape_;
  double rate_ = 0;
  int step_ = 0;                   ///< the buffer with the step
  std::optional<int> visibleFrom_; ///< the buffer with the first visible keys
};

class AttentionForward final : public Attention {
public:
  AttentionForward(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : Attention(call, types, loops) {
    // Large groups share the packed keys among their heads, so they need fewer queries per part.
    queries_ = {shape_.sequence, std::max<int64_t>(64, 256 / std::max<int64_t>(shape_.group, 1))};
    CallReader reader(call, types);
    out_ = reader.buffer("out");
    if (reader.has("maxima"))
      maxima_ = reader.buffer("maxima");
  }

  int64_t parts() const override { return shape_.group == 0 ? 0 : shape_.batch * shape_.kvHeads * queries_.count(); }
  size_t sharedScratchBytes() const override { return maxima_ ? static_cast<size_t>(parts()) * sizeof(float) : 0; }
  size_t scratchBytesPerThread() const override {
    return loops_.attentionForwardScratchBytes(shape_, std::min(shape_.sequence, queries_.unitsPerPiece));
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    // The last block of queries attends to the most keys. It runs first, so that short blocks balance the end.
    int64_t block = queries_.count() - 1 - part / (shape_.batch * shape_.kvHeads);
    int64_t pair = part % (shape_.batch * shape_.kvHeads);
    loops_.attentionForward({.shape = &shape_,
                             .dropout = dropout(arguments),
                             .q = arguments.buffers[0],
                             .k = arguments.buffers[1],
                             .v = arguments.buffers[2],
                             .out = arguments.buffers[out_],
                             .lse = static_cast<float *>(arguments.buffers[out_ + 1]),
                             .sample = pair / shape_.kvHeads,
                             .kvHead = pair % shape_.kvHeads,
                             .firstQuery = queries_[block].begin,
                             .endQuery = queries_[block].end,
                             .firstPosition = firstPosition(arguments),
                             .scratch = threadScratch,
                             .visibleFrom = visibleFrom(arguments, pair / shape_.kvHeads),
                             .largest = maxima_ ? static_cast<float *>(arguments.scratch) + part : nullptr});
  }

  void finish(const CallArguments &arguments) const override {
    for (int64_t part = 0; maxima_ && part < parts(); ++part) {
      float largest = static_cast<const float *>(arguments.scratch)[part];
      float &maximum = static_cast<float *>(arguments.buffers[*maxima_])[part % shape_.kvHeads];
      maximum = largest > maximum ? largest : maximum;
    }
  }

private:
  Pieces queries_;
  int out_;                   ///< the buffer of the result; that of lse follows
  std::optional<int> maxima_; ///< the buffer of the maxima of key-value heads
};

class AttentionBackward final : public Attention {
public:
  AttentionBackward(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : Attention(call, types, loops), dq_(CallReader(call, types).buffer("dq")) {}

  int64_t parts() const override { return shape_.keys == 0 ? 0 : shape_.batch * shape_.kvHeads; }
  size_t scratchBytesPerThread() const override { return loops_.attentionBackwardScratchBytes(shape_); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    void *const *buffers = arguments.buffers;
    loops_.attentionBackward({.shape = &shape_,
                              .dropout = dropout(arguments),
                              .q = buffers[0],
                              .k = buffers[1],
                              .v = buffers[2],
                              .out = buffers[3],
                              .lse = static_cast<const float *>(buffers[4]),
                              .dout = buffers[5],
                              .dq = buffers[dq_],
                              .dk = buffers[dq_ + 1],
                              .dv = buffers[dq_ + 2],
                              .sample = part / shape_.kvHeads,
                              .kvHead = part % shape_.kvHeads,
                              .firstPosition = firstPosition(arguments),
                              .scratch = threadScratch,
                              .visibleFrom = visibleFrom(arguments, part / shape_.kvHeads)});
  }

private:
  int dq_; ///< the buffer of dq; those of dk and dv follow
};

} // namespace

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ATTENTION_FORWARD>(const KernelRequest &request) {
  return std::make_unique<AttentionForward>(request.call, request.types, request.loops);
}

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ATTENTION_BACKWARD>(const KernelRequest &request) {
  return std::make_unique<AttentionBackward>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
