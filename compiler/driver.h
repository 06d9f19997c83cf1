// The pipeline as a table of phases: from a run and a plan to a run plan.
#pragma once

#include "compiler/import/run_config.h"
#include "compiler/kernel_runner.h"
#include "compiler/pipeline/segment_layout.h"
#include "planner/plan.h"

#include "runtime/plan.pb.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier {

struct CompileOptions {
  std::string target = "cpu"; ///< cpu or cuda
  std::string compileFrom;    ///< name of a phase whose IR is read from `irFile`; empty: none
  std::string irFile;     ///< what `compileTo` or `dumpPhases` wrote of that phase for the same run, plan and target
  std::string compileTo;  ///< name of the last phase to run; the IR is then printed. Empty: all
  std::string dumpPhases; ///< folder for the IR after each phase, "2.partition.mlir"; empty: none
  bool check = false;     ///< guards behind all buffers, and every kernel compared with the interpreter
  OpenKernelRunner openKernelRunner; ///< the device of a check for GPUs
  std::string kernelFolder;          ///< folder for the kernels, one file per object; empty: none
  bool emitKernels = true;           ///< false: everything but machine code, for memory and timing questions
};

/// What a compilation gives. `ir` is set instead of `plan` when it stopped at `compileTo`.
struct Compiled {
  rt::pb::Plan plan;
  std::string ir;
};

/// Faults of IR go to standard error in the form of the import: FILE:LINE:COL: error: ...
void printDiagnostics(mlir::MLIRContext &context);

/// A model after partitioning and phase splitting: what the interpreter runs and code generation reads.
struct PartitionedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<SegmentLayout> segments;
};

/// Compiles up to the phase `phases`.
std::optional<PartitionedModel> partitionRun(mlir::MLIRContext &context, const RunConfig &run,
                                             const planner::Plan &plan);

/// Names of the phases, in order.
std::vector<std::string> phaseNames();

/// Compiles one plan of a run. Failures are reported as diagnostics of `context`.
std::optional<Compiled> compileRun(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const CompileOptions &options = {});

} // namespace espalier
