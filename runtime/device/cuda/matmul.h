// Matrix products by cuBLASLt. Sums are in f32, never TF32. Each distinct product has one algorithm, from the plan or
// chosen when the plan is loaded, used in every step and limited to a workspace of fixed size.
#pragma once

#include "format/plan.pb.h"
#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/kernels/dtype.h"
#include "runtime/status.h"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// The operation fused into a product of one matrix.
using Epilogue = pb::LibraryCall::Epilogue;

/// Returns the name used in run files, as "bias_gelu". Protobuf's name function would link the plan library into the
/// hardware tools.
const char *nameOf(Epilogue epilogue);

/// c = op(a) op(b) + beta c for `batch` contiguous row-major matrices: op(a) [m, k], op(b) [k, n], c [m, n]. Other
/// operands of an epilogue have c's type.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Storage a = Storage::F32, b = Storage::F32, c = Storage::F32;
  bool transposeA = false, transposeB = false; ///< a is stored [k, m], b [n, k]
  Epilogue epilogue = pb::LibraryCall::NONE;
  bool keepsOperand = true; ///< for BIAS_GELU: whether gelu's operand is stored
  /// The alignments in bytes of the addresses in MatmulOperands, in every call.
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
  /// Returns whether `matrix` is gelu's operand.
  bool hasGelu() const {
    return (epilogue == pb::LibraryCall::BIAS_GELU && keepsOperand) || epilogue == pb::LibraryCall::GELU_GRADIENT;
  }
  bool adds() const { return epilogue == pb::LibraryCall::ADD || epilogue == pb::LibraryCall::BIAS_ADD; }
  int64_t bytesOfRow() const { return hasRow() ? n * bytesOf(c) : 0; }
  int64_t bytesOfMatrix() const { return hasGelu() || adds() ? m * n * bytesOf(c) : 0; }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k * batch);
  }
  /// Describes the product: "bf16 [4, 128, 64] by bf16 [64, 32] transposed to f32".
  std::string describe() const;
};

/// cuBLASLt's serialized algorithm. If empty, cuBLASLt's first recommendation is used.
using MatmulAlgorithm = std::string;

/// `row` is the bias or its gradient. `matrix` is gelu's operand or the addend.
struct MatmulOperands {
  CUdeviceptr a, b, c, row = 0, matrix = 0;
};

/// cuBLASLt has no algorithm for a product. A kernel can do the epilogue instead.
struct NoAlgorithm : PlanError {
  NoAlgorithm(const std::string &what, Epilogue epilogue) : PlanError(what), epilogue(epilogue) {}
  Epilogue epilogue;
};

/// All products of a rank.
class Matmuls {
public:
  /// cuBLASLt's recommendation for Hopper, used as the limit on every device.
  static constexpr uint64_t workspaceBytes = 32 << 20;

  Matmuls(const Context &context, const CublasLt &cublas);
  ~Matmuls();
  Matmuls(const Matmuls &) = delete;
  Matmuls &operator=(const Matmuls &) = delete;

  class Product;

  /// Prepares the product of this shape, or returns it if it was prepared before. Throws NoAlgorithm, or PlanError if
  /// the given algorithm does not support this product.
  const Product &prepare(const MatmulShape &shape, const MatmulAlgorithm &algorithm = {});
  /// Returns up to `most` algorithms, in cuBLASLt's order of preference.
  std::vector<MatmulAlgorithm> recommend(const MatmulShape &shape, int most) const;
  /// Returns the library and device that the algorithms belong to: "cuBLASLt 13.1.0 on sm_90".
  std::string library() const;
  static const MatmulShape &shapeOf(const Product &product);

  /// Enqueues a product. `accumulates` adds to c. `workspace` has workspaceBytes, which only `queue` may use.
  void run(Queue &queue, const Product &product, const MatmulOperands &operands, bool accumulates,
           CUdeviceptr workspace) const;

  /// Enqueues every product once, on zeros in `room`, so that cuBLASLt loads its kernels before the first step. Skips
  /// products whose operands do not fit.
  void warmUp(Queue &queue, CUdeviceptr room, uint64_t roomBytes, CUdeviceptr workspace) const;

private:
  const Context &context;
  const CublasLt &cublas;
  cublasLtHandle_t handle = nullptr;
  std::map<std::pair<MatmulShape, MatmulAlgorithm>, std::unique_ptr<Product>> products;
};

} // namespace espalier::rt::cuda
