// Builds a model at one profile point, and reads the bytes that its programs keep.
#pragma once

#include "compiler/driver.h"
#include "compiler/profile/like_kinds.h"
#include "compiler/profile/read_sizes.h"

#include <array>
#include <map>

namespace espalier {

/// The functions to build. Fusing and planning them takes most of the time.
struct BuiltParts {
  bool phases = true;         ///< forward, backward and evaluation
  bool step = true;           ///< what runs once per step
  bool splitBackward = false; ///< also the layers with separate weight gradients
};

/// One build of the model: the module with fused kernels, and optionally its programs.
class ProfiledBuild {
public:
  /// Builds the kinds that `like` has to be built.
  ProfiledBuild(mlir::MLIRContext &context, const LikeKinds &like, const std::string &target, const SizeReader &sizes,
                const BuiltParts &parts);

  bool isBroken() const { return !model; }
  mlir::ModuleOp module() const { return model.get(); }
  /// Returns the operations of a kind of the run's model in one unsharded micro-batch: of the forward pass, plus those
  /// of the backward pass if the model trains.
  double modelFlops(const std::string &kind, bool trains) const {
    return flops.at(kind)[0] + (trains ? flops.at(kind)[1] : 0);
  }

  /// Returns what a segment with separate weight gradients keeps, without workspaces. Needs BuiltParts::splitBackward.
  const planner::WeightTerms &weights(const std::string &kind) const { return weightTerms.at(kind); }

  /// Replaces the functions by programs.
  mlir::LogicalResult lower();

  /// Returns the live bytes of a segment's forward, backward and evaluation programs by recompute policy, or of the
  /// evaluation alone. A policy that the segment does not have counts as `none`. Call it after lower().
  planner::PerRecompute<std::vector<planner::Size>> liveBytes(const std::string &kind, bool evaluates) const;
  /// The same with separate weight gradients.
  planner::PerRecompute<std::vector<planner::Size>> splitLiveBytes(const std::string &kind) const;

  /// Returns the live bytes of the update of ZeRO shards. Without ZeRO there are none, because parameters are updated
  /// in place. Call it after lower().
  std::vector<planner::Size> stepPeaks(const std::string &kind) const;

private:
  mlir::LogicalResult fuse(mlir::ModuleOp module);
  void readWeights(const std::string &kind);

  mlir::MLIRContext &context;
  const RunConfig &run;
  const std::string target;
  const SizeReader &sizes;
  mlir::OwningOpRef<mlir::ModuleOp> model;
  mlir::OwningOpRef<mlir::ModuleOp> weightsApart;          ///< only the backward and weight functions of layers
  std::map<std::string, planner::WeightTerms> weightTerms; ///< by kind
  std::map<std::string, std::array<double, 2>> flops;      ///< by kind and phase
};

} // namespace espalier
