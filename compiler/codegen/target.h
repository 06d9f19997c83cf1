// The targets that plans are compiled for. A target is one object, which its folder defines (cpu/, cuda/). The rest of
// code generation asks the object and does not know its name.
#pragma once

#include "compiler/codegen/kernel_shape.h"

#include "mlir/IR/BuiltinOps.h"

#include <span>

namespace espalier::codegen {

/// A library call. Its buffers, sizes, floats and scalars match the function's row in format/functions.def.
struct Call {
  llvm::StringRef function;
  llvm::SmallVector<exec::BufferAttr> buffers;
  llvm::SmallVector<mlir::Type> elements;
  llvm::SmallVector<int64_t> sizes;
  llvm::SmallVector<double> floats;
  llvm::SmallVector<mlir::Attribute> scalars;
  mlir::NamedAttrList flags;
  void add(exec::BufferAttr buffer, mlir::Type tensor);
};

/// One launch of a kernel without body, identified by `shape`, `parameters` and `geometry`.
struct SpecialLaunch {
  llvm::StringRef shape = {};
  mlir::NamedAttrList parameters = {};
  exec::GeometryAttr geometry = {};
  llvm::SmallVector<exec::BufferAttr> buffers = {}; ///< the last `outputs` are written
  int64_t outputs = 1;
  llvm::SmallVector<mlir::Attribute> scalars = {};
  int64_t extent = 1;
};

/// The mapping of a kernel to the threads of a launch: attributes of exec.kernel, null if launches have no grid.
struct KernelLayout {
  exec::GeometryAttr geometry;
  mlir::DictionaryAttr parameters;
};

/// A target.
class Target {
public:
  virtual ~Target() = default;

  /// Returns the name: the value of --target, of `exec.target` and of Plan.target.
  virtual llvm::StringRef name() const = 0;
  /// Returns the extension of files with objects of this target, such as ".so".
  virtual llvm::StringRef objectExtension() const = 0;
  /// Returns whether plans run on the processor of a host. If no cluster is given, a plan is then for this machine.
  virtual bool isHost() const = 0;

  /// Adds the code of the module's kernels to `objects` of `plan`. With `onlyLevel`, objects of each instruction set
  /// level hold the code of this level. Reports errors on the module's ops.
  virtual mlir::LogicalResult emitObjects(mlir::ModuleOp module, rt::pb::Plan &plan,
                                          llvm::StringRef onlyLevel) const = 0;
  /// Returns the number of blocks into which the rows of a column kernel are split.
  virtual int64_t columnBlocks(const KernelShape &shape) const = 0;
  /// Returns the layout of a kernel for launches with these buffers, in KernelShape's order.
  virtual KernelLayout layoutFor(const KernelShape &, llvm::ArrayRef<exec::BufferAttr> /*operands*/,
                                 llvm::ArrayRef<exec::BufferAttr> /*outputs*/, mlir::MLIRContext *) const {
    return {};
  }

  /// Returns the launches that replace a library call, in order; empty if the library has the function. `newBuffer`
  /// allocates the intermediate buffers between launches.
  virtual llvm::SmallVector<SpecialLaunch> launchesOf(const Call &, mlir::MLIRContext *,
                                                      llvm::function_ref<exec::BufferAttr(mlir::Type)>) const {
    return {};
  }
  /// Returns whether the library's products compute this epilogue (format/functions.def).
  virtual bool hasEpilogue(llvm::StringRef epilogue) const = 0;
  /// Returns whether the library has algorithms for products that a cluster file measures.
  virtual bool hasMatmulAlgorithms() const { return false; }
  /// Returns whether one call adds the partial sums of several results.
  virtual bool addsManySums() const { return false; }
  /// Returns the requirement on the columns of an attention's heads that `columns` does not meet, or an empty text.
  virtual std::string headFault(int64_t /*columns*/) const { return {}; }
  /// Returns whether the planner prices work by the bytes that programs move, instead of by the operands of ops.
  virtual bool pricesPrograms() const { return false; }
};

/// The targets of the folders.
const Target &cpuTarget();
const Target &cudaTarget();

/// Returns all targets.
std::span<const Target *const> targets();
/// Returns the target with this name, or null.
const Target *findTarget(llvm::StringRef name);
/// Returns the target of a module: its attribute `exec.target`, or the processor.
const Target &targetOf(mlir::ModuleOp module);

} // namespace espalier::codegen
