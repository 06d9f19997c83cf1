// Reads the live bytes of a program's workspace, as sizes that the planner evaluates.
#pragma once

#include "compiler/profile/read_sizes.h"
#include "dialects/exec/dialect.h"

#include <vector>

namespace espalier {

/// Adds the live bytes of the virtual buffers of `program` at the start of each live range. A buffer's size is that of
/// its tensor type; alignment to 64 bytes is ignored.
void addLiveBytes(exec::ProgramOp program, const SizeReader &sizes, std::vector<planner::Size> &live);

/// Removes each size that another size equals or exceeds for all values of its symbols. Example: {8 batch}, {4 batch +
/// 2} and {2 batch} become {8 batch} and {4 batch + 2}.
void keepLargest(std::vector<planner::Size> &sizes);

} // namespace espalier
