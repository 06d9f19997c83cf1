// The elements that dropout keeps. They depend on the element's index in the unsplit tensor, so all plans have the same
// mask.
#pragma once

#include "compiler/interpret/eval.h"

namespace espalier {

/// The mask of one model.dropout, or of the weights of one model.attention, for this rank's shard of the tensor.
class DropoutMask {
public:
  /// `op` is a dropout or an attention. It has no origins on global shapes, where `local` is the whole tensor.
  template <typename Op>
  DropoutMask(Op op, mlir::RankedTensorType local, const EvalContext &context)
      : DropoutMask(op, op.getRate().convertToDouble(), op.getId(), op.getOriginsAttr(), op.getUnsplitAttr(), local,
                    context) {}

  /// Returns 1 / (1 - rate) if `element` of sample `localSample` of this rank's shard is kept, else 0.
  double factor(int64_t localSample, uint64_t element) const;
  /// Returns the index in the unsplit tensor of local index `index` along dimension `dim`.
  int64_t place(unsigned dim, int64_t index) const;
  /// Returns the size of dimension `dim` in the unsplit tensor.
  int64_t size(unsigned dim) const { return sizes[dim]; }

private:
  DropoutMask(mlir::Operation *op, double rate, int64_t id, mlir::ArrayAttr origins, mlir::DenseI64ArrayAttr unsplit,
              mlir::RankedTensorType local, const EvalContext &context);

  double rate;
  uint32_t stream, seed, step;
  llvm::SmallVector<int64_t> origin, sizes;
  int64_t zigzagDim = -1; ///< the dimension in zigzag order, or -1
  int64_t chunk = 0;      ///< the size of its chunks
  int64_t firstChunk = 0; ///< the first index of this rank's first chunk
};

} // namespace espalier
