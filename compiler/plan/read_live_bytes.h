// How much of a program's workspace lives at once, as sizes that the planner evaluates.
#pragma once

#include "compiler/plan/read_sizes.h"
#include "dialects/exec/dialect.h"

#include <vector>

namespace espalier {

/// Adds what the virtual buffers of `program` hold at each of its instructions. Buffers are known by the tensors in
/// them; that offsets are multiples of 64 bytes is left out.
void addLiveBytes(exec::ProgramOp program, const SizeReader &sizes, std::vector<planner::Size> &live);

/// Removes the sizes that another one exceeds or equals at any value of its symbols. Example: of {8 batch}, {4 batch +
/// 2} and {2 batch} the first two stay.
void keepLargest(std::vector<planner::Size> &sizes);

} // namespace espalier
