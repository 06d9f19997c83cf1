// Kinds of layers that share their programs, so that profiling builds only one of them.
#pragma once

#include "compiler/import/run/run_config.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <map>

namespace espalier {

/// Finds the kinds of layers that differ from an earlier kind only in the window of their attention. The window
/// changes the operations of attention, but no buffer and no other op. Profiling builds the earlier kind, and reads the
/// terms of each like kind from the same module with the kind's window.
class LikeKinds {
public:
  explicit LikeKinds(const RunConfig &run);

  /// Returns the run with a model in which each like kind is replaced by the kind that is built for it.
  const RunConfig &built() const { return reduced; }
  /// Returns the kind that is built for a kind of the run's model: the kind itself, or the earlier one.
  const std::string &builtFor(const std::string &kind) const;
  /// Calls visit(kind) for the built kind and each kind like it. During the call, attention in the functions of the
  /// built kind has the window of `kind`. Afterwards it has its own window again.
  void visit(mlir::ModuleOp module, const std::string &built,
             const std::function<void(const std::string &kind)> &visit) const;

private:
  RunConfig reduced;
  std::map<std::string, std::string> builtKinds; ///< by kind, without the kinds that are built
  std::map<std::string, int64_t> windows;        ///< by kind: of all its attention; 0: none
  std::vector<std::string> order;                ///< the like kinds in the order of the model
};

} // namespace espalier
