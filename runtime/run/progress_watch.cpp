#include "runtime/run/progress_watch.h"

#include "messages/error_line.h"
#include "runtime/launch/thread_stack.h"
#include "runtime/run/watched_run.h"
#include "runtime/thread_pool.h"

#include <chrono>
#include <cstdio>
#include <new>
#include <unistd.h>

namespace espalier::rt {

ProgressWatch::ProgressWatch(const RunOptions &options, std::span<RankStatus> ranks, StallTeller tell,
                             std::function<void(const Failure &)> end)
    : patience(stallPatienceOf(options)), watch(static_cast<int>(ranks.size()), patience),
      thread(startThread<std::jthread>(
          [this, &options, ranks, tell = std::move(tell), end = std::move(end)](const std::stop_token &isOver) {
            while (between.sleep(isOver, std::chrono::milliseconds(patience.pollMilliseconds))) {
              try {
                watch.poll(ranks, [&] { return options.stopSignal && options.stopSignal() != 0; });
                if (watch.stalledWriter() >= 0)
                  end(writerStall(ranks, watch, /*first=*/0, tell));
                if (watch.isStalled())
                  end(blame(describeStall(ranks, watch, /*first=*/0, tell)));
              } catch (const std::bad_alloc &) {
                // The rank that needs memory reports the lack. Otherwise, the next poll tries again.
              }
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
