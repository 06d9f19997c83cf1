// COPY and ZERO: parts are runs of bytes.
#include "runtime/kernels/factories.h"

#include <cstring>

namespace espalier::rt {

namespace {

constexpr int64_t kPieceBytes = 256 << 10;

class Copy final : public LibraryKernel {
public:
  explicit Copy(const pb::LibraryCall &call) {
    CallReader reader(call, {.buffers = 2, .sizes = 4});
    int64_t outer = reader.size(0);
    fromStride_ = reader.size(1);
    toStride_ = reader.size(2);
    bytes_ = reader.size(3);
    if (outer > 0 && bytes_ > 0) {
      reader.holds(0, {reader.product({outer - 1, fromStride_}) + bytes_}, 1);
      reader.holds(1, {reader.product({outer - 1, toStride_}) + bytes_}, 1);
    }
    if (outer > 1 && toStride_ < bytes_)
      reader.refuse("blocks of " + std::to_string(bytes_) + " bytes overlap at a stride of " +
                    std::to_string(toStride_));
    along_ = piecesOf(bytes_, 1, kPieceBytes);
    blocks_ = piecesOf(outer, bytes_, kPieceBytes);
  }

  int64_t parts() const override { return blocks_.count() * along_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const char *from = static_cast<const char *>(arguments.buffers[0]);
    char *to = static_cast<char *>(arguments.buffers[1]);
    Piece blocks = blocks_[part / along_.count()], along = along_[part % along_.count()];
    for (int64_t block = blocks.begin; block < blocks.end; ++block)
      std::memcpy(to + block * toStride_ + along.begin, from + block * fromStride_ + along.begin,
                  static_cast<size_t>(along.end - along.begin));
  }

private:
  int64_t fromStride_, toStride_, bytes_;
  Pieces blocks_, along_; // several whole blocks per part, or several parts per block
};

class Zero final : public LibraryKernel {
public:
  explicit Zero(const pb::LibraryCall &call) {
    CallReader reader(call, {.buffers = 1, .sizes = 1});
    int64_t bytes = reader.size(0);
    reader.holds(0, {bytes}, 1);
    pieces_ = piecesOf(bytes, 1, kPieceBytes);
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

std::unique_ptr<LibraryKernel> makeCopy(const pb::LibraryCall &call) { return std::make_unique<Copy>(call); }

std::unique_ptr<LibraryKernel> makeZero(const pb::LibraryCall &call) { return std::make_unique<Zero>(call); }

} // namespace espalier::rt
