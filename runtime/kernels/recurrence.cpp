// RECURRENCE, CAUSAL_CONV, their gradients, and SHARD_STATES and SHARD_EDGES for shards of sequences. A part of a
// recurrence is one head of one run of positions, that of its gradient one group of heads of one run. A sample has one
// run, or two in zigzag order. A part of a convolution is a range of channels.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {

namespace {

/// Returns the runs of a rank; `count` is the number of all runs of a sequence.
cpu::SequenceRuns runsOf(const CallReader &reader, int64_t count) {
  int64_t own = reader.size("zigzag") != 0 ? 2 : 1;
  if (reader.size("seq") % own != 0 || count < 1 || count % own != 0)
    reader.refuse("has " + std::to_string(reader.size("seq")) + " positions in " + std::to_string(own) + " of " +
                  std::to_string(count) + " runs");
  return {.own = own, .count = count};
}

/// Returns the number of the run that begins at `position`, between 0 and the last one.
int64_t runAt(int64_t position, int64_t length, int64_t count) {
  return std::clamp<int64_t>(length > 0 ? position / length : 0, 0, count - 1);
}

/// Returns the shape with `count` runs of each sequence as samples.
cpu::RecurrenceShape shapeOf(const CallReader &reader, int64_t count) {
  cpu::RecurrenceShape shape = {.batch = reader.size("batch"),
                                .sequence = reader.size("seq"),
                                .groups = reader.size("heads"),
                                .group = reader.size("group"),
                                .keyDim = reader.size("key_dim", 1),
                                .valueDim = reader.size("value_dim", 1),
                                .chunk = reader.size("chunk", 1),
                                .byColumn = reader.size("by_column") != 0,
                                .delta = reader.size("delta") != 0,
                                .storage = reader.storage("q"),
                                .runs = runsOf(reader, count)};
  if (shape.chunk > cpu::kLongestChunk)
    reader.refuse("chunk is " + std::to_string(shape.chunk) + ", needs to be at most " +
                  std::to_string(cpu::kLongestChunk));
  shape.batch = reader.product(shape.batch, shape.runs.own);
  shape.sequence /= shape.runs.own;
  return shape;
}

/// Refuses a call whose borders do not have the columns of v and those of A.
void checkColumns(const CallReader &reader, const cpu::RecurrenceShape &shape, bool hasFactors) {
  int64_t columns = shape.valueDim + (hasFactors ? (shape.delta ? shape.keyDim : 1) : 0);
  if (reader.size("columns") != columns)
    reader.refuse("columns is " + std::to_string(reader.size("columns")) + ", needs to be " + std::to_string(columns));
}

/// Returns a task for a head of a sample, whose rows begin at `begin`.
cpu::RecurrenceTask taskOf(const cpu::RecurrenceShape &shape, void *const *buffers, std::optional<int> visibleFrom,
                           int64_t sample, int64_t head) {
  return {.shape = &shape,
          .q = buffers[0],
          .k = buffers[1],
          .v = buffers[2],
          .decay = static_cast<const float *>(buffers[3]),
          .beta = static_cast<const float *>(buffers[4]),
          .visibleFrom =
              visibleFrom ? static_cast<const int32_t *>(buffers[*visibleFrom]) + sample * shape.sequence : nullptr,
          .begin = sample * shape.sequence,
          .rows = shape.sequence,
          .length = shape.sequence,
          .head = head};
}

class Recurrence final : public LibraryKernel {
public:
  Recurrence(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    shape_ = shapeOf(reader, reader.has("borders") ? reader.size("borders") : 1);
    if (reader.has("borders")) {
      reader.needScalars(1, "for a part of the positions");
      checkColumns(reader, shape_, /*hasFactors=*/true);
      borders_ = reader.buffer("borders");
    }
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
    cpu::RecurrenceTask task =
        taskOf(shape_, buffers, visibleFrom_, sample, part % heads_ * (isBackward_ ? shape_.group : 1));
    task.scratch = threadScratch;
    if (borders_) {
      cpu::SequenceRuns runs = shape_.runs;
      runs.first = runAt(arguments.scalars[0], shape_.sequence, runs.count);
      task.run = runs.numberOf(sample);
      task.borders = static_cast<const float *>(buffers[*borders_]);
      task.ends = isBackward_ ? static_cast<const float *>(buffers[*borders_ + 1]) : nullptr;
    }
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
      auto [begin, end] = arguments.rowsOf(sample, shape_.sequence);
      task.begin = begin;
      task.rows = end - begin;
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
  std::optional<int> visibleFrom_, borders_;
  int result_; ///< the first buffer of the results
};

/// A part is one head of one run.
class ShardStates final : public LibraryKernel {
public:
  ShardStates(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    reader.needScalars(2, "for the place of the shard");
    shape_ = shapeOf(reader, reader.size("runs"));
    isBackward_ = reader.size("backward") != 0;
    if (shape_.runs.count != shape_.runs.own)
      reader.refuse("runs is " + std::to_string(shape_.runs.count) + ", needs to be " +
                    std::to_string(shape_.runs.own));
    checkColumns(reader, shape_, !isBackward_);
    shape_.isOfBorders = !isBackward_;
    size_ = reader.product(shape_.keyDim, reader.size("columns"));
    if (reader.has("visible_from"))
      visibleFrom_ = reader.buffer("visible_from");
    result_ = reader.buffer("borders");
    heads_ = reader.product(shape_.groups, shape_.group);
    parts_ = shape_.sequence == 0 ? 0 : reader.product(shape_.batch, heads_);
  }

