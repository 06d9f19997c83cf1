// GROUPED, GROUPED_TRANSPOSED and GROUPED_GRADIENT: products of rows with the matrices of their experts. A part is one
// expert and one piece of its results, so the order of every sum depends on the rows alone. It looks for the rows of
// its expert in the owners of all rows of the holder. Most rows of an expert are neighbours: in a sample of a holder,
// each rank that sent rows has sorted them by expert.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace espalier::rt {

namespace {

/// The rows of the calls, in blocks: a sample of a holder.
class ExpertRows {
public:
  explicit ExpertRows(const CallReader &reader)
      : holders(reader.size("holders", 1)), batch(reader.size("batch")), capacity(reader.size("capacity")),
        experts(reader.size("experts")) {
    if (experts % holders != 0)
      reader.refuse("has " + std::to_string(experts) + " experts, needs a multiple of " + std::to_string(holders));
  }

  /// Calls visit(rows) for neighbouring rows of the block whose owners satisfy isWanted.
  template <typename Wanted, typename Visit>
  void forEachRun(const int32_t *owners, int64_t block, Wanted isWanted, Visit visit) const {
    const int32_t *end = owners + (block + 1) * capacity;
    for (const int32_t *begin = owners + block * capacity;;) {
      begin = std::find_if(begin, end, isWanted);
      if (begin == end)
        return;
      const int32_t *first = std::exchange(begin, std::find_if_not(begin, end, isWanted));
      visit(Piece{first - owners, begin - owners});
    }
  }
  /// Calls visit(rows) for neighbouring rows of the expert in a sample.
  template <typename Visit>
  void forEachRunOf(const int32_t *owners, int64_t expert, int64_t sample, Visit visit) const {
    auto owner = static_cast<int32_t>(expert % each());
    forEachRun(owners, expert / each() * batch + sample, [=](int32_t other) { return other == owner; }, visit);
  }
  int64_t each() const { return experts / holders; }
  int64_t total() const { return holders * batch * capacity; }

  int64_t holders, batch, capacity, experts;
};

/// The most rows in one product. Fewer rows from several samples are gathered, so that a matrix is read once for them.
constexpr int64_t kMostRows = 448, kGathered = 32, kFewRows = 4;
constexpr int64_t kColumnStep = 32, kMostColumns = 256;

/// Splits `columns` so that the pieces of all experts keep the threads busy even if few experts have rows.
Pieces piecesOfColumns(int64_t columns, int64_t experts, int threads) {
  int64_t wanted = std::max<int64_t>(1, 4 * threads / std::max<int64_t>(experts, 1));
  int64_t width = (columns + wanted - 1) / wanted;
  return {columns, std::clamp((width + kColumnStep - 1) / kColumnStep * kColumnStep, kColumnStep, kMostColumns)};
}

/// y = x w, or x w^T.
class Grouped final : public LibraryKernel {
public:
  Grouped(const KernelRequest &request, bool isTransposed) : loops_(request.loops), isTransposed_(isTransposed) {
    CallReader reader(request.call, request.types);
    rows_.emplace(reader);
    depth_ = reader.size(isTransposed ? "n" : "k");
    columns_ = reader.size(isTransposed ? "k" : "n");
    reader.product(rows_->total(), std::max(depth_, columns_));
    x_ = reader.storage("x");
    w_ = reader.storage("w");
    y_ = reader.storage("y");
    pieces_ = piecesOfColumns(columns_, rows_->experts, request.threads);
  }

  /// The last parts clear the rows without an owner, one block each.
  int64_t parts() const override { return rows_->experts * pieces_.count() + rows_->holders * rows_->batch; }

