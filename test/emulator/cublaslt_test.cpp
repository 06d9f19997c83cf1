// Tests the libcublasLt double through its C interface against products in double. Compiled against the real header if
// it is installed.
#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#ifdef ESPALIER_CUDA_HEADER
#include <cublasLt.h>
#include <cuda.h>
#else
#include "test/emulator/cublaslt_calls.h"
#include "test/emulator/cuda_calls.h"
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#endif

#include "test/emulator/numbers.h"

namespace espalier::emulator {
__attribute__((visibility("default"))) int forgetFaults();

namespace {

/// Three matrices on the device, as f32 or bf16, with their cuBLASLt descriptors.
class CublasLt : public testing::Test {
protected:
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0; // A, B, D, bias and auxiliary, workspace: `room` bytes each
  static constexpr size_t room = 1 << 16;

  void SetUp() override {
    CUcontext context;
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&memory, 6 * room), CUDA_SUCCESS);
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    uint64_t workspace = room;
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8),
              CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    for (cublasLtMatrixLayout_t layout : {a, b, d})
      if (layout)
        EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescDestroy(description), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(forgetFaults(), 0);
  }

  CUdeviceptr place(int number) const { return memory + number * room; }
  static void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

  void layouts(cudaDataType_t type, cudaDataType_t result, uint64_t rowsA, uint64_t columnsA, uint64_t rowsB,
               uint64_t columnsB, uint64_t rows, uint64_t columns) {
    ASSERT_EQ(cublasLtMatrixLayoutCreate(&a, type, rowsA, columnsA, rowsA), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatrixLayoutCreate(&b, type, rowsB, columnsB, rowsB), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatrixLayoutCreate(&d, result, rows, columns, rows), CUBLAS_STATUS_SUCCESS);
  }
  template <class T> void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  template <class T> void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }

  /// Returns multiples of 1/8, which are exact in all types.
  static float element(size_t i, int salt) { return (static_cast<int>(i * 37 + salt) % 33 - 16) / 8.0f; }

  template <class T> void fill(int where, size_t count, int salt) {
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = narrow<T>(element(i, salt));
    ASSERT_EQ(cuMemcpyHtoD(place(where), values.data(), count * sizeof(T)), CUDA_SUCCESS);
  }
  template <class T> std::vector<float> get(int where, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cuMemcpyDtoH(values.data(), place(where), count * sizeof(T)), CUDA_SUCCESS);
    std::vector<float> floats;
    for (T value : values)
      floats.push_back(widen(value));
    return floats;
  }

  cublasStatus_t choose(cublasLtMatmulHeuristicResult_t &result) {
    int found = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, d, d, preference, 1, &result, &found);
    EXPECT_EQ(found, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
  }
  cublasStatus_t multiply(float alpha = 1, float beta = 0, size_t workspace = room, uint64_t shiftD = 0) {
    cublasLtMatmulHeuristicResult_t result = {};
    if (cublasStatus_t status = choose(result); status != CUBLAS_STATUS_SUCCESS)
      return status;
    void *out = pointer(place(2) + shiftD);
    return cublasLtMatmul(handle, description, &alpha, pointer(place(0)), a, pointer(place(1)), b, &beta, out, d, out,
                          d, &result.algo, pointer(place(5)), workspace, stream);
  }
};