  int64_t parts() const override { return parts_; }
  size_t scratchBytesPerThread() const override { return loops_.recurrenceScratchBytes(shape_, isBackward_); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    int64_t sample = part / heads_, all = std::max<int64_t>(arguments.scalars[1] / shape_.sequence, 1);
    cpu::SequenceRuns runs = {shape_.runs.own, all, runAt(arguments.scalars[0], shape_.sequence, all)};
    cpu::RecurrenceTask task = taskOf(shape_, arguments.buffers, visibleFrom_, sample, part % heads_);
    task.scratch = threadScratch;
    task.run = runs.numberOf(sample);
    task.dout = isBackward_ ? task.v : nullptr;
    task.state = static_cast<float *>(arguments.buffers[result_]) + part * size_;
    loops_.recurrence(task);
  }

private:
  const cpu::Loops &loops_;
  cpu::RecurrenceShape shape_;
  bool isBackward_;
  std::optional<int> visibleFrom_;
  int result_;
  int64_t size_, heads_, parts_; ///< `size_` of the matrix of a part
};

/// A part is one run of positions.
class ShardEdges final : public LibraryKernel {
public:
  ShardEdges(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    runs_ = runsOf(reader, reader.size("zigzag") != 0 ? 2 : 1).own;
    length_ = reader.size("seq") / runs_;
    kept_ = reader.size("edges") / runs_;
    if (kept_ > length_ || reader.size("edges") % runs_ != 0)
      reader.refuse("edges is " + std::to_string(reader.size("edges")) + ", needs to be equally many of each run");
    bytes_ = reader.size("bytes");
    parts_ = reader.product(reader.size("batch"), runs_);
    first_ = reader.size("first") != 0 ? 0 : length_ - kept_;
  }

  int64_t parts() const override { return parts_; }
  void run(const CallArguments &arguments, int64_t part, void *) const override {
    std::memcpy(static_cast<char *>(arguments.buffers[1]) + part * kept_ * bytes_,
                static_cast<const char *>(arguments.buffers[0]) + (part * length_ + first_) * bytes_,
                static_cast<size_t>(kept_ * bytes_));
  }

private:
  int64_t runs_, length_, kept_, bytes_, parts_, first_; ///< `length_` and `kept_` positions of a run
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
    if (reader.has("edges"))
      readEdges(reader);
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
    if (edges_) {
      task.runs.first = runAt(arguments.scalars[0], task.sequence, task.runs.count);
      task.edges = arguments.buffers[*edges_];
      task.limits = limits_ ? static_cast<const int32_t *>(arguments.buffers[*limits_]) : nullptr;
    }
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
  /// Reads what the convolution has of other ranks. Each run has as many edges as the convolution reads, or all of its
  /// positions.
  void readEdges(const CallReader &reader) {
    reader.needScalars(1, "for a part of the positions");
    int64_t own = reader.size("zigzag") != 0 ? 2 : 1, edges = reader.size("edges");
    task_.kept = std::min(task_.taps - 1, task_.sequence / own);
    task_.runs = runsOf(reader, task_.kept > 0 ? edges / task_.kept : 0);
    if (edges != task_.runs.count * task_.kept)
      reader.refuse("edges is " + std::to_string(edges) + ", needs " + std::to_string(task_.kept) + " of each run");
    if (reader.has("limits"))
      limits_ = reader.buffer("limits");
    if (limits_.has_value() != (isTransposed_ && reader.has("visible_from")))
      reader.refuse("needs limits if it is transposed and has visible_from");
    if (reader.storage("edges") != task_.from)
      reader.refuse("needs edges of the type of x");
    task_.batch = reader.product(task_.batch, own);
    task_.sequence /= own;
    edges_ = reader.buffer("edges");
  }

  static constexpr int64_t kChannels = 64; // whole vectors at each level
  const cpu::Loops &loops_;
  cpu::ConvTask task_;
  bool isGradient_, isTransposed_, isCarried_;
  Storage ofWeight_;
  std::optional<int> visibleFrom_, edges_, limits_;
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

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::SHARD_STATES>(const KernelRequest &request) {
  return std::make_unique<ShardStates>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::SHARD_EDGES>(const KernelRequest &request) {
  return std::make_unique<ShardEdges>(request.call, request.types);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::CAUSAL_CONV>(const KernelRequest &request) {
  return std::make_unique<CausalConv>(request.call, request.types, request.loops);
}

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::CAUSAL_CONV_GRADIENT>(const KernelRequest &request) {
  return std::make_unique<CausalConv>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
