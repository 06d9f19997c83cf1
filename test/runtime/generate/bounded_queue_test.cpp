// The queue refuses jobs beyond its bound and never loses an accepted job.
#include "runtime/generate/serve/bounded_queue.h"
#include "runtime/generate/serve/server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>

namespace espalier::rt {
namespace {

TEST(BoundedQueue, RefusesBeyondTheBoundAndDoesEveryJobOnce) {
  BoundedQueue queue(/*threads=*/1, /*most=*/2);
  std::latch blocked(1), begun(1);
  std::atomic<int> served = 0, refused = 0;
  queue.enqueue([&] {
    begun.count_down();
    blocked.wait();
    ++served;
  });
  begun.wait(); // the only thread is busy, so two jobs wait and the others are refused
  std::latch over(4);
  for (int i = 0; i < 6; ++i)
    queue.enqueue([&] {
      bool isRefused = BoundedQueue::isRefusing();
      ++(isRefused ? refused : served);
      if (isRefused)
        over.count_down();
    });
  over.wait();
  blocked.count_down();
  queue.shutdown();
  EXPECT_EQ(served, 3);
  EXPECT_EQ(refused, 4);
}

TEST(Server, RecognizesLoopbackAddresses) {
  for (const char *host : {"127.0.0.1", "127.8.0.1", "localhost", "::1"})
    EXPECT_TRUE(isLoopback(host)) << host;
  for (const char *host : {"0.0.0.0", "::", "127.example.com", "10.0.0.1", ""})
    EXPECT_FALSE(isLoopback(host)) << host;
}

} // namespace
} // namespace espalier::rt
