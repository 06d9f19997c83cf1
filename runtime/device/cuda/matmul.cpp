// cuBLASLt's matrices are column-major. A row-major matrix has the layout of its column-major transpose, so the call
// computes c' = op(b)' op(a)': operands and m, n are swapped, without a copy.
#include "runtime/device/cuda/matmul.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

cudaDataType_t typeOf(Storage storage) {
  switch (storage) {
  case Storage::F32:
    return CUDA_R_32F;
  case Storage::BF16:
    return CUDA_R_16BF;
  case Storage::F16:
    return CUDA_R_16F;
  case Storage::I32:
    break;
  }
  throw PlanError("a matrix product takes f32, bf16 or f16, got i32");
}

const char *nameOf(Storage storage) {
  static constexpr const char *names[] = {"f32", "bf16", "f16", "i32"};
  return names[static_cast<int>(storage)];
}

/// A cuBLASLt descriptor, destroyed with its owner.
template <typename Handle, typename Destroy> class Descriptor {
public:
  template <typename Make> Descriptor(const Destroy &destroy, Make make) : destroy(destroy) { make(&handle); }
  ~Descriptor() { destroy.answer(handle); }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  operator Handle() const { return handle; }

private:
  const Destroy &destroy;
  Handle handle = nullptr;
};

using Description = Descriptor<cublasLtMatmulDesc_t, decltype(CublasLt::cublasLtMatmulDescDestroy)>;
using Layout = Descriptor<cublasLtMatrixLayout_t, decltype(CublasLt::cublasLtMatrixLayoutDestroy)>;
using Preference = Descriptor<cublasLtMatmulPreference_t, decltype(CublasLt::cublasLtMatmulPreferenceDestroy)>;

/// Describes a row-major [rows, columns] matrix, or its transpose, as column-major. Empty matrices get one row or
/// column.
auto makeLayout(const CublasLt &cublas, Storage storage, int64_t rows, int64_t columns, bool isTransposed) {
  rows = std::max<int64_t>(rows, 1);
  columns = std::max<int64_t>(columns, 1);
  if (isTransposed)
    std::swap(rows, columns);
  return [=, &cublas](cublasLtMatrixLayout_t *to) {
    cublas.cublasLtMatrixLayoutCreate(to, typeOf(storage), columns, rows, columns);
  };
}

