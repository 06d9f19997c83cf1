// Matrix products by cuBLASLt: sums in f32 (never TF32), one algorithm per distinct product, the plan's or else chosen
// when the plan is loaded, the same in every step and within a workspace of fixed size.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/kernels/dtype.h"
#include "runtime/plan.pb.h"
#include "runtime/status.h"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// What a product of one matrix does on the way.
using Epilogue = pb::LibraryCall::Epilogue;

/// As run files have it: "bias_gelu". Protobuf's name would take the library of plans, which no program for hardware
/// alone carries.
const char *nameOf(Epilogue epilogue);

/// c = op(a) op(b) + beta c for `batch` matrices that follow each other, all row-major: op(a) [m, k], op(b) [k, n],
/// c [m, n]; what an epilogue takes or makes besides is of c's type.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Storage a = Storage::F32, b = Storage::F32, c = Storage::F32;
  bool transposeA = false, transposeB = false; ///< a is stored [k, m], b [n, k]
  Epilogue epilogue = pb::LibraryCall::NONE;
  bool keepsOperand = true; ///< of BIAS_GELU: gelu's
  /// Bytes that the addresses of MatmulOperands are multiples of, whatever the call.
  std::array<uint32_t, 5> alignments = {16, 16, 16, 16, 16};

  auto operator<=>(const MatmulShape &) const = default;
  int64_t bytesOfA() const { return batch * m * k * bytesOf(a); }
  int64_t bytesOfB() const { return batch * k * n * bytesOf(b); }
  int64_t bytesOfC() const { return batch * m * n * bytesOf(c); }
  bool hasRow() const { return hasBias() || epilogue == pb::LibraryCall::BIAS_GRADIENT; }
  bool hasBias() const {
    return epilogue == pb::LibraryCall::BIAS || epilogue == pb::LibraryCall::BIAS_GELU ||
           epilogue == pb::LibraryCall::BIAS_ADD;
  }
  /// A place of gelu's operand.
  bool hasGelu() const {
    return (epilogue == pb::LibraryCall::BIAS_GELU && keepsOperand) || epilogue == pb::LibraryCall::GELU_GRADIENT;
  }
  bool adds() const { return epilogue == pb::LibraryCall::ADD || epilogue == pb::LibraryCall::BIAS_ADD; }
  int64_t bytesOfRow() const { return hasRow() ? n * bytesOf(c) : 0; }
  int64_t bytesOfMatrix() const { return hasGelu() || adds() ? m * n * bytesOf(c) : 0; }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k * batch);
  }
  /// "bf16 [4, 128, 64] by bf16 [64, 32] transposed to f32"
  std::string describe() const;
};

/// The bytes in which cuBLASLt's callers keep an algorithm; empty: the one that it puts first.
using MatmulAlgorithm = std::string;

/// `row` is the bias, or its gradient; `matrix` gelu's operand, or the addend.
struct MatmulOperands {
  CUdeviceptr a, b, c, row = 0, matrix = 0;
};

/// cuBLASLt has none for a product; where there is an epilogue, a kernel can do that.
struct NoAlgorithm : PlanError {
  NoAlgorithm(const std::string &what, Epilogue epilogue) : PlanError(what), epilogue(epilogue) {}
  Epilogue epilogue;
};

/// All products of a rank.
class Matmuls {
public:
  /// What cuBLASLt recommends for Hopper; it is told to stay within it everywhere.
  static constexpr uint64_t workspaceBytes = 32 << 20;

  Matmuls(const Context &context, const CublasLt &cublas);
  ~Matmuls();
  Matmuls(const Matmuls &) = delete;
  Matmuls &operator=(const Matmuls &) = delete;

  class Product;

  /// The product of this shape; what was prepared before is looked up. Throws NoAlgorithm, and PlanError where the
  /// given one is none for it.
  const Product &prepare(const MatmulShape &shape, const MatmulAlgorithm &algorithm = {});
  /// Up to `most` algorithms for it, that which cuBLASLt puts first before the others.
  std::vector<MatmulAlgorithm> recommend(const MatmulShape &shape, int most) const;
  /// Whose algorithms they are: "cuBLASLt 13.1.0 on sm_90".
  std::string library() const;
  static const MatmulShape &shapeOf(const Product &product);

  /// Enqueues it. `accumulates`: adds to c. `workspace`: workspaceBytes, used by `queue` alone.
  void run(Queue &queue, const Product &product, const MatmulOperands &operands, bool accumulates,
           CUdeviceptr workspace) const;

  /// Enqueues every product once, on zeros in `room`, so that cuBLASLt loads its kernels now and not in the first step.
  /// Those whose operands do not fit are left out.
  void warmUp(Queue &queue, CUdeviceptr room, uint64_t roomBytes, CUdeviceptr workspace) const;

private:
  const Context &context;
  const CublasLt &cublas;
  cublasLtHandle_t handle = nullptr;
  std::map<std::pair<MatmulShape, MatmulAlgorithm>, std::unique_ptr<Product>> products;
};

} // namespace espalier::rt::cuda
