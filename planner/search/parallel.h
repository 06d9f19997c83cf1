// Loops over several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace espalier::planner {

/// Calls work(i) for i below `count`, each on any of the threads; less than one thread is one.
void forEachParallel(size_t count, int threads, const std::function<void(size_t)> &work);

} // namespace espalier::planner
