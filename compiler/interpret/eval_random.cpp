// Dropout, and the mask that attention also uses. The random bits are those of format/abi.h.
#include "compiler/interpret/dropout_mask.h"
#include "compiler/interpret/evaluators.h"
#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"
#include "format/abi.h"

using namespace mlir;

namespace espalier {

DropoutMask::DropoutMask(Operation *op, double rate, int64_t id, ArrayAttr origins, DenseI64ArrayAttr unsplit,
                         RankedTensorType local, const EvalContext &context)
    : rate(rate), stream(static_cast<uint32_t>(context.layer << 8 | id)), seed(context.seed), step(context.step),
      origin(local.getRank(), 0), sizes(unsplit ? unsplit.asArrayRef() : local.getShape()) {
  if (!origins)
    origin[0] = context.firstSample;
  for (unsigned dim = 0; origins && dim < origins.size() && dim < origin.size(); ++dim)
    origin[dim] = originOf(origins[dim], context);
  for (unsigned dim = 0; dist::zigzagAttr.isOn(op) && dim < origin.size(); ++dim)
    if (auto found = dyn_cast<dist::OriginAttr>(origins[dim]))
      for (auto [axis, stride] : llvm::zip_equal(found.getAxes(), found.getStrides()))
        if (axis == "cp") {
          zigzagDim = dim;
          chunk = stride;
          firstChunk = stride * context.coordinate("cp");
        }
}

int64_t DropoutMask::place(unsigned dim, int64_t index) const {
  int64_t held = origin[dim] + index - firstChunk; // among the indices that all tp ranks of this cp rank hold
  if (static_cast<int64_t>(dim) != zigzagDim)
    return origin[dim] + index;
  return held < chunk ? firstChunk + held : sizes[dim] - firstChunk - 2 * chunk + held;
}

double DropoutMask::factor(int64_t localSample, uint64_t element) const {
  if (rate <= 0)
    return 1;
  auto sample = static_cast<uint32_t>(place(0, localSample));
  bool isKept = rt::randomBits(seed, step, stream, sample, element) >= rt::dropoutThreshold(rate);
  return isKept ? 1 / (1 - rate) : 0;
}

namespace {

void evalDropout(model::DropoutOp op, Operands x, const EvalContext &context, Tensor &y) {
  DropoutMask mask(op, y.type, context);
  SmallVector<int64_t> strides = rowMajorStrides(y.shape());
  for (size_t i = 0; i < y.values.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t sample = rest / strides[0];
    uint64_t element = 0;
    for (unsigned dim = 1; dim < strides.size(); ++dim) {
      rest %= strides[dim - 1];
      element = element * mask.size(dim) + mask.place(dim, rest / strides[dim]);
    }
    y.values[i] = x[0]->values[i] * mask.factor(sample, element);
  }
}

} // namespace

void addRandom(EvaluatorTable &table) { table.add(evalDropout); }

} // namespace espalier
