#include "runtime/launch/stall.h"

#include "runtime/launch/thread_stack.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace espalier::rt {
namespace {

constexpr double leastSeconds = 60, leastBeforeSteps = 600, limitInSteps = 20, endInSteps = 2;
/// Compute time below which a thread has only woken up.
constexpr uint64_t wakeNanoseconds = 1'000'000;
constexpr std::chrono::milliseconds stackTime{500};
constexpr size_t mostNamed = 8;

const StalledRank *find(std::span<const StalledRank> ranks, int rank) {
  auto found = std::ranges::find(ranks, rank, &StalledRank::rank);
  return found == ranks.end() ? nullptr : &*found;
}

/// Returns the rank at the end of a chain of waits: one that waits for no other, or the second of two that wait for the
/// same. `ranks` of different hosts may know different transfers.
const StalledRank &endOfChain(std::span<const StalledRank> ranks, const StalledRank &begin) {
  const StalledRank *at = &begin;
  for (std::set<int> visited; visited.insert(at->rank).second;) {
    const StalledRank *next = nullptr;
    for (int peer : at->awaited.ranks)
      if (const StalledRank *each = find(ranks, peer); each && each != at)
        if (!next || each->awaited.ranks.empty() ||
            (!next->awaited.ranks.empty() && next->awaited.what == at->awaited.what))
          next = each;
    if (!next)
      break;
    at = next;
    if (at->awaited.ranks.empty())
      break;
  }
  return *at;
}

std::string waitsText(std::span<const StalledRank> ranks, const StalledRank &blamed) {
  std::vector<std::string> texts;
  for (const StalledRank &each : ranks)
    if (&each != &blamed && !each.awaited.ranks.empty())
      texts.push_back(fmt::format("rank {} waits for {}", each.rank, each.awaited.what));
  size_t all = texts.size();
  texts.resize(std::min(all, mostNamed));
  return fmt::format("{}{}", fmt::join(texts, ", "),
                     all > mostNamed ? fmt::format(" and {} others wait", all - mostNamed) : "");
}

} // namespace

double StallWatch::limitOf(const RankStatus &status, const Activity &activity, bool isAsked) const {
  double step = status.stepSeconds;
  double limit = patience.seconds                                    ? *patience.seconds
                 : activity.wait == Activity::OwnDevice && step == 0 ? leastBeforeSteps
                                                                     : std::max(leastSeconds, limitInSteps * step);
  return isAsked ? std::min(limit, std::max(patience.endSeconds, endInSteps * step)) : limit;
}

bool StallWatch::hasMoved(Seen &before, const RankStatus &status, const Activity &activity) const {
  uint32_t moves = activity.moves, looks = activity.looks;
  bool hasWorked = std::exchange(before.moves, moves) != moves;
  before.blindPolls = std::exchange(before.looks, looks) != looks ? 0 : before.blindPolls + 1;
  bool isInEntry = &activity == &status.main && status.entry >= 0;
  uint64_t now = computeTimeOf(activity.thread);
  bool hasComputed = now > before.computeTime + wakeNanoseconds;
  if (hasComputed || now < before.computeTime)
    before.computeTime = now;
  return hasWorked || (hasComputed && !isInEntry && activity.wait == Activity::Nothing);
}

void StallWatch::poll(std::span<RankStatus> ranks, const std::function<bool()> &isAsked) {
  bool isAny = false, isAll = true;
  writer = -1;
  for (size_t rank = 0; rank < seen.size() && patience.seconds != 0.0; ++rank) {
    const RankStatus &status = ranks[rank];
    for (const Activity *activity : {&status.main, &status.writer}) {
      Seen &before = seen[rank][activity == &status.writer];
      int thread = activity->thread;
      bool isWatched = thread != 0 && !status.hasEnded.load(std::memory_order_relaxed);
      if (!isWatched || hasMoved(before, status, *activity))
        before.idlePolls = 0;
      else
        ++before.idlePolls;
      double idle = before.idlePolls * patience.pollMilliseconds / 1000.0;
      bool isOver = idle >= limitOf(status, *activity, /*isAsked=*/false) ||
                    (idle >= limitOf(status, *activity, /*isAsked=*/true) && isAsked());
      if (isOver && isPrinting(thread))
        isOver = false;
      isAny |= isWatched;
      isAll &= isOver || !isWatched;
      if (isWatched && isOver && activity == &status.writer && writer < 0)
        writer = static_cast<int>(rank);
    }
  }
  hasStalled = isAny && isAll;
}

