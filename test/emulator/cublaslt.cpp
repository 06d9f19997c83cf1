// A test double of libcublasLt.so.13: descriptors, a heuristic with two algorithms, and products enqueued on a stream
// of the libcuda double.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "test/emulator/cublaslt_calls.h"
#include "test/emulator/device.h"
#include "test/emulator/product.h"

using namespace espalier::emulator;

struct cublasLtContext {};
struct cublasLtMatmulDescription : Description {};
struct cublasLtLayout : Layout {};
struct cublasLtPreference : Preference {};

namespace {

std::mutex lock;

/// The live objects behind handles; invalid or destroyed handles are rejected.
template <class T> std::set<std::unique_ptr<T>> &owned() {
  static auto *all = new std::set<std::unique_ptr<T>>;
  return *all;
}
template <class T> bool isOwned(const T *object) {
  return std::any_of(owned<T>().begin(), owned<T>().end(), [&](const auto &one) { return one.get() == object; });
}
template <class T> cublasStatus_t create(T **handle, T object) {
  std::lock_guard held(lock);
  if (!handle)
    return CUBLAS_STATUS_INVALID_VALUE;
  *handle = owned<T>().insert(std::make_unique<T>(object)).first->get();
  return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t destroy(T *handle) {
  std::lock_guard held(lock);
  return std::erase_if(owned<T>(), [&](const auto &one) { return one.get() == handle; }) ? CUBLAS_STATUS_SUCCESS
                                                                                         : CUBLAS_STATUS_INVALID_VALUE;
}

/// The address and size of an attribute.
struct Field {
  int attribute;
  void *place;
  size_t bytes;
};
template <class T> Field field(int attribute, T &member) { return {attribute, &member, sizeof member}; }

template <class T>
cublasStatus_t set(T *object, std::initializer_list<Field> fields, int attribute, const void *value, size_t bytes) {
  for (const Field &known : fields)
    if (known.attribute == attribute) {
      if (!value || bytes != known.bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(known.place, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

/// The serialized form of an algorithm, for one shape and alignment, with its workspace size.
struct Algorithm {
  uint32_t magic, typeA, typeD, epilogue;
  uint64_t rows, columns, depth, workspaceBytes;
  uint32_t alignments[4];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr uint32_t algorithmMagic = 0x45537031;

/// Splits the depth in two and keeps the sums of one half in the workspace, if the workspace is large enough.
Algorithm choose(const Product &product, const Preference &preference) {
  uint64_t sums = product.rows() * product.columns() * 4;
  Algorithm algorithm{algorithmMagic,
                      static_cast<uint32_t>(product.a.type),
                      static_cast<uint32_t>(product.d.type),
                      product.description.epilogue,
                      product.rows(),
                      product.columns(),
                      product.depth(),
                      preference.workspaceBytes >= sums ? sums : 0,
                      {}};
  // No load is wider than 16 bytes.
  for (int i = 0; i < 4; ++i)
    algorithm.alignments[i] = std::min(preference.alignments[i], 16u);
  return algorithm;
}

/// Returns whether this double made the algorithm, for products of this shape and type.
bool isFor(const Algorithm &algorithm, const Product &product) {
  Algorithm own = choose(product, {});
  bool isSound = algorithm.workspaceBytes == 0 || algorithm.workspaceBytes == product.rows() * product.columns() * 4;
  for (uint32_t alignment : algorithm.alignments)
    isSound = isSound && std::has_single_bit(alignment) && alignment <= 16;
  return isSound && algorithm.magic == own.magic && algorithm.typeA == own.typeA && algorithm.typeD == own.typeD &&
         algorithm.epilogue == own.epilogue && algorithm.rows == own.rows && algorithm.columns == own.columns &&
         algorithm.depth == own.depth;
}

bool fits(const Algorithm &algorithm, const Product &product) {
  const uint64_t addresses[] = {product.addressA, product.addressB, product.beta != 0 ? product.addressC : 0,
                                product.addressD};
  for (int i = 0; i < 4; ++i)
    if (algorithm.alignments[i] && addresses[i] % algorithm.alignments[i])
      return false;
  return isFor(algorithm, product);
}

cublasLtMatmulHeuristicResult_t resultOf(const Algorithm &algorithm) {
  cublasLtMatmulHeuristicResult_t result = {};
  std::memcpy(&result.algo, &algorithm, sizeof algorithm);
  result.workspaceSize = algorithm.workspaceBytes;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

bool describe(Product &product, cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  if (!isOwned(handle) || !isOwned(description) || !isOwned(a) || !isOwned(b) || !isOwned(c) || !isOwned(d))
    return false;
  product.description = *description;
  product.a = *a;
  product.b = *b;
  product.c = *c;
  product.d = *d;
  return true;
}

/// Returns the alignment of an address, at most 256.
uint32_t alignmentOf(uint64_t address) {
  return address ? static_cast<uint32_t>(std::min<uint64_t>(address & -address, 256)) : 256;
}

bool areAddressesAligned(const Product &p) {
  return p.addressA && p.addressB && p.addressD && (p.beta == 0 || p.addressC) &&
         !(p.addressA % p.a.elementBytes() || p.addressB % p.b.elementBytes() || p.addressC % p.c.elementBytes() ||
           p.addressD % p.d.elementBytes());
}

} // namespace

extern "C" {

EMULATOR_EXPORT size_t cublasLtGetVersion() { return 130000; }
EMULATOR_EXPORT size_t cublasLtGetCudartVersion() { return 13000; }

EMULATOR_EXPORT const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
EMULATOR_EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "the library was not initialized";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "an unsupported value or parameter was passed to the function";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "the function failed to launch on the GPU";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "the functionality requested is not supported";
  }
  return "unknown error";
}

EMULATOR_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  int devices = 0, driver = 0;
  if (cuDriverGetVersion(&driver) != CUDA_SUCCESS || driver < 13000) // the requirement of the CUDA 13 library
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cuDeviceGetCount(&devices) != CUDA_SUCCESS || !devices)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  return create(handle, cublasLtContext());
}
EMULATOR_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle) == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description, cublasComputeType_t compute,
                                                        cudaDataType_t scale) {
  return create(description, cublasLtMatmulDescription{{.compute = compute, .scale = scale}});
}
EMULATOR_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}
EMULATOR_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                                              cublasLtMatmulDescAttributes_t attribute,
                                                              const void *value, size_t bytes) {
  std::lock_guard held(lock);
  if (!isOwned(description))
    return CUBLAS_STATUS_INVALID_VALUE;
  Description &d = *description;
  return set(description,
             {field(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, d.compute), field(CUBLASLT_MATMUL_DESC_SCALE_TYPE, d.scale),
              field(CUBLASLT_MATMUL_DESC_POINTER_MODE, d.pointerMode), field(CUBLASLT_MATMUL_DESC_TRANSA, d.transposeA),
              field(CUBLASLT_MATMUL_DESC_TRANSB, d.transposeB), field(CUBLASLT_MATMUL_DESC_TRANSC, d.transposeC),
              field(CUBLASLT_MATMUL_DESC_EPILOGUE, d.epilogue), field(CUBLASLT_MATMUL_DESC_BIAS_POINTER, d.bias),
              field(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, d.biasBatchStride),
              field(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, d.auxiliary),
              field(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, d.auxiliaryLeading),
              field(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, d.auxiliaryBatchStride),
              field(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d.biasType)},
             attribute, value, bytes);
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return create(layout, cublasLtLayout{{.type = type, .rows = rows, .columns = columns, .leading = leading}});
}
EMULATOR_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }
EMULATOR_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                                const void *value, size_t bytes) {
  std::lock_guard held(lock);
  if (!isOwned(layout))
    return CUBLAS_STATUS_INVALID_VALUE;
  Layout &l = *layout;
  return set(layout,
             {field(CUBLASLT_MATRIX_LAYOUT_TYPE, l.type), field(CUBLASLT_MATRIX_LAYOUT_ORDER, l.order),
              field(CUBLASLT_MATRIX_LAYOUT_ROWS, l.rows), field(CUBLASLT_MATRIX_LAYOUT_COLS, l.columns),
              field(CUBLASLT_MATRIX_LAYOUT_LD, l.leading), field(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, l.batches),
              field(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, l.batchStride)},
             attribute, value, bytes);
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  return create(preference, cublasLtPreference());
}
EMULATOR_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
EMULATOR_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                                    const void *value, size_t bytes) {
  std::lock_guard held(lock);
  if (!isOwned(preference))
    return CUBLAS_STATUS_INVALID_VALUE;
  Preference &p = *preference;
  return set(preference,
             {field(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.workspaceBytes),
              field(CUBLASLT_MATMUL_PREF_SEARCH_MODE, p.searchMode),
              field(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, p.reductionSchemes),
              field(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, p.waves),
              field(CUBLASLT_MATMUL_PREF_IMPL_MASK, p.implementations),
              field(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignments[0]),
              field(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignments[1]),
              field(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignments[2]),
              field(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignments[3])},
             attribute, value, bytes);
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                              cublasLtMatmulPreference_t preference, int wanted,
                                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
  std::lock_guard held(lock);
  Product product;
  if (!describe(product, handle, description, a, b, c, d) || !isOwned(preference) || wanted < 1 || !results || !found)
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  if (cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm = choose(product, *preference);
  results[(*found)++] = resultOf(algorithm);
  if (wanted > 1 && algorithm.workspaceBytes > 0) {
    algorithm.workspaceBytes = 0;
    results[(*found)++] = resultOf(algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                       const cublasLtMatmulAlgo_t *given,
                                                       cublasLtMatmulHeuristicResult_t *result) {
  std::lock_guard held(lock);
  Product product;
  if (!describe(product, handle, description, a, b, c, d) || !given || !result)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm;
  std::memcpy(&algorithm, given, sizeof algorithm);
  if (!isFor(algorithm, product))
    return CUBLAS_STATUS_INVALID_VALUE;
  *result = resultOf(algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

EMULATOR_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              const void *alpha, const void *addressA, cublasLtMatrixLayout_t a,
                                              const void *addressB, cublasLtMatrixLayout_t b, const void *beta,
                                              const void *addressC, cublasLtMatrixLayout_t c, void *addressD,
                                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *chosen,
                                              void *workspace, size_t workspaceBytes, CUstream stream) {
  std::lock_guard held(lock);
  Product product;
  if (!alpha || !beta || !describe(product, handle, description, a, b, c, d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS)
    return status;
  product.alpha = *static_cast<const float *>(alpha);
  product.beta = *static_cast<const float *>(beta);
  product.addressA = reinterpret_cast<uint64_t>(addressA);
  product.addressB = reinterpret_cast<uint64_t>(addressB);
  product.addressC = reinterpret_cast<uint64_t>(addressC);
  product.addressD = reinterpret_cast<uint64_t>(addressD);
  product.workspace = reinterpret_cast<uint64_t>(workspace);
  Preference given{.workspaceBytes = workspace ? workspaceBytes : 0};
  const uint64_t addresses[] = {product.addressA, product.addressB, product.addressC, product.addressD};
  std::transform(std::begin(addresses), std::end(addresses), given.alignments, alignmentOf);
  Algorithm algorithm = choose(product, given);
  if (chosen)
    std::memcpy(&algorithm, chosen, sizeof algorithm);
  const Description &how = product.description;
  bool isIncomplete = ((how.hasBias() || how.hasBiasGradient()) && !how.bias) ||
                      ((how.writesAuxiliary() || how.hasGeluGradient()) && !how.auxiliary);
  if (!areAddressesAligned(product) || !fits(algorithm, product) || algorithm.workspaceBytes > given.workspaceBytes ||
      product.workspace % 256 || isIncomplete)
    return CUBLAS_STATUS_INVALID_VALUE;
  // For in-place products, C and D must have the same layout.
  if (product.beta != 0 && addressC == addressD && (c->leading != d->leading || c->order != d->order))
    return CUBLAS_STATUS_INVALID_VALUE;
  product.workspaceBytes = algorithm.workspaceBytes;
  CUresult status = enqueueFor(stream, {product.name(), [product] { return product.run(); }});
  return status == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
