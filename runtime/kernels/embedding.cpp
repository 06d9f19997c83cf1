// EMBED, EMBED_GRADIENT and ROPE: operations on token ids and positions.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

namespace espalier::rt {

namespace {

constexpr int64_t kPieceBytes = 64 << 10;

/// A part is one range of tokens.
class Embed final : public LibraryKernel {
public:
  Embed(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops) : loops_(loops) {
    CallReader reader(call, types);
    rows_ = reader.size("rows");
    hidden_ = reader.size("hidden");
    table_ = reader.storage("table");
    out_ = reader.storage("out");
    tokens_ = piecesOf(reader.size("tokens"), hidden_ * bytesOf(out_), kPieceBytes);
  }

  int64_t parts() const override { return tokens_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const char *table = static_cast<const char *>(arguments.buffers[0]);
    const int32_t *ids = static_cast<const int32_t *>(arguments.buffers[1]);
    int64_t bytes = hidden_ * bytesOf(out_);
    Piece piece = neededRows(arguments, tokens_[part]);
    for (int64_t token = piece.begin; token < piece.end; ++token) {
      int64_t row = ids[token] - arguments.scalars[0];
      char *out = static_cast<char *>(arguments.buffers[2]) + token * bytes;
      if (row < 0 || row >= rows_)
        std::memset(out, 0, static_cast<size_t>(bytes));
      else if (table_ == out_)
        std::memcpy(out, table + row * bytes, static_cast<size_t>(bytes));
      else
        loops_.convert(table + row * hidden_ * bytesOf(table_), table_, out, out_, hidden_);
    }
  }

private:
  const cpu::Loops &loops_;
  int64_t rows_, hidden_;
  Storage table_, out_;
  Pieces tokens_;
};

/// A part owns every kParts-th block of rows. This distributes frequent ids, which tend to be neighbours, over the
/// parts. Each row belongs to one part, which clears the row and adds to it in the order of the tokens. The terms of a
/// row that is not f32 are summed in f32 first, so that the row is rounded once.
class EmbedGradient final : public LibraryKernel {
public:
  EmbedGradient(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    tokens_ = reader.size("tokens");
    hidden_ = reader.size("hidden");
    dout_ = reader.storage("dout");
    table_ = reader.storage("dtable");
    blocks_ = {reader.size("rows"), kBlockRows};
  }

  int64_t parts() const override { return std::min(kParts, blocks_.count()); }
  size_t scratchBytesPerThread() const override {
    return table_ == Storage::F32 ? 0 : static_cast<size_t>(tokens_) * sizeof(Term) + rowBytes(Storage::F32);
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    char *table = static_cast<char *>(arguments.buffers[2]);
    if (!arguments.adds)
      for (int64_t block = part; block < blocks_.count(); block += kParts) {
        Piece rows = blocks_[block];
        std::memset(table + rows.begin * rowBytes(table_), 0, (rows.end - rows.begin) * rowBytes(table_));
      }
    if (table_ != Storage::F32)
      return addRounded(arguments, part, static_cast<Term *>(threadScratch));
    visitTerms(arguments, part, [&](Term term) {
      loops_.add(termAt(arguments, term), dout_, reinterpret_cast<float *>(table) + term.row * hidden_, hidden_);
    });
  }

private:
  static constexpr int64_t kBlockRows = 4, kParts = 32;
  /// A token whose gradient belongs to a row of the table.
  struct Term {
    int64_t row, token;
    auto operator<=>(const Term &) const = default;
  };

  size_t rowBytes(Storage storage) const { return static_cast<size_t>(hidden_ * bytesOf(storage)); }
  const char *termAt(const CallArguments &arguments, Term term) const {
    return static_cast<const char *>(arguments.buffers[1]) + term.token * rowBytes(dout_);
  }

  /// Visits the terms of the part's rows in the order of the tokens.
  void visitTerms(const CallArguments &arguments, int64_t part, const auto &visit) const {
    const int32_t *ids = static_cast<const int32_t *>(arguments.buffers[0]);
    for (int64_t token = 0; token < tokens_; ++token) {
      int64_t row = ids[token] - arguments.scalars[0];
      if (row >= 0 && row < blocks_.total && row / kBlockRows % kParts == part)
        visit(Term{row, token});
    }
  }