TEST_F(CublasLt, MultipliesWithTransposesAndScales) {
  // D [5, 3] = 2 * A' * B + 0.5 * D with A [4, 5] and B [4, 3].
  layouts(CUDA_R_32F, CUDA_R_32F, 4, 5, 4, 3, 5, 3);
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  fill<float>(0, 20, 1);
  fill<float>(1, 12, 2);
  fill<float>(2, 15, 3);
  ASSERT_EQ(multiply(2, 0.5f), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<float> out = get<float>(2, 15);
  for (size_t column = 0; column < 3; ++column)
    for (size_t row = 0; row < 5; ++row) {
      float sum = 0;
      for (size_t k = 0; k < 4; ++k)
        sum += element(row * 4 + k, 1) * element(column * 4 + k, 2);
      EXPECT_EQ(out[column * 5 + row], 2 * sum + 0.5f * element(column * 5 + row, 3));
    }
}

TEST_F(CublasLt, MultipliesBatchesOfHalves) {
  // Two batches that share B.
  layouts(CUDA_R_16BF, CUDA_R_16BF, 3, 8, 8, 2, 3, 2);
  for (cublasLtMatrixLayout_t layout : {a, b, d})
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(2));
  set(a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(24));
  set(d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(6));
  fill<BF16>(0, 48, 1);
  fill<BF16>(1, 16, 2);
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<float> out = get<BF16>(2, 12);
  for (size_t batch = 0; batch < 2; ++batch)
    for (size_t column = 0; column < 2; ++column)
      for (size_t row = 0; row < 3; ++row) {
        double sum = 0;
        for (size_t k = 0; k < 8; ++k)
          sum += element(batch * 24 + k * 3 + row, 1) * element(column * 8 + k, 2);
        EXPECT_EQ(out[batch * 6 + column * 3 + row], widen(narrow<BF16>(sum)));
      }
}

TEST_F(CublasLt, RowOrderIsTheTranspose) {
  layouts(CUDA_R_16F, CUDA_R_32F, 3, 4, 4, 2, 3, 2);
  set(a, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t(CUBLASLT_ORDER_ROW));
  set(a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(4));
  fill<F16>(0, 12, 1);
  fill<F16>(1, 8, 2);
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<float> out = get<float>(2, 6);
  float sum = 0;
  for (size_t k = 0; k < 4; ++k)
    sum += element(2 * 4 + k, 1) * element(4 + k, 2);
  EXPECT_EQ(out[3 + 2], sum);
}

TEST_F(CublasLt, EpiloguesAddBiasAndGelu) {
  layouts(CUDA_R_32F, CUDA_R_32F, 8, 4, 4, 2, 8, 2);
  fill<float>(0, 32, 1);
  fill<float>(1, 8, 2);
  fill<float>(3, 8, 5);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(place(3)));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer(place(4)));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<float> out = get<float>(2, 16), before = get<float>(4, 16);
  for (size_t i = 0; i < 16; ++i) {
    float sum = 0;
    for (size_t k = 0; k < 4; ++k)
      sum += element(k * 8 + i % 8, 1) * element(i / 8 * 4 + k, 2);
    double x = sum + element(i % 8, 5);
    EXPECT_EQ(before[i], static_cast<float>(x));
    EXPECT_NEAR(out[i], x / 2 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))), 1e-5);
  }
  // Its gradient, compared with finite differences.
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_DGELU));
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  auto gelu = [](double x) { return x / 2 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))); };
  std::vector<float> gradient = get<float>(2, 16);
  for (size_t i = 0; i < 16; ++i) {
    double x = before[i], slope = (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
    EXPECT_NEAR(gradient[i], (x - element(i % 8, 5)) * slope, 1e-4);
  }
}

TEST_F(CublasLt, GradientOfABiasIsTheSumOfARow) {
  layouts(CUDA_R_32F, CUDA_R_32F, 8, 4, 4, 2, 8, 2);
  fill<float>(0, 32, 1);
  fill<float>(1, 8, 2);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BGRADA));
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE); // no bias pointer to store to
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(place(3)));
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<float> sums = get<float>(3, 8);
  for (size_t row = 0; row < 8; ++row)
    EXPECT_EQ(sums[row], element(row, 1) + element(8 + row, 1) + element(16 + row, 1) + element(24 + row, 1));
}

