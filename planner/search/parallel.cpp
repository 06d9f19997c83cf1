#include "planner/search/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace espalier::planner {

void forEachParallel(size_t count, int threads, const std::function<void(size_t)> &work) {
  std::atomic<size_t> next = 0;
  auto loop = [&] {
    for (size_t i = next++; i < count; i = next++)
      work(i);
  };
  std::vector<std::jthread> pool;
  for (size_t i = 1; i < std::min(static_cast<size_t>(std::max(threads, 1)), count); ++i)
    pool.emplace_back(loop);
  loop();
}

} // namespace espalier::planner
