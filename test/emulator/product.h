// A cuBLASLt matrix product: its validation and its computation.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "test/emulator/access_map.h"
#include "test/emulator/cublaslt_types.h"
#include "test/emulator/cuda_types.h"

namespace espalier::emulator {

struct Layout {
  int32_t type;
  uint64_t rows, columns;
  int64_t leading; // elements between columns (row order: between rows)
  int32_t order = CUBLASLT_ORDER_COL;
  int32_t batches = 1;
  int64_t batchStride = 0;

  uint64_t elementBytes() const { return type == CUDA_R_32F ? 4 : 2; }
  uint64_t lines() const { return order == CUBLASLT_ORDER_COL ? columns : rows; }
  uint64_t lineElements() const { return order == CUBLASLT_ORDER_COL ? rows : columns; }
  /// Returns the offset of batch `batch` in elements.
  uint64_t index(uint64_t batch, uint64_t row, uint64_t column) const {
    uint64_t line = order == CUBLASLT_ORDER_COL ? column : row, place = order == CUBLASLT_ORDER_COL ? row : column;
    return batch * batchStride + line * leading + place;
  }
  Ranges bytesAt(uint64_t address) const;
};

struct Description {
  int32_t compute, scale;
  int32_t pointerMode = 0; // alpha and beta are in host memory
  int32_t transposeA = CUBLAS_OP_N, transposeB = CUBLAS_OP_N, transposeC = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint64_t bias = 0, auxiliary = 0;
  int64_t biasBatchStride = 0, auxiliaryLeading = 0, auxiliaryBatchStride = 0;
  int32_t biasType = -1; // the type of D

  bool hasBias() const { return epilogue & 4; }
  bool hasBiasGradient() const { return epilogue == CUBLASLT_EPILOGUE_BGRADA; }
  bool hasGelu() const { return epilogue & 32; }
  bool writesAuxiliary() const { return hasGelu() && epilogue & 128; }
  bool hasGeluGradient() const { return epilogue == CUBLASLT_EPILOGUE_DGELU; }
};

struct Preference {
  uint64_t workspaceBytes = 0;
  uint32_t alignments[4] = {256, 256, 256, 256}; // for A, B, C, D
  uint32_t searchMode = 0, reductionSchemes = ~0u;
  float waves = 0;
  uint64_t implementations = ~uint64_t(0);
};

/// D = alpha * op(A) * op(B) + beta * C, followed by the epilogue.
struct Product {
  Description description;
  Layout a, b, c, d;
  float alpha = 1, beta = 0;
  uint64_t addressA = 0, addressB = 0, addressC = 0, addressD = 0;
  uint64_t workspace = 0, workspaceBytes = 0; // used by the algorithm

  uint64_t rows() const { return d.rows; }
  uint64_t columns() const { return d.columns; }
  uint64_t depth() const { return description.transposeA == CUBLAS_OP_N ? a.columns : a.rows; }
  /// Validates types, sizes and epilogue. Returns SUCCESS or the error.
  cublasStatus_t check() const;
  std::string name() const;
  /// Sums in double, rounded once to float before the epilogue and once to D's type.
  Accesses run() const;
};

} // namespace espalier::emulator
