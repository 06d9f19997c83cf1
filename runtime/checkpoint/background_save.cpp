#include "runtime/checkpoint/background_save.h"

#include "runtime/checkpoint/unfinished.h"
#include "runtime/crash_report.h"
#include "runtime/launch/thread_stack.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sstream>

namespace espalier::rt {
namespace {

/// Marks a message with the fault of a rank. Other messages hold the seconds of the copy and of the writing.
constexpr char faultMark = '!';

double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

BackgroundSave::BackgroundSave(Checkpoints &checkpoints, const Program &program, Executor &executor,
                               Agreement &agreement)
    : checkpoints(checkpoints), executor(executor), agreement(agreement),
      layout(shardLayout(program, executor.rankProgram().rank)),
      block(executor.device().allocateHost(layout.dataBytes())) {}

BackgroundSave::~BackgroundSave() {
  isCancelled = true;
  thread.wait();
}

void BackgroundSave::run(std::function<void()> work) {
  fault.clear();
  thread.start([this, work = std::move(work)] {
    CrashSite site(&executor);
    WatchedThread watched(&executor.shown().writer);
    auto begin = std::chrono::steady_clock::now();
    try {
      work();
    } catch (const std::exception &error) {
      fault = error.what();
    }
    workSeconds = secondsSince(begin);
  });
}

void BackgroundSave::copy() {
  std::vector<DeviceRange> ranges;
  for (const HeldPiece &held : layout.held)
    ranges.push_back(placeOf(executor, held));
  executor.device().copyOut(block->bytes().first(layout.dataBytes()), ranges);
}

void BackgroundSave::writeFile() {
  auto read = [this](size_t piece, uint64_t begin, uint64_t bytes) {
    return std::span<const std::byte>(block->bytes()).subspan(layout.shard.pieces[piece].at + begin, bytes);
  };
  std::filesystem::path folder = checkpoints.begin(state.step);
  if (agreement.isLeader())
    checkpoints.draft(state);
  writeShard(layout, executor.rankProgram().rank, folder, read, &isCancelled);
}

void BackgroundSave::prove() {
  if (phase == Phase::Files && agreement.isLeader() && !isProofWritten)
    isProofWritten = proveDraft(checkpoints.partial(state.step));
}

void BackgroundSave::begin(const ScalarState &saved) {
  auto start = std::chrono::steady_clock::now();
  state = saved;
  copy();
  blockedSeconds = secondsSince(start);
  isProofWritten = false;
  phase = Phase::Files;
  run([this] { writeFile(); });
}

std::optional<SaveRecord> BackgroundSave::advance() {
  if (phase == Phase::Files) {
    std::vector<std::string> all =
        agreement.tell(fault.empty() ? fmt::format("{} {}", blockedSeconds, workSeconds) : faultMark + fault);
    auto failed = std::ranges::find_if(all, [](const std::string &text) { return text.starts_with(faultMark); });
    if (failed != all.end()) {
      phase = Phase::None;
      if (agreement.isLeader())
        checkpoints.reject(state.step, failed->substr(1), /*isLast=*/false);
      return std::nullopt;
    }
    phase = Phase::Commit;
    double blocked = 0, written = 0; // of the slowest rank
    for (const std::string &text : all) {
      double itsBlocked = 0, itsWritten = 0;
      std::istringstream(text) >> itsBlocked >> itsWritten;
      blocked = std::max(blocked, itsBlocked);
      written = std::max(written, itsWritten);
    }
    if (agreement.isLeader())
      run([this, blocked, written] {
        record = checkpoints.commit(state);
        record.blockedSeconds = blocked;
        record.writtenSeconds = written;
      });
    return std::nullopt;
  }
  phase = Phase::None;
  if (!agreement.isLeader())
    return std::nullopt;
  if (!fault.empty()) {
    checkpoints.reject(state.step, fault, /*isLast=*/false);
    return std::nullopt;
  }
  record.writtenSeconds += workSeconds;
  return record;
}

std::optional<SaveRecord> BackgroundSave::finish() {
  std::optional<SaveRecord> complete;
  while (isActive()) {
    thread.wait();
    complete = advance();
  }
  return complete;
}

void BackgroundSave::abandon() {
  isCancelled = true;
  thread.wait();
  isCancelled = false;
  agreement.tell(""); // no rank writes any more
  phase = Phase::None;
  if (agreement.isLeader())
    checkpoints.discard(state.step);
}

} // namespace espalier::rt
