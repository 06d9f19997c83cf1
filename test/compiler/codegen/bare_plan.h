// What programs of a test refer to: there is no schedule, and nothing has formed buckets.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace espalier::test {

void addQueues(rt::pb::Plan &plan);

/// Gives arguments and results places in their regions, as lay-out-regions does of what form-buckets lists: what has
/// one name in the functions of a segment lies in one place.
class BareLayout {
public:
  void layOut(mlir::func::FuncOp function);

private:
  int64_t place(mlir::func::FuncOp function, mlir::DictionaryAttr attributes, mlir::Type type);
  std::map<std::string, std::pair<int64_t, std::map<std::string, int64_t>>> regions; ///< end and offsets, by role
};

/// Puts the accumulators of a function in a bucket, whose sums then begin with the first micro-batch.
void putInBuckets(mlir::func::FuncOp function);

} // namespace espalier::test