double StallWatch::idle(int rank) const {
  const auto &[main, writer] = seen[static_cast<size_t>(rank)];
  return std::max(main.idlePolls, writer.idlePolls) * patience.pollMilliseconds / 1000.0;
}

namespace {

/// Waits until the threads have left their stacks.
void takeStacks(std::span<Activity *const> activities) {
  for (Activity *each : activities)
    requestStack(*each);
  auto end = std::chrono::steady_clock::now() + stackTime;
  auto isMissing = [](const Activity *each) { return each->frames.load(std::memory_order_acquire) < 0; };
  while (std::ranges::any_of(activities, isMissing) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

} // namespace

std::vector<StalledRank> describeStall(std::span<RankStatus> ranks, const StallWatch &watch, int first,
                                       const StallTeller &tell) {
  std::vector<StalledRank> stalled;
  std::vector<Activity *> stuck;
  for (size_t i = 0; i < ranks.size(); ++i) {
    int rank = static_cast<int>(i);
    Activity &main = ranks[i].main;
    if (main.thread == 0)
      continue;
    stalled.push_back({first + rank, watch.idle(rank)});
    tell(rank, stalled.back());
    if (main.wait == Activity::Nothing || !watch.isLooking(rank))
      stalled.back().awaited = {};
    if (stalled.back().awaited.ranks.empty())
      stuck.push_back(&main);
  }
  takeStacks(stuck);
  for (StalledRank &each : stalled)
    if (each.awaited.ranks.empty())
      each.stack = stackText(ranks[static_cast<size_t>(each.rank - first)].main);
  return stalled;
}

Failure writerStall(std::span<RankStatus> ranks, const StallWatch &watch, int first, const StallTeller &tell) {
  int rank = watch.stalledWriter();
  StalledRank stalled{first + rank, watch.idle(rank)};
  tell(rank, stalled);
  Activity *writer = &ranks[static_cast<size_t>(rank)].writer;
  takeStacks({&writer, 1});
  Failure failure = stalled.place;
  failure.rank = stalled.rank;
  failure.message = fmt::format("its thread that writes a checkpoint has not moved for {:.1f} seconds: its stack is {}",
                                stalled.idle, stackText(*writer));
  return failure;
}

Failure blame(std::span<const StalledRank> ranks) {
  auto waits = std::ranges::find_if(ranks, [](const StalledRank &each) { return !each.awaited.ranks.empty(); });
  const StalledRank &blamed = waits == ranks.end() ? ranks.front() : endOfChain(ranks, *waits);
  double idle = std::ranges::max(ranks, {}, &StalledRank::idle).idle;
  Failure failure = blamed.place;
  failure.rank = blamed.rank;
  std::string waiting = waitsText(ranks, blamed);
  std::string others = waiting.empty() ? "" : fmt::format(", and others wait for it: {}", waiting);
  if (blamed.awaited.ranks.empty())
    failure.message = fmt::format("it has not moved for {:.1f} seconds{}; its stack is {}", idle, others, blamed.stack);
  else
    failure.message = fmt::format("it waits for {}, and nothing has moved for {:.1f} seconds: the data between the "
                                  "ranks do not arrive{}",
                                  blamed.awaited.what, idle, waiting.empty() ? "" : "; " + waiting);
  return failure;
}

std::string printStalled(std::span<const StalledRank> ranks) {
  nlohmann::json list = nlohmann::json::array();
  for (const StalledRank &each : ranks)
    list.push_back({each.rank, each.idle, each.awaited.ranks, each.awaited.what, each.stack, each.place.stage,
                    each.place.step, each.place.action, each.place.subprogram, each.place.op});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<StalledRank> parseStalled(const std::string &text) {
  std::vector<StalledRank> ranks;
  for (const nlohmann::json &each : nlohmann::json::parse(text)) {
    ranks.push_back({each.at(0), each.at(1), {each.at(2), each.at(3)}, each.at(4)});
    Failure &place = ranks.back().place;
    place.stage = each.at(5);
    place.step = each.at(6);
    place.action = each.at(7);
    place.subprogram = each.at(8);
    place.op = each.at(9);
  }
  return ranks;
}

} // namespace espalier::rt
