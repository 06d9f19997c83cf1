// Describes a fused body as a kernel: its iteration space of rows and columns, the access of each operand, the pass in
// which each value exists, and the kernel's run-time scalars. fuse-kernels uses the shape to test whether a group can
// be a kernel. lower-to-exec reads the scalars of a launch from it. The kernel builders generate code from it.
#pragma once

#include "dialects/exec/dialect.h"
#include "format/abi.h"
#include "format/plan.pb.h"

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

/// The access of an operand for (row, column): the sum of the terms, plus the column if `columns`. If `isDense`, the
/// operand is stored row by row (with stride columns, or 1), and there are no terms.
struct Access {
  bool isDense = false;
  bool columns = false;
  llvm::SmallVector<Term> terms;
  bool isScalar() const { return !isDense && !columns && terms.empty(); }
};

/// Returns the named dimensions that an op iterates over: those of its operand for reductions, else those of its
/// result.
mlir::RankedTensorType iterationSpace(mlir::Operation *op);

/// Returns whether the op reduces trailing dimensions, so that the kept dimensions are a prefix. Row kernels do such
/// reductions.
bool reducesTrailing(mlir::Operation *op);
/// Returns whether the op sums over leading dimensions, so that the kept dimensions are a suffix. Column kernels do
/// such sums.
bool reducesLeading(mlir::Operation *op);

/// Returns the access of a tensor of type `type` in `space`, if `space` is split into rows and columns after `split`
/// dimensions. Returns nothing if the tensor has only some of the column dimensions.
std::optional<Access> accessOf(mlir::Type type, mlir::RankedTensorType space, int64_t split);

/// A run-time scalar of a kernel: its value in this instance, and what the kernel uses it for.
struct KernelScalar {
  exec::ScalarAttr value;
  rt::pb::Kernel::Scalar use;
};

/// The scalars of a dropout, by their indices in the kernel.
struct DropoutScalars {
  int seed, stream, firstSample, rowsPerSample, firstElement;
  int terms; ///< the first scalar of the terms of a row's first element
  llvm::SmallVector<Term> elements;
  /// In zigzag order: the rows of a step along the sequence and its size, the index of its first element among those
  /// of the cp rank, the size of a chunk, and the elements that the second chunk adds to the distance of its elements
  /// from the first chunk.
  struct Zigzag {
    int stepRows, stepSize, first, chunk, distance;
  };
  std::optional<Zigzag> zigzag;
};

/// A result that is accumulated in place. The kernel has one buffer for accumulator and result, in the result's
/// position.
struct Accumulation {
  unsigned operand, output;
  int scalar; ///< scalar that is 1 if the term overwrites the sum (beta = 0); -1 if the kernel always adds
};

/// The shape of a kernel. Kernels with equal keys use the same scalar for the same purpose. The buffers of a launch are
/// the operands without accumulators, then the slots, then the outputs.
struct KernelShape {
  mlir::Block *body = nullptr;
  mlir::RankedTensorType space;
  int64_t split = 0;
  std::string kind;                   ///< row, column (sums over rows, possibly with the work of a row kernel) or flat
  int64_t rows = 1, columns = 1;      ///< sizes of this instance
  llvm::SmallVector<Access> operands; ///< one per argument of the body
  llvm::SmallVector<Access> outputs;  ///< one per yielded value
  llvm::MapVector<mlir::Value, Level> levels;
  llvm::DenseMap<mlir::Value, int> passes; ///< pass over the row in which a value first exists
  int lastPass = 0;
  llvm::SmallVector<Accumulation> accumulations;
  llvm::SmallVector<int64_t> slots;                ///< slots of the scalars region that the body reads, in order
  llvm::SmallVector<KernelScalar> scalars;         ///< in the kernel's order
  llvm::DenseMap<mlir::Operation *, int> scalarOf; ///< index of an op's only scalar
  llvm::SmallVector<int> operandScalar;            ///< index of the first scalar of an operand's terms
  llvm::DenseMap<mlir::Operation *, DropoutScalars> dropouts;

  /// Adds a scalar and returns its index.
  int add(exec::ScalarAttr value, rt::pb::Kernel::Scalar use);
  /// Adds divisor, modulus and stride of each term, and returns the index of the first.
  int add(llvm::ArrayRef<Term> terms, rt::pb::Kernel::Scalar modulus, rt::pb::Kernel::Scalar stride);
  /// Returns a text that determines the kernel's code. Shapes with equal keys share a kernel.
  std::string key() const;
  /// Returns whether an operand is an accumulator, which shares the buffer of its result.
  bool isAccumulator(unsigned operand) const;
  /// Returns the number of buffers of a launch.
  unsigned bufferCount() const;
  /// Returns whether an output is a sum over the rows. The kernel stores one row of partial sums per block of rows.
  bool isSummed(unsigned output) const;
  /// Returns whether a column kernel also does the work of a row kernel.
  bool hasRowWork() const;
};

/// Analyzes `body` of an exec.fused or exec.kernel. Fails without a diagnostic if the body cannot be a kernel of this
/// kind and split.
mlir::FailureOr<KernelShape> analyzeKernel(mlir::Block &body, llvm::StringRef kind, int64_t split);

/// Returns the affine scalar of a #dist.origin attribute, times `factor`. A null or unit attribute gives 0.
exec::ScalarAttr originScalar(mlir::MLIRContext *context, mlir::Attribute origin, int64_t factor = 1);

/// Returns a + b.
exec::ScalarAttr addScalars(exec::ScalarAttr a, exec::ScalarAttr b);

/// Returns a scalar without variables.
exec::ScalarAttr constantScalar(mlir::MLIRContext *context, int64_t value);

/// Returns a scalar that is 1 if the RUN overwrites the gradients of the bucket (beta = 0). `bucket` is numbered as in
/// exec.buffer; 0 means no bucket.
exec::ScalarAttr firstScalar(mlir::MLIRContext *context, int64_t bucket);

/// Returns layer << 8 | id: the random-stream id of a dropout or attention op.
exec::ScalarAttr randomStream(mlir::MLIRContext *context, int64_t id);

/// Slots of the scalars region, by their names in model.scalar.
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
    {"norm_limit", rt::NormLimit},
    {"group_rate1", static_cast<rt::ScalarSlot>(rt::GroupRate + 0)},
    {"group_rate2", static_cast<rt::ScalarSlot>(rt::GroupRate + 1)},
    {"group_rate3", static_cast<rt::ScalarSlot>(rt::GroupRate + 2)},
    {"group_rate4", static_cast<rt::ScalarSlot>(rt::GroupRate + 3)},
};

/// Returns the slot with this name, or -1 if the name is unknown.
int64_t scalarSlot(llvm::StringRef name);
/// Returns the name of a slot. The slot must be in scalarSlots.
llvm::StringRef scalarName(int64_t slot);
/// Returns the name of a summed scalar after its all-reduce.
std::string agreedName(int64_t slot);

} // namespace espalier::codegen
