// Sizes of local tensors as monomials of the planner: named dimensions of the model, the batch, and the axes that split
// them.
#pragma once

#include "compiler/import/model_description.h"
#include "planner/problem.h"

#include "mlir/IR/Types.h"
#include "llvm/ADT/StringRef.h"

#include <map>

namespace espalier {

/// Under which sizes a model was built to be read.
struct ProfilePoint {
  int64_t samples = 1; ///< of one micro-batch on one replica
  int dp = 1, tp = 1, ep = 1, zero = 0;
  bool sequenceParallel = false;
  int cp = 1;
  bool splitsExperts = true; ///< over tp; otherwise experts are spread over tp and ep
  bool isUnsplit() const { return tp == 1 && ep == 1 && cp == 1; } ///< each replica has the whole model
};

/// Reads sizes at one profile point. A dimension whose local size is neither the model's nor its share over tp or, of
/// the sequence, over cp and then tp or, of experts, over ep or tp and ep (the padded vocabulary, flat ranges) becomes
/// a number, which holds for this number of tensor ranks only.
class SizeReader {
public:
  SizeReader(const ModelDescription &model, const std::vector<planner::Dimension> &dimensions, ProfilePoint point);

  /// One dimension with its local size.
  planner::Monomial dimension(llvm::StringRef name, int64_t localSize) const;
  planner::Monomial elements(mlir::Type type) const;
  planner::Monomial bytes(mlir::Type type) const;
  /// The same with the model's dimensions and this number of tensor ranks put in: samples, and ranks that split
  /// samples, sequences and experts, are left as symbols.
  planner::Monomial bytesAtTensorRanks(mlir::Type type) const;
  const ProfilePoint &at() const { return point; }

private:
  const ModelDescription &model;
  std::map<std::string, int> symbols;
  std::vector<double> dimensionSizes; ///< by symbol, from kFirstDimension
  ProfilePoint point;
};

/// a * b.
planner::Monomial product(planner::Monomial a, const planner::Monomial &b);
planner::Monomial scaled(planner::Monomial a, double factor);
/// Samples of one micro-batch on one replica.
planner::Monomial replicaSamples();
/// The share of one of the ranks of dp, cp and ep.
planner::Monomial shareOfReplicas();
/// Adds a monomial, joining it with one of the same powers.
void add(planner::Size &sum, const planner::Monomial &part);

} // namespace espalier