/// If D is f32, the bias is f32, also for A and B in bf16 or f16 (table of cublasLtMatmul(), cuBLAS 13). BIAS_DATA_TYPE
/// defaults to D's type. Transformer Engine also combines a bias gradient with an f32 sum of weight gradients
/// (fuse_wgrad_accumulation, beta 0 or 1; BGRADB, because its weights are the transpose of ours), and so does OpenNN.
/// BGRADA needs an A that is not transposed. DGELU needs k > 1 (tests of nvmath-python).
cublasLtEpilogue_t epilogueOf(const MatmulShape &shape) {
  switch (shape.epilogue) {
  case pb::LibraryCall::BIAS:
  case pb::LibraryCall::BIAS_ADD:
    return CUBLASLT_EPILOGUE_BIAS;
  case pb::LibraryCall::GELU_GRADIENT:
    return CUBLASLT_EPILOGUE_DGELU;
  case pb::LibraryCall::BIAS_GELU:
    return shape.keepsOperand ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
  case pb::LibraryCall::BIAS_GRADIENT:
    return CUBLASLT_EPILOGUE_BGRADA; // cuBLASLt's A is our b
  default:                           // ADD passes the addend as C
    break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

} // namespace

const char *nameOf(Epilogue epilogue) {
  static constexpr const char *names[] = {"none",          "bias", "gelu_gradient", "bias_gelu",
                                          "bias_gradient", "add",  "bias_add"};
  static_assert(std::size(names) == pb::LibraryCall::Epilogue_ARRAYSIZE);
  return names[epilogue];
}

std::string MatmulShape::describe() const {
  auto matrix = [&](Storage storage, int64_t rows, int64_t columns) {
    return batch == 1 ? fmt::format("{} [{}, {}]", nameOf(storage), rows, columns)
                      : fmt::format("{} [{}, {}, {}]", nameOf(storage), batch, rows, columns);
  };
  return fmt::format("{}{} by {}{} to {}{}{}", transposeA ? matrix(a, k, m) : matrix(a, m, k),
                     transposeA ? " transposed" : "", transposeB ? matrix(b, n, k) : matrix(b, k, n),
                     transposeB ? " transposed" : "", nameOf(c),
                     epilogue == pb::LibraryCall::NONE ? "" : fmt::format(", {}", nameOf(epilogue)),
                     keepsOperand ? "" : " without its operand");
}

/// The operands in cuBLASLt's terms: its A is our b, its B our a, its C and D our c.
class Matmuls::Product {
public:
  Product(const CublasLt &cublas, const MatmulShape &shape)
      : shape(shape),
        description(cublas.cublasLtMatmulDescDestroy,
                    [&](auto to) { cublas.cublasLtMatmulDescCreate(to, CUBLAS_COMPUTE_32F, CUDA_R_32F); }),
        b(cublas.cublasLtMatrixLayoutDestroy, makeLayout(cublas, shape.b, shape.k, shape.n, shape.transposeB)),
        a(cublas.cublasLtMatrixLayoutDestroy, makeLayout(cublas, shape.a, shape.m, shape.k, shape.transposeA)),
        c(cublas.cublasLtMatrixLayoutDestroy, makeLayout(cublas, shape.c, shape.m, shape.n, /*isTransposed=*/false)) {
    cublasOperation_t first = shape.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = shape.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublas.cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    cublas.cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    cublasLtEpilogue_t epilogue = epilogueOf(shape);
    cublas.cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    // Fake addresses with the alignments for which an algorithm is chosen.
    setEpilogue(cublas, shape.alignments[3], shape.alignments[4]);
    if (shape.batch == 1)
      return;
    setBatch(cublas, b, shape.k * shape.n);
    setBatch(cublas, a, shape.m * shape.k);
    setBatch(cublas, c, shape.m * shape.n);
  }

  /// Returns the algorithms that cuBLASLt recommends, best first; at most `most`.
  std::vector<cublasLtMatmulAlgo_t> recommend(const CublasLt &cublas, cublasLtHandle_t handle, int most) const {
    Preference preference(cublas.cublasLtMatmulPreferenceDestroy,
                          [&](auto to) { cublas.cublasLtMatmulPreferenceCreate(to); });
    auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto &value) {
      cublas.cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspaceBytes});
    // A split-k product sums its parts in f32 and in order, never in c's type.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.alignments[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.alignments[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.adds() ? shape.alignments[4] : shape.alignments[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.alignments[2]);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    if (cublas.cublasLtMatmulAlgoGetHeuristic.answer(handle, description, b, a, c, c, preference, most, results.data(),
                                                     &found) != CUBLAS_STATUS_SUCCESS)
      return {};
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i)
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        algorithms.push_back(results[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  /// Uses the plan's algorithm. Returns an error text, empty on success.
  std::string take(const CublasLt &cublas, cublasLtHandle_t handle, const MatmulAlgorithm &given) {
    if (given.size() != sizeof(algorithm))
      return fmt::format("has {} bytes, not {}", given.size(), sizeof(algorithm));
    std::memcpy(&algorithm, given.data(), sizeof(algorithm));
    cublasLtMatmulHeuristicResult_t result = {};
    cublasStatus_t status = cublas.cublasLtMatmulAlgoCheck.answer(handle, description, b, a, c, c, &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS)
      return "does not support this product: " + cublas.text(status);
    if (result.workspaceSize > workspaceBytes)
      return fmt::format("needs a workspace of {} bytes, there are {}", result.workspaceSize, workspaceBytes);
    return "";
  }

  /// Called before each run, because the descriptor holds the addresses of the epilogue's operands.
  void setEpilogue(const CublasLt &cublas, CUdeviceptr row, CUdeviceptr matrix) const {
    auto set = [&](cublasLtMatmulDescAttributes_t which, const auto &value) {
      cublas.cublasLtMatmulDescSetAttribute(description, which, &value, sizeof(value));
    };
    if (shape.hasRow())
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, row);
    if (!shape.hasGelu())
      return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n);
  }

  /// Returns whether c has no elements. A product with k = 0 is not empty: it sets c to zero.
  bool isEmpty() const { return shape.m == 0 || shape.n == 0 || shape.batch == 0; }

  MatmulShape shape;
  Description description;
  Layout b, a, c;
  cublasLtMatmulAlgo_t algorithm = {};

