// RECURRENCE, CAUSAL_CONV and their gradients. A part of a recurrence is one head of one sample, that of its gradient
// one group of heads of one sample. A part of a convolution is a range of channels.
#include "runtime/kernels/factories.h"

#include <algorithm>

namespace espalier::rt {

namespace {

class Recurrence final : public LibraryKernel {
public:
  Recurrence(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    shape_ = {.batch = reader.size("batch"),
              .sequence = reader.size("seq"),
              .groups = reader.size("heads"),
              .group = reader.size("group"),
              .keyDim = reader.size("key_dim", 1),
              .valueDim = reader.size("value_dim", 1),
              .chunk = reader.size("chunk", 1),
              .byColumn = reader.size("by_column") != 0,
              .delta = reader.size("delta") != 0,
              .storage = reader.storage("q")};
    if (shape_.chunk > cpu::kLongestChunk)
      reader.refuse("chunk is " + std::to_string(shape_.chunk) + ", needs to be at most " +
                    std::to_string(cpu::kLongestChunk));
    isBackward_ = reader.has("dout");
    if (reader.has("visible_from"))
      visibleFrom_ = reader.buffer("visible_from");
    isCarried_ = !isBackward_ && reader.size("carried") != 0;
    result_ = reader.buffer(isBackward_ ? "dq" : "out");
    heads_ = isBackward_ ? shape_.groups : reader.product(shape_.groups, shape_.group);
    parts_ = shape_.sequence == 0 || shape_.group == 0 ? 0 : reader.product(shape_.batch, heads_);
  }

  int64_t parts() const override { return parts_; }
  size_t scratchBytesPerThread() const override { return loops_.recurrenceScratchBytes(shape_, isBackward_); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    void *const *buffers = arguments.buffers;
    int64_t sample = part / heads_;
    auto [begin, end] = arguments.rowsOf(sample, shape_.sequence);
    cpu::RecurrenceTask task{.shape = &shape_,
                             .q = buffers[0],
                             .k = buffers[1],
                             .v = buffers[2],
                             .decay = static_cast<const float *>(buffers[3]),
                             .beta = static_cast<const float *>(buffers[4]),
                             .visibleFrom = visibleFrom_ ? static_cast<const int32_t *>(buffers[*visibleFrom_]) +
                                                               sample * shape_.sequence
                                                         : nullptr,
                             .begin = begin,
                             .rows = end - begin,
                             .length = end - begin,
                             .head = part % heads_ * (isBackward_ ? shape_.group : 1),
                             .scratch = threadScratch};
    if (isBackward_) {
      task.dout = buffers[5];
      task.dq = buffers[result_];
      task.dk = buffers[result_ + 1];
      task.dv = buffers[result_ + 2];
      task.ddecay = static_cast<float *>(buffers[result_ + 3]);
      task.dbeta = static_cast<float *>(buffers[result_ + 4]);
    } else {
      task.out = buffers[result_];
    }
    if (isCarried_) {
      const int32_t *positions = static_cast<const int32_t *>(buffers[result_ - 1]) + begin;
      task.length = std::find_if(positions, positions + task.rows, [](int32_t at) { return at < 0; }) - positions;
      task.continues = task.length > 0 && positions[0] > 0;
      task.state = static_cast<float *>(buffers[result_ + 1]) + part * shape_.keyDim * shape_.valueDim;
    }
    loops_.recurrence(task);
  }

private:
  const cpu::Loops &loops_;
  cpu::RecurrenceShape shape_;
  bool isBackward_, isCarried_;
  int64_t heads_ = 0, parts_ = 0; ///< `heads_` counts the parts of a sample
  std::optional<int> visibleFrom_;
  int result_; ///< the first buffer of the results
};

class CausalConv final : public LibraryKernel {
public:
  CausalConv(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    isGradient_ = reader.has("dweight");
    isTransposed_ = !isGradient_ && reader.size("transposed") != 0;
    isCarried_ = !isGradient_ && reader.size("carried") != 0;
    task_ = {.from = reader.storage("x"),
             .to = reader.storage(isGradient_ ? "dy" : "y"),
             .batch = reader.size("batch"),
             .sequence = reader.size("seq"),
             .channels = reader.size("channels"),
             .taps = reader.size("taps", 1)};
    ofWeight_ = reader.storage(isGradient_ ? "dweight" : "weight");
    if (reader.has("visible_from"))
      visibleFrom_ = reader.buffer("visible_from");
    result_ = reader.buffer(isGradient_ ? "dweight" : "y");
    if (isCarried_ && (isTransposed_ || reader.size("before") != task_.taps - 1))
      reader.refuse("a carried convolution needs taps - 1 inputs before the tokens, and no transposition");
    channels_ = {task_.channels, kChannels};
    scratchBytes_ = static_cast<size_t>(reader.product(reader.product(task_.taps + 1, kChannels), sizeof(float)));
  }

  int64_t parts() const override { return channels_.count(); }
  size_t scratchBytesPerThread() const override { return scratchBytes_; }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    cpu::ConvTask task = task_;
    task.first = channels_[part].begin;
    task.count = channels_[part].end - task.first;
    task.x = arguments.buffers[0];
    task.visibleFrom = visibleFrom_ ? static_cast<const int32_t *>(arguments.buffers[*visibleFrom_]) : nullptr;
    task.scratch = static_cast<float *>(threadScratch);
    void *result = arguments.buffers[result_];
    if (isCarried_) {
      task.starts = task_.sequence > 1 ? arguments.starts : nullptr;
      task.positions = static_cast<const int32_t *>(arguments.buffers[result_ - 1]);
      task.halo = arguments.buffers[result_ + 1];
    }
    if (isGradient_)
      loops_.causalConvGradient(task, arguments.buffers[1], result, ofWeight_, arguments.adds);
    else
      loops_.causalConv(task, arguments.buffers[1], ofWeight_, isTransposed_, result);
  }

private:
  static constexpr int64_t kChannels = 64; // whole vectors at each level
  const cpu::Loops &loops_;
  cpu::ConvTask task_;
  bool isGradient_, isTransposed_, isCarried_;
  Storage ofWeight_;
  std::optional<int> visibleFrom_;
  int result_;
  Pieces channels_;
  size_t scratchBytes_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::RECURRENCE>(const KernelRequest &request) {
  return std::make_unique<Recurrence>(request.call, request.types, request.loops);
}

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::RECURRENCE_GRADIENT>(const KernelRequest &request) {
  return std::make_unique<Recurrence>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::CAUSAL_CONV>(const KernelRequest &request) {
  return std::make_unique<CausalConv>(request.call, request.types, request.loops);
}

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::CAUSAL_CONV_GRADIENT>(const KernelRequest &request) {
  return std::make_unique<CausalConv>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
