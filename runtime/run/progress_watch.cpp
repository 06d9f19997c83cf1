#include "runtime/run/progress_watch.h"

#include "messages/error_line.h"
#include "runtime/launch/thread_stack.h"
#include "runtime/run/watched_run.h"
#include "runtime/thread_pool.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <unistd.h>

namespace espalier::rt {

ProgressWatch::ProgressWatch(const RunOptions &options, std::span<RankStatus> ranks, StallTeller tell,
                             std::function<void(const Failure &)> end)
    : thread(startThread<std::jthread>(
          [&options, ranks, tell = std::move(tell), end = std::move(end)](const std::stop_token &isOver) {
            StallPatience patience = stallPatienceOf(options);
            StallWatch watch(static_cast<int>(ranks.size()), patience);
            std::mutex mutex;
            std::unique_lock lock(mutex);
            std::condition_variable_any never;
            auto waitForPoll = [&] {
              never.wait_for(lock, isOver, std::chrono::milliseconds(patience.pollMilliseconds), [] { return false; });
              return !isOver.stop_requested();
            };
            while (waitForPoll()) {
              watch.poll(ranks, [&] { return options.stopSignal && options.stopSignal() != 0; });
              if (watch.stalledWriter() >= 0)
                end(writerStall(ranks, watch, /*first=*/0, tell));
              if (watch.isStalled())
                end(blame(describeStall(ranks, watch, /*first=*/0, tell)));
            }
          })) {}

namespace {

[[noreturn]] void endStart(const Failure &failure) {
  printError("espalier", "the inputs of the run cannot be opened: " + failure.message);
  std::fflush(nullptr);
  _exit(1);
}

} // namespace

struct StartWatch::State {
  explicit State(const RunOptions &options)
      : opener(&status.main), watch(options, {&status, 1}, [](int, StalledRank &) {}, endStart) {}

  RankStatus status;
  WatchedThread opener;
  ProgressWatch watch;
};

StartWatch::StartWatch(const RunOptions &options) : state(std::make_unique<State>(options)) {}

StartWatch::~StartWatch() = default;

} // namespace espalier::rt