  /// Sorts the part's terms by rows, and adds the f32 sum of each row's terms to the row.
  void addRounded(const CallArguments &arguments, int64_t part, Term *terms) const {
    auto *sum = reinterpret_cast<float *>(terms + tokens_);
    int64_t count = 0;
    visitTerms(arguments, part, [&](Term term) { terms[count++] = term; });
    std::sort(terms, terms + count);
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      std::memset(sum, 0, rowBytes(Storage::F32));
      for (; end < count && terms[end].row == terms[begin].row; ++end)
        loops_.add(termAt(arguments, terms[end]), dout_, sum, hidden_);
      char *row = static_cast<char *>(arguments.buffers[2]) + terms[begin].row * rowBytes(table_);
      loops_.add(row, table_, sum, hidden_); // zeros, if the part has cleared the row
      loops_.convert(sum, Storage::F32, row, table_, hidden_);
    }
  }

  const cpu::Loops &loops_;
  int64_t tokens_, hidden_;
  Storage dout_, table_;
  Pieces blocks_; // of rows
};

/// A part is one range of tokens.
class Rope final : public LibraryKernel {
public:
  Rope(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops) : loops_(loops) {
    CallReader reader(call, types);
    heads_ = reader.size("heads");
    headDim_ = reader.size("head_dim");
    int64_t rotary = reader.size("rotary") == 0 ? headDim_ : reader.size("rotary");
    if (headDim_ % 2)
      reader.refuse("head_dim is " + std::to_string(headDim_) + ", needs to be even");
    int64_t before = reader.size("first");
    if (rotary % 2 || before < 0 || before > headDim_ || rotary > headDim_ - before)
      reader.refuse("rotary is " + std::to_string(rotary) + ", needs to be even and at most head_dim" +
                    (before == 0 ? "" : " less the first " + std::to_string(before) + " columns"));
    form_ = {.first = before,
             .rotary = rotary,
             .isInterleaved = reader.size("interleaved") != 0,
             .isInverse = reader.size("inverse") != 0,
             .amplitude = static_cast<float>(reader.real("amplitude"))};
    from_ = reader.storage("x");
    to_ = reader.storage("y");
    tokens_ = piecesOf(reader.size("tokens"), heads_ * headDim_ * bytesOf(to_), kPieceBytes);
    for (int64_t i = 0; i < rotary / 2; ++i)
      frequencies_.push_back(
          scaled(reader, i,
                 std::pow(reader.real("theta"), -2.0 * static_cast<double>(i) / static_cast<double>(rotary)) /
                     (2 * std::numbers::pi)));
  }

  int64_t parts() const override { return tokens_.count(); }
  size_t scratchBytesPerThread() const override { return static_cast<size_t>(headDim_) * sizeof(float); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    Piece piece = neededRows(arguments, tokens_[part]);
    if (piece.begin >= piece.end)
      return;
    int64_t first = piece.begin * heads_ * headDim_;
    loops_.rope({.x = static_cast<const char *>(arguments.buffers[0]) + first * bytesOf(from_),
                 .y = static_cast<char *>(arguments.buffers[2]) + first * bytesOf(to_),
                 .from = from_,
                 .to = to_,
                 .positions = static_cast<const int32_t *>(arguments.buffers[1]) + piece.begin,
                 .frequencies = frequencies_.data(),
                 .tokens = piece.end - piece.begin,
                 .heads = heads_,
                 .headDim = headDim_,
                 .form = form_,
                 .scratch = static_cast<float *>(threadScratch)});
  }

private:
  /// Returns the turns per position of pair `i` after scaling.
  static double scaled(const CallReader &reader, int64_t i, double turns) {
    double slow = reader.real("slow"), fast = reader.real("fast"), context = reader.real("original_context");
    double at = context > 0 ? context * turns : static_cast<double>(i);
    double kept = slow == fast ? 0 : std::clamp((at - slow) / (fast - slow), 0.0, 1.0);
    return turns * ((1 - kept) / reader.real("factor") + kept);
  }

  const cpu::Loops &loops_;
  int64_t heads_, headDim_;
  cpu::RopeForm form_;
  Storage from_, to_;
  Pieces tokens_;
  std::vector<double> frequencies_; // in turns per position
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::EMBED>(const KernelRequest &request) {
  return std::make_unique<Embed>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::EMBED_GRADIENT>(const KernelRequest &request) {
  return std::make_unique<EmbedGradient>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ROPE>(const KernelRequest &request) {
  return std::make_unique<Rope>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
