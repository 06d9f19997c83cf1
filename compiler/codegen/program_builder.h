// Builds one exec.program from one function: buffers of values, kernel launches, library calls and collectives.
#pragma once

#include "compiler/codegen/target.h"
#include "compiler/codegen/value_shapes.h"

#include "dialects/model/dialect.h"
#include "format/zigzag.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <map>

namespace espalier::codegen {

/// The kernels of a module, which all programs share: one per key.
class KernelTable {
public:
  explicit KernelTable(mlir::ModuleOp module) : module(module) {}
  /// Returns the kernel for the body of `fused` with this layout, and adds it if there is none with its key.
  exec::KernelOp kernelFor(exec::FusedOp fused, const KernelShape &shape, const KernelLayout &layout);
  /// Returns the kernel without a body of a launch, and adds it if it is new.
  exec::KernelOp special(const SpecialLaunch &launch);

private:
  exec::KernelOp add(mlir::Location loc, const std::string &shape, int64_t split, const KernelLayout &layout);

  mlir::ModuleOp module;
  std::map<std::string, exec::KernelOp> kernels;
};

/// Returns the f32 type [parts, columns] of the partial sums that each block of rows adds to `result`.
mlir::Type partialSums(mlir::Type result, int64_t parts);

/// Returns the size of a tensor in bytes.
int64_t tensorBytes(mlir::Type type);

/// Maps each instruction to the position, in its function, of the op that it was lowered from.
using SourcePositions = llvm::DenseMap<mlir::Operation *, int>;

/// Replaces every function of the module by its program. `sources` may be null.
mlir::LogicalResult lowerToExec(mlir::ModuleOp module, SourcePositions *sources);

/// Lowers one function to a program.
class ProgramBuilder {
public:
  /// `kept` holds the shapes of values that the functions of a module pass to each other.
  ProgramBuilder(mlir::func::FuncOp function, KernelTable &kernels, KeptShapes &kept,
                 SourcePositions *sources = nullptr);

  /// Replaces the function by its program. Reports errors on the op that cannot be lowered.
  mlir::LogicalResult build();

private:
  struct Pending {
    int64_t id;
    exec::BufferAttr from, to;
  };

  // program_builder.cpp: buffer assignment.
  mlir::LogicalResult placeArguments();
  mlir::LogicalResult placeResults();
  void shareAllReduces();
  void shareSums();
  void shareKept();
  bool isLastUse(mlir::Value argument, mlir::Operation *producer, unsigned result);
  exec::BufferAttr place(mlir::Value value);
  /// Returns a new virtual buffer for one tensor.
  exec::BufferAttr newBuffer(mlir::Type tensor);
  /// Returns a new buffer for `parts` consecutive shards of type `part`.
  exec::BufferAttr newParts(mlir::Type tensor, mlir::RankedTensorType part, int64_t parts, const ValueShape &whole);
  mlir::DictionaryAttr shapesOfPlaces();
  /// Further properties of a buffer, as in exec.buffer.
  struct BufferTraits {
    int64_t layer = 0, part = 0, bucket = 0;
  };
  exec::BufferAttr bufferAt(llvm::StringRef region, int64_t offset, int64_t bytes, const llvm::Twine &value,
                            mlir::Type element, const BufferTraits &traits);
  exec::BufferAttr bufferAt(llvm::StringRef region, int64_t offset, int64_t bytes, const llvm::Twine &value,
                            mlir::Type element) {
    return bufferAt(region, offset, bytes, value, element, BufferTraits());
  }
  /// Returns the buffer of a slot of the scalars.
  exec::BufferAttr scalarAt(int64_t slot);
  mlir::FailureOr<exec::BufferAttr> placeOf(mlir::DictionaryAttr attributes, mlir::Type type, bool isResult,
                                            mlir::Location loc);
  mlir::LogicalResult lowerOp(mlir::Operation *op);
  mlir::LogicalResult lowerFused(exec::FusedOp op);
  /// Adds `parts` to a result; `sizes` gives their number. Adds a new call, or extends a matching call of `calls`.
  void addSum(std::vector<Call> &calls, exec::BufferAttr parts, mlir::Value result, llvm::ArrayRef<int64_t> sizes);
  void sumParts(exec::FusedOp op, llvm::ArrayRef<unsigned> sums, llvm::ArrayRef<exec::BufferAttr> outputs,
                int64_t blocks, int64_t columns);
  /// Returns the buffer of a result and sets the store flags. If the result is only accumulated, the producer does the
  /// accumulation.
  exec::BufferAttr destination(mlir::Value result, mlir::NamedAttrList &flags);
  /// A launch over `extent` iterations. The last `outputs` buffers are written.
  struct Launch {
    llvm::SmallVector<mlir::Attribute> buffers;
    int64_t outputs = 1;
    llvm::SmallVector<mlir::Attribute> scalars;
    int64_t extent = 1, grain = 1;
    llvm::SmallVector<int64_t> inPlace; ///< pairs of buffers, as in exec.launch
  };
  void emit(exec::KernelOp kernel, const Launch &launch);

