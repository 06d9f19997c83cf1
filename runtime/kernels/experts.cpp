// ROUTE, DISPATCH and COMBINE: choose experts per token, and move token rows to the experts and back. An expert slot
// belongs to one choice of one token, so moving rows to experts needs no sums. Only COMBINE adds, over a token's
// choices in order.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

namespace espalier::rt {

namespace {

/// Reads scores as floats. The thread scratch holds one token's scores, then the number of used slots per expert. A
/// part is one sample, because tokens of a sample compete for slots. Tokens that are not needed get no slot.
class Route final : public LibraryKernel {
public:
  Route(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops) : loops_(loops) {
    CallReader reader(call, types);
    batch_ = reader.size("batch");
    seq_ = reader.size("seq");
    experts_ = reader.size("experts", 1);
    choices_ = reader.size("choices", 1);
    capacity_ = reader.size("capacity", 1);
    groups_ = reader.size("groups", 1);
    kept_ = reader.size("kept_groups", 1);
    if (choices_ > experts_)
      reader.refuse("has " + std::to_string(choices_) + " choices of " + std::to_string(experts_) +
                    " experts, needs no more choices than experts");
    if (experts_ % groups_ != 0 || kept_ > groups_ || choices_ > kept_ * (experts_ / groups_))
      reader.refuse("keeps " + std::to_string(kept_) + " of " + std::to_string(groups_) + " groups of " +
                    std::to_string(experts_) + " experts for " + std::to_string(choices_) +
                    " choices, needs equal groups with an expert for each choice");
    storage_ = reader.storage("scores");
  }

  int64_t parts() const override { return batch_; }
  size_t scratchBytesPerThread() const override {
    return static_cast<size_t>(experts_) * (sizeof(float) + sizeof(int32_t));
  }

  void run(const CallArguments &arguments, int64_t sample, void *threadScratch) const override {
    const char *scores = static_cast<const char *>(arguments.buffers[0]);
    int32_t *ids = static_cast<int32_t *>(arguments.buffers[1]), *slots = static_cast<int32_t *>(arguments.buffers[2]);
    float *score = static_cast<float *>(threadScratch);
    int32_t *taken = reinterpret_cast<int32_t *>(score + experts_);
    Piece all = {sample * seq_, (sample + 1) * seq_};
    Piece needed = neededRows(arguments, all);
    for (int64_t token = needed.begin; token < needed.end; ++token) {
      loops_.convert(scores + token * experts_ * bytesOf(storage_), storage_, score, Storage::F32, experts_);
      choose(score, taken, ids + token);
    }
    std::fill_n(taken, experts_, 0);
    for (int64_t choice = 0; choice < choices_; ++choice)
      for (int64_t token = all.begin; token < all.end; ++token) {
        int64_t at = choice * batch_ * seq_ + token;
        bool isNeeded = token >= needed.begin && token < needed.end;
        if (!isNeeded)
          ids[at] = 0;
        int32_t slot = isNeeded ? taken[ids[at]]++ : -1;
        slots[at] = slot < capacity_ ? slot : -1;
      }
  }

private:
  /// Closes the experts outside of the groups that a token keeps.
  void closeGroups(const float *score, int32_t *isClosed) const {
    int64_t size = experts_ / groups_;
    // The sum of the two highest scores of a group.
    auto sumOf = [&](int64_t group) {
      float best = -std::numeric_limits<float>::infinity(), second = best;
      for (const float *one = score + group * size; one < score + (group + 1) * size; ++one) {
        second = std::max(second, std::min(best, *one));
        best = std::max(best, *one);
      }
      return size > 1 ? best + second : best;
    };
    for (int64_t group = 0; group < groups_; ++group) {
      float sum = sumOf(group);
      int64_t better = 0;
      for (int64_t other = 0; other < groups_; ++other) {
        float otherSum = other == group ? sum : sumOf(other);
        better += otherSum > sum || (otherSum == sum && other < group);
      }
      std::fill_n(isClosed + group * size, size, better >= kept_);
    }
  }

  /// Writes the experts of one token, best first; ties go to the lower expert index. `isChosen` is scratch.
  void choose(const float *score, int32_t *isChosen, int32_t *ids) const {
    if (groups_ > 1)
      closeGroups(score, isChosen);
    else
      std::fill_n(isChosen, experts_, 0);
    for (int64_t choice = 0; choice < choices_; ++choice) {
      int64_t best = -1;
      for (int64_t expert = 0; expert < experts_; ++expert)
        if (!isChosen[expert] && (best < 0 || score[expert] > score[best]))
          best = expert;
      isChosen[best] = 1;
      ids[choice * batch_ * seq_] = static_cast<int32_t>(best);
    }
  }

  const cpu::Loops &loops_;
  int64_t batch_, seq_, experts_, choices_, capacity_, groups_, kept_;
  Storage storage_;
};

/// The row addresses and weights that DISPATCH and COMBINE share.
class Moves {
public:
  Moves(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    choices = reader.size("choices");
    batch = reader.size("batch");
    seq = reader.size("seq");
    hidden = reader.size("hidden");
    experts_ = reader.size("experts");
    capacity_ = reader.size("capacity");
    hasChoice = reader.size("by_choice") != 0;
    from = reader.storage("x");
    to = reader.storage("y");
    result_ = reader.buffer("y");
    if (reader.has("weights"))
      weights_ = reader.storage("weights");
  }

