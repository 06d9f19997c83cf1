// SQUARED_NORM and REDUCE_PARTS: sums over fixed blocks in a fixed order.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {

namespace {

/// Each part writes the sum of its block to the shared scratch; finish() adds the sums in order.
class SquaredNormKernel final : public LibraryKernel {
public:
  SquaredNormKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    storage_ = reader.storage("x");
    blocks_ = piecesOf(reader.size("elements"), sizeof(float), 256 << 10);
    weight_ = reader.real("weight");
  }

  int64_t parts() const override { return blocks_.count(); }
  size_t sharedScratchBytes() const override { return static_cast<size_t>(parts()) * sizeof(double); }
  size_t scratchBytesPerThread() const override { return storage_ == Storage::F32 ? 0 : kConverted * sizeof(float); }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    Piece block = blocks_[part];
    const char *x = static_cast<const char *>(arguments.buffers[0]);
    double &sum = static_cast<double *>(arguments.scratch)[part];
    if (storage_ == Storage::F32) {
      sum = loops_.squaredSum(reinterpret_cast<const float *>(x) + block.begin, block.end - block.begin);
      return;
    }
    sum = 0;
    auto *converted = static_cast<float *>(threadScratch);
    for (int64_t begin = block.begin; begin < block.end; begin += kConverted) {
      int64_t count = std::min(kConverted, block.end - begin);
      loops_.convert(x + begin * bytesOf(storage_), storage_, converted, Storage::F32, count);
      sum += loops_.squaredSum(converted, count);
    }
  }

  void finish(const CallArguments &arguments) const override {
    double sum = 0;
    for (int64_t part = 0; part < parts(); ++part)
      sum += static_cast<const double *>(arguments.scratch)[part];
    *static_cast<float *>(arguments.buffers[1]) += static_cast<float>(weight_ * sum);
  }

private:
  static constexpr int64_t kConverted = 4096; ///< elements that are converted to f32 at once
  const cpu::Loops &loops_;
  Storage storage_;
  Pieces blocks_;
  double weight_ = 1;
};

class ReduceParts final : public LibraryKernel {
public:
  ReduceParts(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    summands_ = reader.size("part");
    elements_ = reader.size("n");
    out_ = reader.storage("out");
    pieces_ = piecesOf(elements_, sizeof(float), kPieceBytes);
  }

  int64_t parts() const override { return pieces_.count(); }

  size_t scratchBytesPerThread() const override { return out_ == Storage::F32 ? 0 : kPieceBytes; }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    const float *from = static_cast<const float *>(arguments.buffers[0]);
    Piece piece = pieces_[part];
    int64_t count = piece.end - piece.begin;
    char *out = static_cast<char *>(arguments.buffers[1]) + piece.begin * bytesOf(out_);
    bool isDirect = out_ == Storage::F32;
    auto *sum = isDirect ? reinterpret_cast<float *>(out) : static_cast<float *>(threadScratch);
    if (!arguments.adds || !isDirect)
      std::memset(sum, 0, static_cast<size_t>(count) * sizeof(float));
    for (int64_t summand = 0; summand < summands_; ++summand)
      loops_.add(from + summand * elements_ + piece.begin, Storage::F32, sum, count);
    if (isDirect)
      return;
    if (arguments.adds)
      loops_.add(out, out_, sum, count);
    loops_.convert(sum, Storage::F32, out, out_, count);
  }

private:
  static constexpr int64_t kPieceBytes = 16 << 10; ///< of f32 sums
  const cpu::Loops &loops_;
  int64_t summands_, elements_;
  Storage out_;
  Pieces pieces_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::SQUARED_NORM>(const KernelRequest &request) {
  return std::make_unique<SquaredNormKernel>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::REDUCE_PARTS>(const KernelRequest &request) {
  return std::make_unique<ReduceParts>(request.call, request.types, request.loops);
}

} // namespace espalier::rt
