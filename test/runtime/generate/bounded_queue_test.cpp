// The queue refuses jobs beyond its bound and never loses an accepted job.
#include "runtime/generate/serve/bounded_queue.h"
#include "runtime/generate/serve/server.h"

#include "runtime/http_place.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <httplib.h>
#include <latch>
#include <thread>

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

// A signal may come after the address is bound and before connections are accepted.
TEST(Server, StopsBeforeItAcceptsConnections) {
  httplib::Server http;
  listenForHttp(http, "127.0.0.1", 0, "");
  std::atomic<bool> hasEnded = false;
  std::jthread stopper([&] { stopHttp(http, [&] { return hasEnded.load(); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(http.listen_after_bind()); // returns because of the stopper
  hasEnded = true;
}

TEST(Server, NeedsNoStopIfItHasEnded) {
  httplib::Server http;
  stopHttp(http, [] { return true; });
  EXPECT_FALSE(http.is_running());
}

} // namespace
} // namespace espalier::rt