TEST_F(CublasLt, RefusesWhatTheRealOneRefuses) {
  layouts(CUDA_R_32F, CUDA_R_32F, 4, 3, 3, 2, 4, 2);
  cublasLtMatmulHeuristicResult_t result = {};
  ASSERT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result.workspaceSize, 32u);
  EXPECT_EQ(multiply(1, 0, /*workspace=*/16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(1, 0, room, /*shiftD=*/4), CUBLAS_STATUS_INVALID_VALUE); // the algorithm requires 16-byte
                                                                              // alignment
  set(a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(3));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_INVALID_VALUE);
  set(a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t(4));
  set(b, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(2));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_INVALID_VALUE);
  set(b, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(3));
  set(b, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_16F));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
  set(b, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t(CUDA_R_32F));
  set(b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(2));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_INVALID_VALUE);
  set(b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(1));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_GELU_AUX));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(4)); // not a multiple of 8
  EXPECT_EQ(choose(result), CUBLAS_STATUS_INVALID_VALUE);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer(place(4) + 8));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BIAS));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(place(3) + 8));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(place(3)));
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_16BF));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED); // not supported with D in f32
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(-1));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(2)); // ReLU, which the double does not implement
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
  int64_t wide = 4;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &wide, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescDestroy(nullptr), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLt, EpiloguesThatWantAnotherFormAreRefused) {
  layouts(CUDA_R_16BF, CUDA_R_32F, 4, 8, 4, 2, 8, 2); // A' B
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  cublasLtMatmulHeuristicResult_t result = {};
  ASSERT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BGRADA));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_DGELU));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  set(a, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(1)); // depth 1
  set(b, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(1));
  EXPECT_EQ(choose(result), CUBLAS_STATUS_NOT_SUPPORTED);
}

/// The library accepts a serialized algorithm again, and rejects it if any bit has changed.
TEST_F(CublasLt, AlgorithmsAreCheckedBitByBit) {
  layouts(CUDA_R_32F, CUDA_R_32F, 3, 3, 3, 2, 3, 2);
  cublasLtMatmulHeuristicResult_t results[4] = {}, checked = {};
  int found = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, d, d, preference, 4, results, &found),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(found, 2);
  for (int i = 0; i < found; ++i) {
    cublasLtMatmulAlgo_t algorithm = results[i].algo;
    EXPECT_EQ(cublasLtMatmulAlgoCheck(handle, description, a, b, d, d, &algorithm, &checked), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(checked.workspaceSize, i == 0 ? 24u : 0u);
    for (int bit = 0; bit < 512; ++bit) {
      algorithm.data[bit / 64] ^= uint64_t(1) << bit % 64;
      EXPECT_EQ(cublasLtMatmulAlgoCheck(handle, description, a, b, d, d, &algorithm, &checked),
                CUBLAS_STATUS_INVALID_VALUE)
          << bit;
      algorithm.data[bit / 64] ^= uint64_t(1) << bit % 64;
    }
  }
  set(a, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t(2));
  set(b, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t(2));
  EXPECT_EQ(cublasLtMatmulAlgoCheck(handle, description, a, b, d, d, &results[0].algo, &checked),
            CUBLAS_STATUS_INVALID_VALUE); // another depth
}

TEST_F(CublasLt, ProductsTakePartInTheOrderOfStreams) {
  layouts(CUDA_R_32F, CUDA_R_32F, 4, 3, 3, 2, 4, 2);
  CUstream other;
  ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuMemsetD8Async(place(1) + 20, 0, 4, other), CUDA_SUCCESS); // the end of B
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("matrix product [4, 3] by [3, 2] reads"));
  EXPECT_EQ(forgetFaults(), 1);
  EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
}

TEST_F(CublasLt, ProductsStayInTheirMemory) {
  layouts(CUDA_R_32F, CUDA_R_32F, 4, 3, 3, 2, 4, 2);
  cublasLtMatmulHeuristicResult_t result = {};
  ASSERT_EQ(choose(result), CUBLAS_STATUS_SUCCESS);
  float one = 1, zero = 0;
  void *end = pointer(memory + 6 * room - 16);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cublasLtMatmul(handle, description, &one, pointer(place(0)), a, end, b, &zero, pointer(place(2)), d,
                           pointer(place(2)), d, &result.algo, pointer(place(5)), room, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("B of 24 bytes does not lie in an allocation"));
  EXPECT_EQ(forgetFaults(), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cublasLtMatmul(handle, description, &one, pointer(place(0)), a, pointer(place(1)), b, &zero,
                           pointer(place(0)), d, pointer(place(0)), d, &result.algo, pointer(place(5)), room, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("writes into its operand A"));
  EXPECT_EQ(forgetFaults(), 1);
}

} // namespace
} // namespace espalier::emulator
