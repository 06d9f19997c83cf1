// CONCAT and COLUMNS. A part is one range of rows.
#include "runtime/kernels/factories.h"

#include <cstring>

namespace espalier::rt {

namespace {

constexpr int64_t kPieceBytes = 256 << 10;

/// The sizes that both functions have.
class OfColumns : public LibraryKernel {
public:
  int64_t parts() const override { return rows_.count(); }

protected:
  /// `whole` names the tensor with all columns.
  OfColumns(const CallReader &reader, std::string_view whole)
      : heads_(reader.size("heads")), columns_(reader.size("columns")), width_(bytesOf(reader.storage(whole))),
        byHead_(reader.size("by_head") != 0),
        rows_(piecesOf(reader.size("rows"), heads_ * columns_ * width_, kPieceBytes)) {}

  /// Copies the columns of one head, counted in elements.
  void copy(void *to, int64_t toElement, const void *from, int64_t fromElement, int64_t count) const {
    std::memcpy(static_cast<char *>(to) + toElement * width_, static_cast<const char *>(from) + fromElement * width_,
                static_cast<size_t>(count * width_));
  }

  const int64_t heads_, columns_, width_; ///< `width_` is in bytes
  const bool byHead_;
  const Pieces rows_;
};

class Concat final : public OfColumns {
public:
  explicit Concat(const CallReader &reader)
      : OfColumns(reader, "y"), a_(reader.size("a_columns")), b_(reader.size("b_columns")) {
    if (a_ > columns_ || b_ != columns_ - a_)
      reader.refuse("has " + std::to_string(a_) + " and " + std::to_string(b_) + " columns, needs " +
                    std::to_string(columns_) + " in all");
  }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const void *a = arguments.buffers[0], *b = arguments.buffers[1];
    void *y = arguments.buffers[2];
    Piece rows = rows_[part];
    for (int64_t head = rows.begin * heads_; head < rows.end * heads_; ++head) {
      copy(y, head * columns_, a, head * a_, a_);
      copy(y, head * columns_ + a_, b, (byHead_ ? head : head / heads_) * b_, b_);
    }
  }

private:
  const int64_t a_, b_;
};

class Columns final : public OfColumns {
public:
  Columns(const CallReader &reader, const cpu::Loops &loops)
      : OfColumns(reader, "x"), loops_(loops), storage_(reader.storage("x")), first_(reader.size("first")),
        count_(reader.size("taken")) {
    if (first_ > columns_ || count_ > columns_ - first_)
      reader.refuse("takes " + std::to_string(count_) + " columns from " + std::to_string(first_) + " on, x has " +
                    std::to_string(columns_));
  }

  size_t scratchBytesPerThread() const override { return static_cast<size_t>(count_) * sizeof(float); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    const void *x = arguments.buffers[0];
    void *y = arguments.buffers[1];
    Piece rows = rows_[part];
    if (byHead_) {
      for (int64_t head = rows.begin * heads_; head < rows.end * heads_; ++head)
        copy(y, head * count_, x, head * columns_ + first_, count_);
      return;
    }
    auto *sums = static_cast<float *>(threadScratch);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::memset(sums, 0, scratchBytesPerThread());
      for (int64_t head = row * heads_; head < (row + 1) * heads_; ++head)
        loops_.add(static_cast<const char *>(x) + (head * columns_ + first_) * width_, storage_, sums, count_);
      loops_.convert(sums, Storage::F32, static_cast<char *>(y) + row * count_ * width_, storage_, count_);
    }
  }

private:
  const cpu::Loops &loops_;
  const Storage storage_;
  const int64_t first_, count_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::CONCAT>(const KernelRequest &request) {
  return std::make_unique<Concat>(CallReader(request.call, request.types));
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::COLUMNS>(const KernelRequest &request) {
  return std::make_unique<Columns>(CallReader(request.call, request.types), request.loops);
}

} // namespace espalier::rt