  size_t scratchBytesPerThread() const override {
    size_t bytes = 0;
    for (int64_t rows : {kFewRows, kMostRows}) {
      cpu::GemmTask task = taskOf(rows, pieces_.unitsPerPiece);
      bytes = std::max(bytes, loops_.gemmScratchBytes(task));
    }
    return padded(bytes) + gatheredBytes() + static_cast<size_t>(kGathered * pieces_.unitsPerPiece * bytesOf(y_));
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    const int32_t *owners = static_cast<const int32_t *>(arguments.buffers[2]);
    char *y = static_cast<char *>(arguments.buffers[3]);
    if (int64_t block = part - rows_->experts * pieces_.count(); block >= 0) {
      auto isUnused = [each = rows_->each()](int32_t owner) { return owner < 0 || owner >= each; };
      rows_->forEachRun(owners, block, isUnused, [&](Piece rows) {
        std::memset(y + rows.begin * columns_ * bytesOf(y_), 0,
                    static_cast<size_t>((rows.end - rows.begin) * columns_ * bytesOf(y_)));
      });
      return;
    }
    int64_t expert = part / pieces_.count();
    Piece columns = pieces_[part % pieces_.count()];
    const char *x = static_cast<const char *>(arguments.buffers[0]),
               *w = static_cast<const char *>(arguments.buffers[1]);
    Product product{*this, w + expert * depth_ * columns_ * bytesOf(w_), columns, threadScratch};
    for (int64_t sample = 0; sample < rows_->batch; ++sample)
      rows_->forEachRunOf(owners, expert, sample, [&](Piece rows) { product.add(x, y, rows); });
    product.flush(y);
  }

private:
  /// The products of one part.
  struct Product {
    const Grouped &kernel;
    const char *w;
    Piece columns;
    void *scratch;
    int64_t count = 0;              ///< gathered rows
    int64_t places[kGathered] = {}; ///< of the gathered rows

    void add(const char *x, char *y, Piece rows) {
      int64_t inBytes = kernel.depth_ * bytesOf(kernel.x_), outBytes = kernel.columns_ * bytesOf(kernel.y_);
      if (rows.end - rows.begin > kGathered) {
        for (int64_t row = rows.begin; row < rows.end; row += kMostRows)
          multiply(x + row * inBytes, y + row * outBytes + columns.begin * bytesOf(kernel.y_),
                   std::min(kMostRows, rows.end - row), kernel.columns_);
        return;
      }
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        if (count == kGathered)
          flush(y);
        std::memcpy(kernel.gathered(scratch) + count * inBytes, x + row * inBytes, static_cast<size_t>(inBytes));
        places[count++] = row;
      }
    }

    void flush(char *y) {
      if (count == 0)
        return;
      char *made = kernel.gathered(scratch) + kernel.gatheredBytes();
      int64_t width = columns.end - columns.begin, bytes = width * bytesOf(kernel.y_);
      multiply(kernel.gathered(scratch), made, count, width);
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(y + (places[i] * kernel.columns_ + columns.begin) * bytesOf(kernel.y_), made + i * bytes,
                    static_cast<size_t>(bytes));
      count = 0;
    }

    void multiply(const char *from, char *to, int64_t rows, int64_t stride) const {
      cpu::GemmTask task = kernel.taskOf(rows, columns.end - columns.begin);
      task.a.data = const_cast<char *>(from);
      int64_t first = columns.begin * (kernel.isTransposed_ ? kernel.depth_ : 1);
      task.b.data = const_cast<char *>(w) + first * bytesOf(kernel.w_);
      task.c.data = to;
      task.c.stride = stride;
      task.scratch = scratch;
      kernel.loops_.gemm(task);
    }
  };

  cpu::GemmTask taskOf(int64_t rows, int64_t columns) const {
    cpu::GemmTask task = {};
    task.a = {nullptr, x_, depth_, false};
    task.b = {nullptr, w_, isTransposed_ ? depth_ : columns_, isTransposed_};
    task.c = {nullptr, y_, columns_, false};
    task.m = rows;
    task.n = columns;
    task.k = depth_;
    task.isUnpacked = rows <= kFewRows;
    return task;
  }

  static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  size_t gatheredBytes() const { return padded(static_cast<size_t>(kGathered * depth_ * bytesOf(x_))); }
  char *gathered(void *scratch) const {
    size_t bytes = 0;
    for (int64_t rows : {kFewRows, kMostRows})
      bytes = std::max(bytes, loops_.gemmScratchBytes(taskOf(rows, pieces_.unitsPerPiece)));
    return static_cast<char *>(scratch) + padded(bytes);
  }