private:
  void setBatch(const CublasLt &cublas, cublasLtMatrixLayout_t layout, int64_t stride) const {
    int32_t count = static_cast<int32_t>(shape.batch);
    cublas.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    cublas.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                            sizeof(stride));
  }
};

Matmuls::Matmuls(const Context &context, const CublasLt &cublas) : context(context), cublas(cublas) {
  cublas.cublasLtCreate(&handle);
}

Matmuls::~Matmuls() {
  products.clear();
  cublas.cublasLtDestroy.answer(handle);
}

const Matmuls::Product &Matmuls::prepare(const MatmulShape &shape, const MatmulAlgorithm &algorithm) {
  if (auto found = products.find({shape, algorithm}); found != products.end())
    return *found->second;
  auto made = std::make_unique<Product>(cublas, shape);
  bool needsNone = made->isEmpty() || shape.k == 0;
  if (!algorithm.empty()) {
    if (std::string fault = made->take(cublas, handle, algorithm); !fault.empty())
      throw PlanError(fmt::format("the algorithm of {} for the product of {} {}; compile the plan again", library(),
                                  shape.describe(), fault));
  } else if (!needsNone) {
    std::vector<cublasLtMatmulAlgo_t> first = made->recommend(cublas, handle, /*most=*/1);
    if (first.empty())
      throw NoAlgorithm(fmt::format("cuBLASLt {} has no algorithm for the product of {} on {} within a workspace of {} "
                                    "MiB",
                                    cublas.version, shape.describe(), context.describe(), workspaceBytes >> 20),
                        shape.epilogue);
    made->algorithm = first.front();
  }
  return *products.emplace(std::pair(shape, algorithm), std::move(made)).first->second;
}

std::vector<MatmulAlgorithm> Matmuls::recommend(const MatmulShape &shape, int most) const {
  std::vector<MatmulAlgorithm> all;
  for (const cublasLtMatmulAlgo_t &algorithm : Product(cublas, shape).recommend(cublas, handle, most))
    all.emplace_back(reinterpret_cast<const char *>(&algorithm), sizeof(algorithm));
  return all;
}

std::string Matmuls::library() const {
  return fmt::format("cuBLASLt {} on {}", versionText(cublas.version), context.architecture());
}

const MatmulShape &Matmuls::shapeOf(const Product &product) { return product.shape; }

void Matmuls::run(Queue &queue, const Product &product, const MatmulOperands &operands, bool accumulates,
                  CUdeviceptr workspace) const {
  const MatmulShape &shape = product.shape;
  if (product.isEmpty())
    return;
  if (shape.k == 0) {
    if (!accumulates)
      queue.driver.cuMemsetD8Async(operands.c, 0, shape.bytesOfC(), queue.stream());
    return;
  }
  product.setEpilogue(cublas, operands.row, operands.matrix);
  float one = 1, beta = accumulates || shape.adds() ? 1 : 0;
  auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  cublas.cublasLtMatmul(handle, product.description, &one, pointer(operands.b), product.b, pointer(operands.a),
                        product.a, &beta, pointer(shape.adds() ? operands.matrix : operands.c), product.c,
                        pointer(operands.c), product.c, &product.algorithm, pointer(workspace), workspaceBytes,
                        queue.stream());
}

void Matmuls::warmUp(Queue &queue, CUdeviceptr room, uint64_t roomBytes, CUdeviceptr workspace) const {
  auto roundUp = [](int64_t bytes) { return (static_cast<uint64_t>(bytes) + 255) / 256 * 256; };
  for (const auto &[key, product] : products) {
    const MatmulShape &shape = key.first;
    uint64_t b = roundUp(shape.bytesOfA()), c = b + roundUp(shape.bytesOfB()), row = c + roundUp(shape.bytesOfC());
    uint64_t matrix = row + roundUp(shape.bytesOfRow());
    if (matrix + shape.bytesOfMatrix() <= roomBytes)
      run(queue, *product, {room, room + b, room + c, room + row, room + matrix}, /*accumulates=*/false, workspace);
  }
}

} // namespace espalier::rt::cuda
