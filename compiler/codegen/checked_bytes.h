// Memory buffers of a kernel under test.
#pragma once

#include "compiler/codegen/guards.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <span>
#include <vector>

namespace espalier::codegen {

/// The bytes of a tensor in the kernel's storage type, followed by guard bytes that detect overruns.
class CheckedBytes {
public:
  explicit CheckedBytes(mlir::RankedTensorType type) : CheckedBytes(type.getElementType(), type.getNumElements()) {}
  CheckedBytes(mlir::Type element, int64_t count)
      : element(element), count(count), width(element.getIntOrFloatBitWidth() / 8),
        bytes(count * width + checkedGuardBytes, pattern) {}

  /// Writes `values`, rounded to the storage type.
  void write(llvm::ArrayRef<double> values) {
    for (auto [index, value] : llvm::enumerate(values)) {
      uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(value));
      if (auto type = mlir::dyn_cast<mlir::FloatType>(element)) {
        bool losesInfo;
        llvm::APFloat number(value);
        number.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
        bits = number.bitcastToAPInt().getZExtValue();
      }
      std::memcpy(bytes.data() + index * width, &bits, width); // little-endian, like all targets
    }
  }

  /// Returns the element at `index`.
  double read(int64_t index) const {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + index * width, width);
    if (element.isInteger())
      return static_cast<int32_t>(bits);
    bool losesInfo;
    llvm::APFloat number(mlir::cast<mlir::FloatType>(element).getFloatSemantics(), llvm::APInt(width * 8, bits));
    number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    return number.convertToDouble();
  }

  /// Returns whether a guard byte has changed.
  bool isOverrun() const {
    return llvm::any_of(llvm::ArrayRef(bytes).drop_front(count * width), [](char byte) { return byte != pattern; });
  }
  std::span<char> span() { return bytes; }
  mlir::Type type() const { return element; }
  int64_t size() const { return count; } ///< number of elements

private:
  static constexpr char pattern = '\xA5';
  mlir::Type element;
  int64_t count, width;
  std::vector<char> bytes;
};

} // namespace espalier::codegen
