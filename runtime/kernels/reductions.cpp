// SQUARED_NORM and REDUCE_PARTS: sums over fixed blocks in a fixed order.
#include "runtime/kernels/factories.h"

#include <cstring>

namespace espalier::rt {

namespace {

/// Each part writes the sum of its block to the shared scratch; finish() adds the sums in order.
class SquaredNormKernel final : public LibraryKernel {
public:
  SquaredNormKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    blocks_ = piecesOf(reader.size("elements"), sizeof(float), 256 << 10);
    weight_ = reader.real("weight");
  }

  int64_t parts() const override { return blocks_.count(); }
  size_t sharedScratchBytes() const override { return static_cast<size_t>(parts()) * sizeof(double); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    Piece block = blocks_[part];
    static_cast<double *>(arguments.scratch)[part] =
        loops_.squaredSum(static_cast<const float *>(arguments.buffers[0]) + block.begin, block.end - block.begin);
  }

  void finish(const CallArguments &arguments) const override {
    double sum = 0;
    for (int64_t part = 0; part < parts(); ++part)
      sum += static_cast<const double *>(arguments.scratch)[part];
    *static_cast<float *>(arguments.buffers[1]) += static_cast<float>(weight_ * sum);
  }

private:
  const cpu::Loops &loops_;
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
    pieces_ = piecesOf(elements_, sizeof(float), 16 << 10);
  }

  int64_t parts() const override { return pieces_.count(); }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    const float *from = static_cast<const float *>(arguments.buffers[0]);
    float *out = static_cast<float *>(arguments.buffers[1]);
    Piece piece = pieces_[part];
    int64_t count = piece.end - piece.begin;
    if (!arguments.adds)
      std::memset(out + piece.begin, 0, static_cast<size_t>(count) * sizeof(float));
    for (int64_t summand = 0; summand < summands_; ++summand)
      loops_.add(from + summand * elements_ + piece.begin, Storage::F32, out + piece.begin, count);
  }

private:
  const cpu::Loops &loops_;
  int64_t summands_, elements_;
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
