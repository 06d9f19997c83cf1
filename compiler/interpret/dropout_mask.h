// Which elements dropout keeps: decided by the element's place in the unsplit tensor, so that every plan drops alike.
#pragma once

#include "compiler/interpret/eval.h"

namespace espalier {

/// The mask of one model.dropout, or of the weights of one model.attention, on this rank's part of the tensor.
class DropoutMask {
public:
  /// `origins` and `unsplit` are the op's attributes; null on global shapes, where `local` is the whole tensor.
  DropoutMask(double rate, int64_t id, mlir::ArrayAttr origins, mlir::DenseI64ArrayAttr unsplit,
              mlir::RankedTensorType local, const EvalContext &context);

  /// 1 / (1 - rate) where `element` of the sample with index `localSample` in this rank's part is kept, else 0.
  double factor(int64_t localSample, uint64_t element) const;
  /// Index in the unsplit tensor of local index `index` along dimension `dim`.
  int64_t place(unsigned dim, int64_t index) const { return origin[dim] + index; }
  /// Size of dimension `dim` in the unsplit tensor.
  int64_t size(unsigned dim) const { return sizes[dim]; }

private:
  double rate;
  uint32_t stream, seed, step;
  llvm::SmallVector<int64_t> origin, sizes;
};

} // namespace espalier
