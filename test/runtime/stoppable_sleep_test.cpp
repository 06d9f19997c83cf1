// A thread that begins when the system already refuses memory sleeps, wakes and ends.
#include "runtime/stoppable_sleep.h"
#include "test/sanitizer.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

using std::chrono::milliseconds;

/// Takes all memory that the system gives, down to the smallest blocks.
void exhaustMemory() {
  rlimit small{1 << 20, 1 << 20}; // below what is mapped
  setrlimit(RLIMIT_AS, &small);
  for (size_t bytes = 1 << 26; bytes > 0; bytes /= 2)
    while (void *block = std::malloc(bytes))
      *static_cast<void *volatile *>(block) = nullptr;
}

/// Runs in a process of its own.
[[noreturn]] void sleepWithoutMemory() {
  StoppableSleep between;
  std::atomic<bool> isExhausted = false, hasSlept = false;
  std::jthread thread([&](const std::stop_token &isOver) {
    while (!isExhausted)
      std::this_thread::yield();
    hasSlept = between.sleep(isOver, milliseconds(1));
    between.sleep(isOver, std::chrono::hours(1));
  });
  exhaustMemory();
  isExhausted = true;
  while (!hasSlept)
    std::this_thread::yield();
  thread.request_stop();
  thread.join();
  _exit(0);
}

TEST(StoppableSleep, NeedsNoMemory) {
  if (isSanitized)
    GTEST_SKIP() << "sanitizers allocate memory of their own";
  pid_t child = fork();
  if (child == 0)
    sleepWithoutMemory();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the process ended by signal " << WTERMSIG(status);
}

TEST(StoppableSleep, EndsAtOnceIfStopped) {
  StoppableSleep between;
  std::atomic<int> sleeps = 0;
  std::jthread thread([&](const std::stop_token &isOver) {
    while (between.sleep(isOver, milliseconds(1)))
      ++sleeps;
    EXPECT_FALSE(between.sleep(isOver, std::chrono::hours(1)));
  });
  while (sleeps < 3)
    std::this_thread::yield();
  thread.request_stop();
  thread.join();
  EXPECT_GE(sleeps, 3);
}

} // namespace
} // namespace espalier::rt
