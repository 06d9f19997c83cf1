// The parts of a plan that programs of these tests refer to. There is no schedule, and form-buckets does not run.
#pragma once

#include "format/plan.pb.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace espalier::test {

void addQueues(rt::pb::Plan &plan);

/// Assigns offsets in regions to arguments and results, in place of lay-out-regions. Functions of one segment use the
/// same offset for the same name.
class BareLayout {
public:
  void layOut(mlir::func::FuncOp function);

private:
  int64_t place(mlir::func::FuncOp function, mlir::DictionaryAttr attributes, mlir::Type type);
  std::map<std::string, std::pair<int64_t, std::map<std::string, int64_t>>> regions; ///< end of the region, and offsets
                                                                                     ///< by name; the key is
                                                                                     ///< "segment:role"
};

/// Puts the accumulators of a function in a bucket, so that the first micro-batch overwrites its sums.
void putInBuckets(mlir::func::FuncOp function);

} // namespace espalier::test
