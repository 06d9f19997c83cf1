#include "test/emulator/product.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "test/emulator/device.h"
#include "test/emulator/numbers.h"

namespace espalier::emulator {
namespace {

double load(const std::byte *at, int32_t type) {
  uint16_t bits;
  float value;
  if (type == CUDA_R_32F)
    return std::memcpy(&value, at, 4), value;
  std::memcpy(&bits, at, 2);
  return type == CUDA_R_16F ? widen(F16{bits}) : widen(BF16{bits});
}

void store(std::byte *at, int32_t type, double value) {
  float single = static_cast<float>(value);
  uint16_t bits = type == CUDA_R_16F ? narrow<F16>(value).bits : narrow<BF16>(value).bits;
  if (type == CUDA_R_32F)
    std::memcpy(at, &single, 4);
  else
    std::memcpy(at, &bits, 2);
}

bool isKnownType(int32_t type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

bool isLayoutValid(const Layout &layout) {
  return layout.rows && layout.columns && layout.batches > 0 &&
         (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW) &&
         layout.leading >= static_cast<int64_t>(layout.lineElements()) && layout.batchStride >= 0;
}

/// ESPALIER_EMULATOR_NO_EPILOGUE=192,256 emulates a library without these epilogues.
bool isMissing(uint32_t epilogue) {
  const char *missing = std::getenv("ESPALIER_EMULATOR_NO_EPILOGUE");
  return missing && ("," + std::string(missing) + ",").find("," + std::to_string(epilogue) + ",") != std::string::npos;
}

/// Finds a whole matrix in memory. It is an error if the matrix leaves its allocation.
class Matrix {
public:
  Matrix(const char *name, const Layout &layout, uint64_t address) : layout(layout) {
    uint64_t last = layout.index(layout.batches - 1, layout.rows - 1, layout.columns - 1) + 1;
    base = hostMemory(address, last * layout.elementBytes());
    if (!base)
      throw Fault(Fault::Check::bounds, "", 0,
                  std::string("matrix product: ") + name + " of " + std::to_string(last * layout.elementBytes()) +
                      " bytes does not lie in an allocation");
  }
  double get(uint64_t batch, uint64_t row, uint64_t column) const { return load(at(batch, row, column), layout.type); }
  void set(uint64_t batch, uint64_t row, uint64_t column, double value) const {
    store(at(batch, row, column), layout.type, value);
  }

private:
  const Layout &layout;
  std::byte *base;
  std::byte *at(uint64_t batch, uint64_t row, uint64_t column) const {
    return base + layout.index(batch, row, column) * layout.elementBytes();
  }
};

// gelu(x) = x / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (x + 0.044715 x^3).
constexpr double geluScale = 0.7978845608028654, geluCube = 0.044715;

double gelu(double x) { return x / 2 * (1 + std::tanh(geluScale * (x + geluCube * x * x * x))); }

double geluGradient(double x) {
  double t = std::tanh(geluScale * (x + geluCube * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * geluScale * (1 + 3 * geluCube * x * x);
}

Layout auxiliaryLayout(const Product &product) {
  Layout layout = product.d;
  layout.leading = product.description.auxiliaryLeading;
  layout.batchStride = product.description.auxiliaryBatchStride;
  return layout;
}
Layout biasLayout(const Product &product) {
  return {product.d.type,
          product.d.rows,
          1,
          static_cast<int64_t>(product.d.rows),
          CUBLASLT_ORDER_COL,
          product.d.batches,
          product.description.biasBatchStride};
}

void append(Ranges &to, const Ranges &more) { to.insert(to.end(), more.begin(), more.end()); }

/// Computes one batch of op(A) * op(B): [rows, columns], column by column.
std::vector<double> multiply(const Product &p, const Matrix &a, const Matrix &b, uint64_t batch) {
  uint64_t rows = p.rows(), columns = p.columns(), depth = p.depth();
  bool swapsA = p.description.transposeA != CUBLAS_OP_N, swapsB = p.description.transposeB != CUBLAS_OP_N;
  std::vector<double> left(rows * depth), sums(rows * columns);
  for (uint64_t k = 0; k < depth; ++k)
    for (uint64_t row = 0; row < rows; ++row)
      left[k * rows + row] = swapsA ? a.get(batch, k, row) : a.get(batch, row, k);
  for (uint64_t column = 0; column < columns; ++column)
    for (uint64_t k = 0; k < depth; ++k) {
      double right = swapsB ? b.get(batch, column, k) : b.get(batch, k, column);
      for (uint64_t row = 0; row < rows; ++row)
        sums[column * rows + row] += left[k * rows + row] * right;
    }
  return sums;
}

/// Sums a row of op(A), in an unspecified order.
double sumOfRow(const Product &p, const Matrix &a, uint64_t batch, uint64_t row) {
  bool swaps = p.description.transposeA != CUBLAS_OP_N;
  double sum = 0;
  for (uint64_t k = 0; k < p.depth(); ++k)
    sum += swaps ? a.get(batch, k, row) : a.get(batch, row, k);
  return sum;
}

} // namespace

Ranges Layout::bytesAt(uint64_t address) const {
  Ranges ranges;
  for (int32_t batch = 0; batch < (batchStride ? batches : 1); ++batch)
    for (uint64_t line = 0; line < lines(); ++line) {
      uint64_t begin = address + (batch * batchStride + line * leading) * elementBytes();
      uint64_t end = begin + lineElements() * elementBytes();
      if (!ranges.empty() && ranges.back().end == begin)
        ranges.back().end = end;
      else
        ranges.push_back({begin, end});
    }
  return ranges;
}

cublasStatus_t Product::check() const {
  const Description &how = description;
  for (const Layout *layout : {&a, &b, &c, &d})
    if (!isLayoutValid(*layout) || layout->batches != d.batches)
      return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t rowsA = how.transposeA == CUBLAS_OP_N ? a.rows : a.columns;
  uint64_t depthB = how.transposeB == CUBLAS_OP_N ? b.rows : b.columns;
  uint64_t columnsB = how.transposeB == CUBLAS_OP_N ? b.columns : b.rows;
  if (rowsA != d.rows || columnsB != d.columns || depthB != depth() || c.rows != d.rows || c.columns != d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool computesFloat = how.compute == CUBLAS_COMPUTE_32F || how.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                       how.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  bool typesFit =
      isKnownType(a.type) && a.type == b.type && c.type == d.type && (d.type == a.type || d.type == CUDA_R_32F);
  if (!computesFloat || how.scale != CUDA_R_32F || how.pointerMode || how.transposeC != CUBLAS_OP_N || !typesFit)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.batches > 1 && d.batchStride < static_cast<int64_t>(d.index(0, d.rows - 1, d.columns - 1)))
    return CUBLAS_STATUS_INVALID_VALUE;
  switch (how.epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
    return CUBLAS_STATUS_SUCCESS;
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU:
  case CUBLASLT_EPILOGUE_BGRADA:
    break;
  default:
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  bool hasRow = how.hasBias() || how.hasBiasGradient();
  if (isMissing(how.epilogue))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.order != CUBLASLT_ORDER_COL || (hasRow && how.biasType != -1 && how.biasType != d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Undocumented rules, known from callers: BGRADA sums an A that is not transposed, DGELU needs a depth above 1 (tests
  // of nvmath-python), and a bias is aligned to 16 bytes (a comment in Marian; gelu's operand is treated alike here).
  if ((how.hasBiasGradient() && how.transposeA != CUBLAS_OP_N) || (how.hasGeluGradient() && depth() == 1) ||
      (hasRow && how.bias % 16) || (how.hasGelu() || how.hasGeluGradient() ? how.auxiliary % 16 : 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  bool hasAuxiliary = how.writesAuxiliary() || how.hasGeluGradient();
  if (hasAuxiliary && (how.auxiliaryLeading % 8 || how.auxiliaryLeading < static_cast<int64_t>(d.rows)))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

std::string Product::name() const {
  return "matrix product [" + std::to_string(rows()) + ", " + std::to_string(depth()) + "] by [" +
         std::to_string(depth()) + ", " + std::to_string(columns()) + "]" +
         (d.batches > 1 ? " x " + std::to_string(d.batches) : "");
}

Accesses Product::run() const {
  const Description &how = description;
  Accesses touched{a.bytesAt(addressA), d.bytesAt(addressD)};
  append(touched.reads, b.bytesAt(addressB));
  if (Range both = firstCommon(a.bytesAt(addressA), touched.writes); both.begin < both.end)
    throw Fault(Fault::Check::race, "", 0, name() + " writes into its operand A");
  if (Range both = firstCommon(b.bytesAt(addressB), touched.writes); both.begin < both.end)
    throw Fault(Fault::Check::race, "", 0, name() + " writes into its operand B");
  Matrix matrixA("A", a, addressA), matrixB("B", b, addressB), matrixD("D", d, addressD);
  std::optional<Matrix> matrixC, bias, auxiliary;
  Layout layoutBias = biasLayout(*this), layoutAuxiliary = auxiliaryLayout(*this);
  if (beta != 0) {
    matrixC.emplace("C", c, addressC);
    append(touched.reads, c.bytesAt(addressC));
  }
  if (how.hasBias() || how.hasBiasGradient()) {
    bias.emplace("bias", layoutBias, how.bias);
    append(how.hasBias() ? touched.reads : touched.writes, layoutBias.bytesAt(how.bias));
  }
  if (how.writesAuxiliary() || how.hasGeluGradient()) {
    auxiliary.emplace("auxiliary", layoutAuxiliary, how.auxiliary);
    append(how.writesAuxiliary() ? touched.writes : touched.reads, layoutAuxiliary.bytesAt(how.auxiliary));
  }
  for (int32_t batch = 0; batch < d.batches; ++batch) {
    std::vector<double> sums = multiply(*this, matrixA, matrixB, batch);
    for (uint64_t column = 0; column < columns(); ++column)
      for (uint64_t row = 0; row < rows(); ++row) {
        float value = static_cast<float>(alpha * sums[column * rows() + row]);
        if (matrixC)
          value += static_cast<float>(beta * matrixC->get(batch, row, column));
        if (how.hasBias())
          value += static_cast<float>(bias->get(batch, row, 0));
        if (how.writesAuxiliary())
          auxiliary->set(batch, row, column, value);
        if (how.hasGelu())
          value = static_cast<float>(gelu(value));
        if (how.hasGeluGradient())
          value *= static_cast<float>(geluGradient(auxiliary->get(batch, row, column)));
        matrixD.set(batch, row, column, value);
      }
    for (uint64_t row = 0; how.hasBiasGradient() && row < rows(); ++row)
      bias->set(batch, row, 0, sumOfRow(*this, matrixA, batch, row));
  }
  if (workspaceBytes) {
    std::byte *room = hostMemory(workspace, workspaceBytes);
    if (!room)
      throw Fault(Fault::Check::bounds, "", 0, name() + ": the workspace does not lie in an allocation");
    std::memset(room, 0xff, workspaceBytes);
    touched.writes.push_back({workspace, workspace + workspaceBytes});
  }
  return touched;
}

} // namespace espalier::emulator
