// The vectors of a thread: neighbouring columns that it loads and stores at once, 16 bytes if possible.
#pragma once

#include "compiler/codegen/cuda/kernel_function.h"
#include "compiler/codegen/lanes.h"

namespace espalier::codegen::cuda {

/// The CUDA implementation of Lanes.
class CudaLanes : public Lanes {
public:
  CudaLanes(KernelFunction &function, unsigned columnBits) : Lanes(function.b, columnBits), function(function) {}

  /// Vectors are aligned to their size, or to 16 bytes. A store does nothing if `mask` is set and false.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element, int width) override;
  void store(mlir::Value value, mlir::Value base, mlir::Value index, mlir::Type element) override;
  mlir::Value round(mlir::Value value, mlir::Type element) override;
  std::pair<mlir::Value, mlir::Value> multiplyWide(mlir::Value x, uint32_t factor) override;

  KernelFunction &function;
  mlir::Value mask;

private:
  /// Convert vectors to the words or numbers that memory holds, and back.
  mlir::Value pack(mlir::Value value, mlir::Type element);
  mlir::Value unpack(mlir::Value words, mlir::Type element);
};

} // namespace espalier::codegen::cuda
