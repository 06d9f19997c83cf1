// Parallel loops.
#pragma once

#include <cstddef>
#include <functional>

namespace espalier::planner {

/// Calls work(i) for each i below `count`, on any of the threads. Fewer than one thread counts as one.
void forEachParallel(size_t count, int threads, const std::function<void(size_t)> &work);

} // namespace espalier::planner
