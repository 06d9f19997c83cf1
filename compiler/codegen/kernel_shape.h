// What a fused body looks like as a kernel: its iteration space of rows and columns, where each operand lies in it,
// at which pass over the row each value exists, and which run-time numbers the kernel gets. fuse-kernels asks it
// whether a group is possible, lower-to-exec for the scalars of a launch, the kernel builders for everything.
#pragma once

#include "dialects/exec/dialect.h"
#include "runtime/abi.h"

#include "llvm/ADT/MapVector.h"

#include <string>
#include <utility>

namespace espalier::codegen {

/// How often a value exists: once, once per row, or at every (row, column).
enum class Level { Scalar, Row, Full };

/// One term of a row offset: ((row / divisor) % modulus) * stride elements.
struct Term {
  int64_t divisor = 1, modulus = 1, stride = 1;
};

/// Where the element of an operand for (row, column) lies: at the sum of the terms, plus the column if `columns`.
/// Row by row in order (stride: the columns, or 1) when `isDense`, and then there are no terms.
struct Access {
  bool isDense = false;
  bool columns = false;
  llvm::SmallVector<Term> terms;
  bool isScalar() const { return !isDense && !columns && terms.empty(); }
};

/// The named dimensions that an op iterates over: those of its operand for reductions, else of its result.
mlir::RankedTensorType iterationSpace(mlir::Operation *op);

/// Whether the sum is over trailing dimensions (what stays is a prefix), as row kernels do it.
bool reducesTrailing(mlir::Operation *op);
/// Whether the sum is over leading dimensions (what stays is a suffix), as column kernels do it.
bool reducesLeading(mlir::Operation *op);

/// Where a tensor of type `type` lies in `space` split into rows and columns after `split` dimensions. Nothing when
/// it holds a part of the columns only.
std::optional<Access> accessOf(mlir::Type type, mlir::RankedTensorType space, int64_t split);

/// A result that grows in its accumulator's place: the kernel has one buffer for both, the result's.
struct Accumulation {
  unsigned operand, output;
  int scalar; ///< that says whether the term is the first one, which overwrites; -1 where it always adds
};

/// A run-time scalar's number in the kernel's scalars, by what it is for. Two kernels with equal keys have equal
/// numbers. Buffers of a launch: operands but accumulators, slots, outputs.
struct KernelShape {
  mlir::Block *body = nullptr;
  mlir::RankedTensorType space;
  int64_t split = 0;
  std::string kind;                   ///< row, column (sums over rows, maybe beside the work of a row kernel), flat
  int64_t rows = 1, columns = 1;      ///< of this instance
  llvm::SmallVector<Access> operands; ///< one per argument of the body
  llvm::SmallVector<Access> outputs;  ///< one per yielded value
  llvm::MapVector<mlir::Value, Level> levels;
  llvm::DenseMap<mlir::Value, int> passes; ///< pass over the row in which a value exists
  int lastPass = 0;
  llvm::SmallVector<Accumulation> accumulations;
  llvm::SmallVector<int64_t> slots;                   ///< slots of the scalars region that the body reads, in order
  llvm::SmallVector<exec::ScalarAttr> scalars;        ///< values for this instance, in the kernel's order
  llvm::DenseMap<mlir::Operation *, int> firstScalar; ///< of an op's own scalars
  llvm::SmallVector<int> operandScalar;               ///< first scalar of an operand's terms
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Term>> dropoutTerms;

  /// Everything that decides the kernel's code. Equal keys share a kernel.
  std::string key() const;
  /// Whether an operand has no buffer of its own.
  bool isAccumulator(unsigned operand) const;
  unsigned bufferCount() const;
  /// Whether an output is a sum over the rows: the kernel leaves one row of it per block of rows.
  bool isSummed(unsigned output) const;
  /// Whether a column kernel does the work of a row kernel, too.
  bool hasRowWork() const;
};

/// Analyzes `body` (of an exec.fused or exec.kernel). Fails silently when it cannot be a kernel of that shape.
mlir::FailureOr<KernelShape> analyzeKernel(mlir::Block &body, llvm::StringRef kind, int64_t split);

/// The affine scalar of a #dist.origin attribute (null or unit: 0) times `factor`.
exec::ScalarAttr originScalar(mlir::MLIRContext *context, mlir::Attribute origin, int64_t factor = 1);

/// a + b.
exec::ScalarAttr addScalars(exec::ScalarAttr a, exec::ScalarAttr b);

/// A scalar without variables.
exec::ScalarAttr constantScalar(mlir::MLIRContext *context, int64_t value);

/// 1 where the run writes the gradients of a buffer's bucket first, as exec.buffer numbers it; 0 for no bucket.
exec::ScalarAttr firstScalar(mlir::MLIRContext *context, int64_t bucket);

/// layer << 8 | id: the stream of random bits of a dropout op or an attention.
exec::ScalarAttr randomStream(mlir::MLIRContext *context, int64_t id);

/// The slots of the scalars region by their names at model.scalar.
inline constexpr std::pair<const char *, rt::ScalarSlot> scalarSlots[] = {
    {"loss_sum", rt::LossSum},
    {"token_count", rt::TokenCount},
    {"squared_norm", rt::SquaredNorm},
    {"loss_scale", rt::LossScale},
    {"learning_rate", rt::LearningRate},
    {"gradient_scale", rt::GradientScale},
    {"bias_correction1", rt::BiasCorrection1},
    {"bias_correction2", rt::BiasCorrection2},
    {"apply", rt::Apply},
    {"step", rt::Step},
    {"stop_requests", rt::StopRequests},
};

/// The slot of a name; -1 for names that are not known.
int64_t scalarSlot(llvm::StringRef name);
/// The name of a slot that has one.
llvm::StringRef scalarName(int64_t slot);
/// The name of a sum among the scalars once all ranks agree on it.
std::string agreedName(int64_t slot);

} // namespace espalier::codegen