  // lower_calls.cpp: library calls.
  mlir::LogicalResult lowerContract(mlir::Operation *op);
  void lowerEpilogue(exec::ProductOp op, Call &call);
  mlir::LogicalResult lowerAttention(mlir::Operation *op);
  mlir::LogicalResult lowerAttendCache(mlir::Operation *op);
  mlir::LogicalResult lowerKeepMaxima(mlir::Operation *op);
  mlir::LogicalResult lowerTakeRow(mlir::Operation *op);
  mlir::LogicalResult lowerColumns(mlir::Operation *op);
  mlir::LogicalResult lowerView(mlir::Operation *op);
  mlir::LogicalResult lowerEmbed(mlir::Operation *op);
  mlir::LogicalResult lowerRope(mlir::Operation *op);
  mlir::LogicalResult lowerSquaredNorm(mlir::Operation *op);
  mlir::LogicalResult lowerRoute(mlir::Operation *op);
  mlir::LogicalResult lowerMoves(mlir::Operation *op);
  mlir::LogicalResult lowerState(mlir::Operation *op);
  void updateScalars(double maxGradNorm, bool limitsNorm);
  void copy(exec::BufferAttr from, exec::BufferAttr to, mlir::Type element, llvm::ArrayRef<int64_t> sizes);
  /// Transposes [a, b, bytes] to [b, a, bytes].
  void rearrange(exec::BufferAttr from, exec::BufferAttr to, mlir::Type element, llvm::ArrayRef<int64_t> sizes,
                 rt::Zigzag zigzag = rt::Zigzag::None);

  // lower_collectives.cpp
  mlir::LogicalResult lowerAllReduce(mlir::Operation *op);
  mlir::LogicalResult lowerAllGather(mlir::Operation *op);
  mlir::LogicalResult lowerReduceScatter(mlir::Operation *op);
  mlir::LogicalResult lowerAllToAll(mlir::Operation *op);
  mlir::LogicalResult lowerSlice(mlir::Operation *op);
  mlir::FailureOr<mlir::Attribute> shareOrigin(mlir::Operation *op, mlir::ArrayAttr axes, int64_t bytes);
  mlir::LogicalResult checkAxes(mlir::Operation *op, mlir::ArrayAttr axes);
  void start(llvm::StringRef kind, llvm::StringRef reduction, mlir::ArrayAttr axes, mlir::Type element,
             exec::BufferAttr from, exec::BufferAttr to, int64_t elements);

  /// Inserts waits for the collectives whose buffers `instruction` accesses. All instructions are built through `emit`.
  void waitFor(mlir::Operation *instruction);
  void waitForAll();
  void emit(const Call &call);

  mlir::func::FuncOp function;
  KernelTable &kernels;
  SourcePositions *sources;
  mlir::ImplicitLocOpBuilder builder;
  const Target &target;
  ValueShapes shapes;
  llvm::DenseMap<mlir::Value, exec::BufferAttr> places;
  llvm::SmallVector<std::pair<mlir::Value, exec::BufferAttr>> copies; ///< copied at the end of the program
  llvm::SmallVector<Pending> pending;
  /// A gathered tensor that still must be unpacked from its shards, before the first instruction that accesses it.
  struct Unpack {
    exec::BufferAttr result;
    std::function<void()> copy;
  };
  llvm::SmallVector<Unpack> unpacks;
  llvm::SmallVector<mlir::Type> bufferTypes; ///< by number of the virtual buffer
  llvm::SetVector<mlir::Attribute> passing;  ///< arguments and results that pass between programs
  std::vector<Call> lastSums;                ///< sums of bias gradients that are added at the end of the program
  int lastSum = 0;                           ///< position of the last product with such a sum
  int position = 0;                          ///< position of the current op
  int64_t collectives = 0;
};

/// Returns whether output `output` of a launch may overwrite input `input`: both have the same access, and no later
/// pass over the row reads the input.
bool mayShare(const KernelShape &shape, unsigned output, unsigned input);

} // namespace espalier::codegen
