// COPY, REARRANGE and ZERO. Parts are byte ranges.
#include "format/zigzag.h"
#include "runtime/kernels/factories.h"

#include <cstring>

namespace espalier::rt {

namespace {

constexpr int64_t kPieceBytes = 256 << 10;

/// Copies strided blocks to a contiguous destination.
class Copy final : public LibraryKernel {
public:
  Copy(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    stride_ = reader.size("from_stride");
    bytes_ = reader.size("bytes");
    along_ = piecesOf(bytes_, 1, kPieceBytes);
    blocks_ = piecesOf(reader.size("outer"), bytes_, kPieceBytes);
  }

  int64_t parts() const override { return blocks_.count() * along_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const char *from = static_cast<const char *>(arguments.buffers[0]);
    char *to = static_cast<char *>(arguments.buffers[1]);
    Piece blocks = blocks_[part / along_.count()], along = along_[part % along_.count()];
    for (int64_t block = blocks.begin; block < blocks.end; ++block)
      std::memcpy(to + block * bytes_ + along.begin, from + block * stride_ + along.begin,
                  static_cast<size_t>(along.end - along.begin));
  }

private:
  int64_t stride_, bytes_;
  Pieces blocks_, along_; // several whole blocks per part, or several parts per block
};

/// Transposes [a, b, bytes] to [b, a, bytes]. Parts are ranges of destination blocks. In zigzag order, blocks are half
/// of `bytes`.
class Rearrange final : public LibraryKernel {
public:
  Rearrange(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    a_ = reader.size("a");
    b_ = reader.size("b");
    bytes_ = reader.size("bytes");
    int64_t blocks = reader.product(a_, b_);
    order_ = reader.zigzag();
    if (order_ != Zigzag::None) {
      bytes_ /= 2;
      blocks *= 2;
    }
    along_ = piecesOf(bytes_, 1, kPieceBytes);
    blocks_ = piecesOf(blocks, bytes_, kPieceBytes);
  }

  int64_t parts() const override { return blocks_.count() * along_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const char *from = static_cast<const char *>(arguments.buffers[0]);
    char *to = static_cast<char *>(arguments.buffers[1]);
    Piece blocks = blocks_[part / along_.count()], along = along_[part % along_.count()];
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      int64_t source = sourceOf(block);
      std::memcpy(to + block * bytes_ + along.begin, from + source * bytes_ + along.begin,
                  static_cast<size_t>(along.end - along.begin));
    }
  }

private:
  int64_t sourceOf(int64_t block) const {
    if (order_ == Zigzag::None)
      return block % a_ * b_ + block / a_;
    if (order_ == Zigzag::To) // to [b, a, 2] from [a, 2 b]
      return block / 2 % a_ * 2 * b_ + zigzagChunk(block / 2 / a_, block % 2, b_);
    int64_t chunk = block % (2 * a_); // to [b, 2 a] from [a, b, 2]
    return (zigzagPart(chunk, a_) * b_ + block / (2 * a_)) * 2 + (chunk < a_ ? 0 : 1);
  }

  int64_t a_, b_, bytes_;
  Zigzag order_;
  Pieces blocks_, along_; // as in Copy
};

class Zero final : public LibraryKernel {
public:
  Zero(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    pieces_ = piecesOf(reader.size("bytes"), 1, kPieceBytes);
  }

  int64_t parts() const override { return pieces_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    Piece piece = pieces_[part];
    std::memset(static_cast<char *>(arguments.buffers[0]) + piece.begin, 0,
                static_cast<size_t>(piece.end - piece.begin));
  }

private:
  Pieces pieces_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::COPY>(const KernelRequest &request) {
  return std::make_unique<Copy>(request.call, request.types);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::REARRANGE>(const KernelRequest &request) {
  return std::make_unique<Rearrange>(request.call, request.types);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ZERO>(const KernelRequest &request) {
  return std::make_unique<Zero>(request.call, request.types);
}

} // namespace espalier::rt
