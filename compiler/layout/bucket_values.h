// The names of a bucket's values in the plan.
#pragma once

#include "dialects/exec/dialect.h"

namespace espalier {

/// Returns the name of the value that holds a bucket's stored parameters. If the bucket is sharded (ZeRO), this is the
/// rank's own shard.
std::string storedValue(exec::BucketOp bucket);
/// Returns the name of the value that holds a bucket's gradients after the reduction over all ranks. If the bucket is
/// sharded, this is the rank's own shard.
std::string totalValue(exec::BucketOp bucket);
/// Return the names of a rank's gradient shard if gradients are accumulated in shards: the shard of one micro-batch,
/// and the accumulated shard.
std::string scatteredValue(exec::BucketOp bucket);
std::string accumulatedValue(exec::BucketOp bucket);
/// Returns the name of the value of one stored parameter. The name of its gradient has the suffix ".gradient".
std::string parameterValue(exec::ParameterOp parameter);

} // namespace espalier