  /// Returns the expert row for index `at` of [choice, token], or -1 if it has no slot.
  int64_t rowOf(const CallArguments &arguments, int64_t at) const {
    int64_t expert = static_cast<const int32_t *>(arguments.buffers[0])[at];
    int64_t slot = static_cast<const int32_t *>(arguments.buffers[1])[at];
    if (expert < 0 || expert >= experts_ || slot < 0 || slot >= capacity_)
      return -1;
    return (expert * batch + at / seq % batch) * capacity_ + slot;
  }

  float weightOf(const CallArguments &arguments, int64_t at) const {
    return weights_ ? valueAt(arguments.buffers[3], *weights_, at) : 1;
  }
  bool hasWeights() const { return weights_.has_value(); }
  void *result(const CallArguments &arguments) const { return arguments.buffers[result_]; }
  int64_t experts() const { return experts_; }
  int64_t capacity() const { return capacity_; }

  int64_t choices, batch, seq, hidden;
  bool hasChoice; ///< token rows are [choice, batch, seq, hidden]
  Storage from, to;

private:
  static float valueAt(const void *data, Storage storage, int64_t index) {
    if (storage == Storage::F32)
      return static_cast<const float *>(data)[index];
    uint16_t bits = static_cast<const uint16_t *>(data)[index];
    return storage == Storage::BF16 ? bf16ToFloat(bits) : f16ToFloat(bits);
  }

  int64_t experts_, capacity_;
  int result_ = 0; ///< the buffer that is written
  std::optional<Storage> weights_;
};

/// A part is one sample and one range of columns. The part clears its rows before it fills them.
class Dispatch final : public LibraryKernel {
public:
  Dispatch(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops), moves_(call, types), columns_{moves_.hidden, kPieceColumns} {}

  int64_t parts() const override { return moves_.batch * columns_.count(); }
  size_t scratchBytesPerThread() const override { return kPieceColumns * sizeof(float); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    int64_t sample = part / columns_.count();
    Piece columns = columns_[part % columns_.count()];
    int64_t width = columns.end - columns.begin;
    const char *x = static_cast<const char *>(arguments.buffers[2]);
    char *y = static_cast<char *>(moves_.result(arguments));
    auto rowTo = [&](int64_t row) { return y + (row * moves_.hidden + columns.begin) * bytesOf(moves_.to); };
    for (int64_t expert = 0; expert < moves_.experts(); ++expert)
      for (int64_t slot = 0; slot < moves_.capacity(); ++slot)
        std::memset(rowTo((expert * moves_.batch + sample) * moves_.capacity() + slot), 0,
                    static_cast<size_t>(width * bytesOf(moves_.to)));
    for (int64_t choice = 0; choice < moves_.choices; ++choice)
      for (int64_t position = 0; position < moves_.seq; ++position) {
        int64_t token = sample * moves_.seq + position, at = choice * moves_.batch * moves_.seq + token;
        int64_t row = moves_.rowOf(arguments, at);
        if (row < 0)
          continue;
        const char *from = x + ((moves_.hasChoice ? at : token) * moves_.hidden + columns.begin) * bytesOf(moves_.from);
        moveRow(from, rowTo(row), width, moves_.weightOf(arguments, at), static_cast<float *>(threadScratch));
      }
  }

private:
  void moveRow(const void *from, void *to, int64_t width, float weight, float *scratch) const {
    if (!moves_.hasWeights())
      return loops_.convert(from, moves_.from, to, moves_.to, width);
    std::fill_n(scratch, width, 0.0f);
    loops_.addScaled(from, moves_.from, weight, scratch, width);
    loops_.convert(scratch, Storage::F32, to, moves_.to, width);
  }

  static constexpr int64_t kPieceColumns = 512;
  const cpu::Loops &loops_;
  Moves moves_;
  Pieces columns_;
};

/// A part is one range of token rows.
class Combine final : public LibraryKernel {
public:
  Combine(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops), moves_(call, types) {
    int64_t rows = (moves_.hasChoice ? moves_.choices : 1) * moves_.batch * moves_.seq;
    rows_ = piecesOf(rows, moves_.hidden * bytesOf(moves_.to), kPieceBytes);
  }

  int64_t parts() const override { return rows_.count(); }
  size_t scratchBytesPerThread() const override { return static_cast<size_t>(moves_.hidden) * sizeof(float); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    const char *x = static_cast<const char *>(arguments.buffers[2]);
    char *y = static_cast<char *>(moves_.result(arguments));
    float *sum = static_cast<float *>(threadScratch);
    Piece piece = rows_[part];
    for (int64_t token = piece.begin; token < piece.end; ++token) {
      std::fill_n(sum, moves_.hidden, 0.0f);
      for (int64_t choice = 0; choice < (moves_.hasChoice ? 1 : moves_.choices); ++choice) {
        int64_t at = choice * moves_.batch * moves_.seq + token;
        if (int64_t row = moves_.rowOf(arguments, at); row >= 0)
          loops_.addScaled(x + row * moves_.hidden * bytesOf(moves_.from), moves_.from, moves_.weightOf(arguments, at),
                           sum, moves_.hidden);
      }
      loops_.convert(sum, Storage::F32, y + token * moves_.hidden * bytesOf(moves_.to), moves_.to, moves_.hidden);
    }
  }

private:
  static constexpr int64_t kPieceBytes = 64 << 10;
  const cpu::Loops &loops_;
  Moves moves_;
  Pieces rows_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ROUTE>(const KernelRequest &request) {
  return std::make_unique<Route>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::DISPATCH>(const KernelRequest &request) {
  return std::make_unique<Dispatch>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::COMBINE>(const KernelRequest &request) {
  return std::make_unique<Combine>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
