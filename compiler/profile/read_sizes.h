// Reads sizes of local tensors as monomials of the planner: named dimensions of the model, the batch, and the axes that
// shard them.
#pragma once

#include "compiler/import/model/model_description.h"
#include "planner/problem.h"

#include "mlir/IR/Types.h"
#include "llvm/ADT/StringRef.h"

#include <map>

namespace espalier {

/// The sizes at which a model was built for profiling.
struct ProfilePoint {
  int64_t samples = 1; ///< samples of one micro-batch on one replica
  int dp = 1, tp = 1, ep = 1, zero = 0;
  bool sequenceParallel = false;
  int cp = 1;
  bool splitsExperts = true;       ///< over tp; if false, experts are distributed over tp and ep
  bool expertsOverContext = false; ///< experts are distributed over cp, too
  bool isUnsplit() const { return tp == 1 && ep == 1 && cp == 1; } ///< whether each replica has the whole model
};

/// Reads sizes at one profile point. A local dimension is known if it has the model's size or that size sharded over
/// tp. A sequence may also be sharded over cp, then tp, and experts over tp, cp and ep. Any other size, such as
/// the padded vocabulary or a flat range, becomes a number that holds only for this number of tensor ranks.
class SizeReader {
public:
  /// `dimensions` are the planner's named dimensions, which become symbols in this order.
  SizeReader(const ModelDescription &model, const std::vector<planner::Dimension> &dimensions, ProfilePoint point);

  /// Returns the monomial of a dimension with its local size.
  planner::Monomial dimension(llvm::StringRef name, int64_t localSize) const;
  /// Return the monomials of a tensor's elements and bytes.
  planner::Monomial elements(mlir::Type type) const;
  planner::Monomial bytes(mlir::Type type) const;
  /// Returns the bytes of a tensor with the model's dimensions and the number of tensor ranks as numbers. Samples, and
  /// the ranks that shard samples, sequences and experts, stay symbols.
  planner::Monomial bytesAtTensorRanks(mlir::Type type) const;
  const ProfilePoint &at() const { return point; }

private:
  planner::Monomial expertsOf(planner::Monomial whole, int64_t experts, int64_t localSize) const;

  const ModelDescription &model;
  std::map<std::string, int> symbols;
  std::vector<double> dimensionSizes; ///< by symbol, from kFirstDimension
  ProfilePoint point;
};

/// Returns a * b.
planner::Monomial product(planner::Monomial a, const planner::Monomial &b);
/// Returns a * factor.
planner::Monomial scaled(planner::Monomial a, double factor);
/// Returns the samples of one micro-batch on one replica.
planner::Monomial replicaSamples();
/// Returns 1 / (dp * cp * ep), the fraction of a ZeRO shard.
planner::Monomial shareOfReplicas();
/// Adds a monomial to a sum. Monomials with equal powers are combined.
void add(planner::Size &sum, const planner::Monomial &part);

} // namespace espalier
