// The thread runs jobs in order and refuses those beyond its bound.
#include "runtime/generate/serve/job_thread.h"

#include <gtest/gtest.h>

#include <latch>
#include <vector>

namespace espalier::rt {
namespace {

TEST(JobThread, RunsJobsInOrderAndRefusesBeyondTheBound) {
  std::vector<int> done;
  std::latch blocked(1), begun(1), over(1);
  JobThread thread(/*most=*/2);
  ASSERT_TRUE(thread.offer([&] {
    begun.count_down();
    blocked.wait();
  }));
  begun.wait(); // the thread is busy
  EXPECT_TRUE(thread.offer([&] { done.push_back(1); }));
  EXPECT_TRUE(thread.offer([&] { done.push_back(2); }));
  EXPECT_FALSE(thread.offer([&] { done.push_back(3); }));
  thread.insist([&] {
    done.push_back(4);
    over.count_down();
  });
  blocked.count_down();
  over.wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2, 4}));
}

} // namespace
} // namespace espalier::rt