  const cpu::Loops &loops_;
  bool isTransposed_;
  std::optional<ExpertRows> rows_;
  int64_t depth_ = 0, columns_ = 0;
  Storage x_ = Storage::F32, w_ = Storage::F32, y_ = Storage::F32;
  Pieces pieces_;
};

/// dw = x^T dy. A part is one expert and a tile of its matrix.
class GroupedGradient final : public LibraryKernel {
public:
  explicit GroupedGradient(const KernelRequest &request) : loops_(request.loops) {
    CallReader reader(request.call, request.types);
    rows_.emplace(reader);
    k_ = reader.size("k");
    n_ = reader.size("n");
    reader.product(rows_->total(), std::max(k_, n_));
    reader.product(rows_->experts, reader.product(k_, n_));
    x_ = reader.storage("x");
    dy_ = reader.storage("dy");
    dw_ = reader.storage("dw");
    down_ = {k_, kMostRows};
    across_ = piecesOfColumns(n_, rows_->experts * std::max<int64_t>(down_.count(), 1), request.threads);
  }

  int64_t parts() const override { return rows_->experts * down_.count() * across_.count(); }

  size_t scratchBytesPerThread() const override {
    return loops_.gemmScratchBytes(taskOf(std::min(k_, kMostRows), across_.unitsPerPiece));
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    int64_t expert = part / (down_.count() * across_.count()), holder = expert / rows_->each();
    Piece lines = down_[part / across_.count() % down_.count()], columns = across_[part % across_.count()];
    int64_t first = holder * rows_->batch * rows_->capacity;
    std::vector<cpu::Span> spans;
    for (int64_t sample = 0; sample < rows_->batch; ++sample)
      rows_->forEachRunOf(static_cast<const int32_t *>(arguments.buffers[2]), expert, sample,
                          [&](Piece rows) { spans.push_back({rows.begin - first, rows.end - first}); });
    cpu::GemmTask task = taskOf(lines.end - lines.begin, columns.end - columns.begin);
    task.a.data = static_cast<char *>(arguments.buffers[0]) + (first * k_ + lines.begin) * bytesOf(x_);
    task.b.data = static_cast<char *>(arguments.buffers[1]) + (first * n_ + columns.begin) * bytesOf(dy_);
    task.c.data =
        static_cast<char *>(arguments.buffers[3]) + ((expert * k_ + lines.begin) * n_ + columns.begin) * bytesOf(dw_);
    task.lines = spans;
    task.accumulate = arguments.adds;
    task.scratch = threadScratch;
    if (!spans.empty())
      return loops_.gemm(task);
    for (int64_t row = 0; !arguments.adds && row < task.m; ++row)
      std::memset(static_cast<char *>(task.c.data) + row * n_ * bytesOf(dw_), 0,
                  static_cast<size_t>(task.n * bytesOf(dw_)));
  }

private:
  cpu::GemmTask taskOf(int64_t rows, int64_t columns) const {
    cpu::GemmTask task = {};
    task.a = {nullptr, x_, k_, true};
    task.b = {nullptr, dy_, n_, false};
    task.c = {nullptr, dw_, n_, false};
    task.m = rows;
    task.n = columns;
    task.k = rows_->batch * rows_->capacity;
    return task;
  }

  const cpu::Loops &loops_;
  std::optional<ExpertRows> rows_;
  int64_t k_ = 0, n_ = 0;
  Storage x_ = Storage::F32, dy_ = Storage::F32, dw_ = Storage::F32;
  Pieces down_, across_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::GROUPED>(const KernelRequest &request) {
  return std::make_unique<Grouped>(request, /*isTransposed=*/false);
}

template <>
std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::GROUPED_TRANSPOSED>(const KernelRequest &request) {
  return std::make_unique<Grouped>(request, /*isTransposed=*/true);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::GROUPED_GRADIENT>(const KernelRequest &request) {
  return std::make_unique<GroupedGradient>(request);
}

} // namespace espalier::rt
