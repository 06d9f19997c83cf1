// The compiler's phases and pass pipelines, from a run and a plan to a run plan.
#pragma once

#include "compiler/import/run/run_config.h"
#include "compiler/kernel_runner.h"
#include "planner/plan.h"

#include "format/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// Options of compileRun.
struct CompileOptions {
  std::string target = "cpu"; ///< cpu or cuda
  std::string compileFrom;    ///< name of the phase whose IR is read from `irFile`; empty to start at the beginning
  std::string irFile;    ///< IR of that phase, written by `compileTo` or `dumpPhases` for the same run, plan and target
  std::string compileTo; ///< name of the last phase to run, whose result is then printed; empty to run all
  /// Folder for the IR after each phase and the plan as text, such as "2.partition.mlir" and "5.plan.txtpb"; empty for
  /// none.
  std::string dumpPhases;
  bool check = false; ///< adds guard bytes after all buffers and compares every kernel with the interpreter
  OpenKernelRunner openKernelRunner; ///< opens the device for a check of GPU kernels
  std::string kernelFolder;          ///< folder for the kernels, one file per object; empty for none
  /// An instruction set level such as "x86-64-v3": all levels of the plan get the code of this level, for a plan that
  /// runs only where it is compiled. Empty: each level gets its own code.
  std::string onlyLevel;
  bool emitKernels =
      true; ///< if false, emits everything except machine code, which is enough for memory and timing queries
};

/// The result of a compilation. If it stopped at `compileTo`, `text` is set instead of `plan`: the phase's IR, or the
/// plan as protobuf text.
struct Compiled {
  rt::pb::Plan plan;
  std::string text;
};

/// Prints IR diagnostics to standard error in the format of the import: FILE:LINE:COL: error: ...
void printDiagnostics(mlir::MLIRContext &context);

/// Compiles a plan of a run up to the phase named `phases`, whose module the interpreter runs and code generation
/// reads. Returns null after an error. Verifies the IR of the model, but not after each pass. With `weightsApart`, also
/// sets the same model with the weight gradients of layers as phases of their own.
mlir::OwningOpRef<mlir::ModuleOp> partitionRun(mlir::MLIRContext &context, const RunConfig &run,
                                               const planner::Plan &plan,
                                               mlir::OwningOpRef<mlir::ModuleOp> *weightsApart = nullptr);

/// Returns the names of the phases that leave IR, in order.
std::vector<std::string> phaseNames();
/// The name of the phase that follows them and links the plan.
inline constexpr const char *planPhase = "plan";

/// Adds the passes that group ops into kernels: cse, fold-epilogues, fuse-kernels and overlap-communication.
void addFusionPasses(mlir::OpPassManager &passes);
/// Adds the passes that lower local functions to programs: those of addFusionPasses, then lower-to-exec, plan-buffers
/// and propagate-value-axes.
void addCodegenPasses(mlir::OpPassManager &passes);

/// Compiles one plan of a run. Errors are reported as diagnostics of `context`.
std::optional<Compiled> compileRun(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const CompileOptions &options = {});

} // namespace espalier
