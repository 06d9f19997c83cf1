#include "test/compiler/link/play_lists.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace espalier {

namespace {

using planner::ActionKind;

constexpr const char *kFlightNames[] = {"tok", "out", "in", "din", "dout"};
constexpr LifetimeKind kLifetimeOfFlight[] = {LifetimeKind::Inputs, LifetimeKind::Out, LifetimeKind::In,
                                              LifetimeKind::DIn, LifetimeKind::DOut};

bool isSend(FlightKind kind) { return kind == FlightKind::Out || kind == FlightKind::DIn; }

std::string nameOf(const std::string &what, int chunk, int microBatch, bool isNumbered = true) {
  return what + (isNumbered ? std::to_string(chunk) : "") + "/" + std::to_string(microBatch);
}

std::string nameOf(const StageFlight &flight, bool isNumbered = true) {
  return nameOf(kFlightNames[static_cast<int>(flight.kind)], flight.chunk, flight.microBatch, isNumbered);
}

/// The identity of a transfer on both ends: the chunk that produces the value in model order, direction, micro-batch.
using Moved = std::tuple<int, bool, int>;

Moved movedBy(const planner::ScheduleTable &table, int stage, const StageFlight &flight) {
  int chunk = table.modelChunk(stage, flight.chunk);
  bool isBackward = flight.kind == FlightKind::DIn || flight.kind == FlightKind::DOut;
  int maker = isSend(flight.kind) ? chunk : isBackward ? chunk + 1 : chunk - 1;
  return {maker, isBackward, flight.microBatch};
}

} // namespace

std::string printList(const StageList &list, bool isNumbered) {
  std::string text, wait, run, start;
  auto endLine = [&] {
    if (!(wait + run + start).empty())
      text += wait + "| " + run + " |" + start + "\n";
    wait = run = start = "";
  };
  for (const StageItem &item : list.items)
    switch (item.kind) {
    case StageItem::Kind::Wait:
      endLine();
      for (const StageFlight &flight : item.flights)
        wait += nameOf(flight, isNumbered) + " ";
      break;
    case StageItem::Kind::Run:
      if (!(run + start).empty())
        endLine();
      run = nameOf(std::string(1, "FBW"[static_cast<int>(item.run.kind)]), item.run.chunk, item.run.microBatch,
                   isNumbered);
      break;
    case StageItem::Kind::Start:
      for (const StageFlight &flight : item.flights)
        start += " " + nameOf(flight, isNumbered);
      break;
    }
  endLine();
  return text;
}

std::vector<planner::Action> runsOf(const StageList &list) {
  std::vector<planner::Action> runs;
  for (const StageItem &item : list.items)
    if (item.kind == StageItem::Kind::Run)
      runs.push_back(item.run);
  return runs;
}

std::string playInOrderOfIssue(const planner::ScheduleTable &table, const std::vector<StageList> &lists) {
  struct Rank {
    size_t at = 0;                  // position in the stream
    std::vector<StageFlight> line;  // started transfers, in order of issue
    size_t ended = 0;               // number of transfers of `line` that have ended
    std::vector<StageFlight> moved; // transfers that have ended
  };
  std::vector<Rank> ranks(lists.size());
  auto end = [](Rank &rank) { rank.moved.push_back(rank.line[rank.ended++]); };
  auto goOn = [&](Rank &rank, const StageList &list) {
    if (rank.at == list.items.size())
      return false;
    const StageItem &item = list.items[rank.at];
    for (const StageFlight &flight : item.flights)
      if (item.kind == StageItem::Kind::Wait && std::ranges::find(rank.moved, flight) == rank.moved.end())
        return false;
    if (item.kind == StageItem::Kind::Start)
      rank.line.insert(rank.line.end(), item.flights.begin(), item.flights.end());
    ++rank.at;
    return true;
  };
  auto head = [](const Rank &rank) { return rank.ended < rank.line.size() ? &rank.line[rank.ended] : nullptr; };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t stage = 0; stage < lists.size(); ++stage) {
      while (goOn(ranks[stage], lists[stage]))
        moves = true;
      const StageFlight *flight = head(ranks[stage]);
      if (flight && flight->kind == FlightKind::Inputs) {
        end(ranks[stage]);
        moves = true;
      }
      for (size_t peer = 0; flight && isSend(flight->kind) && peer < lists.size(); ++peer)
        if (const StageFlight *other = head(ranks[peer]);
            other && other->kind != FlightKind::Inputs && !isSend(other->kind) &&
            movedBy(table, static_cast<int>(stage), *flight) == movedBy(table, static_cast<int>(peer), *other)) {
          end(ranks[stage]);
          end(ranks[peer]);
          flight = nullptr;
          moves = true;
        }
    }
  }
  for (size_t stage = 0; stage < lists.size(); ++stage)
    if (ranks[stage].at < lists[stage].items.size() || head(ranks[stage]))
      return "stage " + std::to_string(stage) + " hangs at item " + std::to_string(ranks[stage].at) +
             (head(ranks[stage]) ? ", in " + nameOf(*head(ranks[stage])) : "");
  return "";
}

std::string compareLines(const planner::ScheduleTable &table, const std::vector<StageList> &lists) {
  int stages = static_cast<int>(lists.size());
  using Line = std::tuple<bool, int, int>; // whether cotangents, sending stage, receiving stage
  std::map<Line, std::vector<Moved>> sent, received;
  auto stageOf = [&](int chunk) { return table.stageOf(chunk); };
  for (int stage = 0; stage < stages; ++stage)
    for (const StageItem &item : lists[stage].items)
      for (const StageFlight &flight : item.flights)
        if (item.kind == StageItem::Kind::Start && flight.kind != FlightKind::Inputs) {
          Moved moved = movedBy(table, stage, flight);
          auto [maker, isBackward, microBatch] = moved;
          Line line(isBackward, stageOf(maker), stageOf(isBackward ? maker - 1 : maker + 1));
          (isSend(flight.kind) ? sent : received)[line].push_back(moved);
        }
  return sent == received ? "" : "sends and receives of a line differ";
}

namespace {

class BufferChecker {
public:
  BufferChecker(const StageList &list, int microBatches)
      : list(list), microBatches(microBatches), held(list.lifetimes.size()), most(list.lifetimes.size()) {
    for (const planner::Action &run : runsOf(list))
      kinds.insert(run.kind);
    for (const StageLifetime &lifetime : list.lifetimes)
      cells.emplace_back(lifetime.slots);
  }

  std::string check() {
    for (const StageItem &item : list.items) {
      if (item.kind == StageItem::Kind::Run)
        run(item.run);
      for (const StageFlight &flight : item.flights)
        item.kind == StageItem::Kind::Start ? start(flight) : wait(flight);
    }
    atEnd();
    return fault;
  }

private:
  enum class State { Free, Arriving, Ready, Leaving };
  struct Cell {
    State state = State::Free;
    int microBatch = -1;
  };

  void expect(bool isSo, const std::string &what) {
    if (!isSo && fault.empty())
      fault = what;
  }

  Cell *cell(int chunk, LifetimeKind kind, int microBatch) {
    int lifetime = list.lifetimeOf(chunk, kind);
    return lifetime < 0 ? nullptr : &cells[lifetime][microBatch % cells[lifetime].size()];
  }

  void move(int chunk, LifetimeKind kind, int microBatch, State from, State to) {
    Cell *place = cell(chunk, kind, microBatch);
    if (!place)
      return;
    expect(place->state == from && (from == State::Free || place->microBatch == microBatch),
           nameOf("lifetime " + std::to_string(static_cast<int>(kind)) + " of chunk ", chunk, microBatch) + " is " +
               std::to_string(static_cast<int>(place->state)) + " of " + std::to_string(place->microBatch) +
               ", wanted " + std::to_string(static_cast<int>(from)));
    *place = {to, microBatch};
  }

  // RUNs hold a value from the first that touches it; what is sent only while it is made.
  void touch(int chunk, LifetimeKind kind, int microBatch) {
    if (int lifetime = list.lifetimeOf(chunk, kind); lifetime >= 0) {
      held[lifetime].insert(microBatch);
      most[lifetime] = std::max(most[lifetime], held[lifetime].size());
    }
  }
  void letGo(int chunk, LifetimeKind kind, int microBatch) {
    if (int lifetime = list.lifetimeOf(chunk, kind); lifetime >= 0)
      held[lifetime].erase(microBatch);
  }
  bool isHandedOver(int chunk, LifetimeKind kind) const {
    int lifetime = list.lifetimeOf(chunk, kind);
    return lifetime >= 0 && list.lifetimes[lifetime].kind != kind;
  }

  void read(const planner::Action &run, LifetimeKind kind, ActionKind last) {
    touch(run.chunk, kind, run.microBatch);
    bool isLast = run.kind == last || !kinds.contains(last);
    move(run.chunk, kind, run.microBatch, State::Ready, isLast ? State::Free : State::Ready);
    if (isLast)
      letGo(run.chunk, kind, run.microBatch);
  }
  void write(const planner::Action &run, LifetimeKind kind) {
    touch(run.chunk, kind, run.microBatch);
    move(run.chunk, kind, run.microBatch, State::Free, State::Ready);
    if ((kind == LifetimeKind::Out || kind == LifetimeKind::DIn) && !isHandedOver(run.chunk, kind))
      letGo(run.chunk, kind, run.microBatch);
  }

  void run(const planner::Action &run) {
    ActionKind last = kinds.contains(ActionKind::Weight) ? ActionKind::Weight : ActionKind::Backward;
    read(run, LifetimeKind::Inputs, last);
    read(run, LifetimeKind::In, last);
    switch (run.kind) {
    case ActionKind::Forward:
      write(run, LifetimeKind::Out);
      if (kinds.size() > 1) {
        write(run, LifetimeKind::Saved);
        write(run, LifetimeKind::SavedForWeights);
      }
      break;
    case ActionKind::Backward:
      read(run, LifetimeKind::Saved, ActionKind::Backward);
      read(run, LifetimeKind::DOut, ActionKind::Backward);
      write(run, LifetimeKind::DIn);
      write(run, LifetimeKind::SavedByBackward);
      break;
    case ActionKind::Weight:
      read(run, LifetimeKind::SavedForWeights, last);
      read(run, LifetimeKind::SavedByBackward, last);
      break;
    }
  }

  void start(const StageFlight &flight) {
    bool isSent = isSend(flight.kind);
    move(flight.chunk, kLifetimeOfFlight[static_cast<int>(flight.kind)], flight.microBatch,
         isSent ? State::Ready : State::Free, isSent ? State::Leaving : State::Arriving);
    expect(open.insert(nameOf(flight)).second && started.insert(nameOf(flight)).second,
           nameOf(flight) + " is started twice");
  }

  void wait(const StageFlight &flight) {
    bool isSent = isSend(flight.kind);
    expect(open.erase(nameOf(flight)) == 1, nameOf(flight) + " is not open");
    move(flight.chunk, kLifetimeOfFlight[static_cast<int>(flight.kind)], flight.microBatch,
         isSent ? State::Leaving : State::Arriving, isSent ? State::Free : State::Ready);
  }

  void atEnd() {
    expect(open.empty(), open.empty() ? "" : *open.begin() + " is not waited for");
    size_t flights = 0;
    for (size_t i = 0; i < list.lifetimes.size(); ++i) {
      const StageLifetime &lifetime = list.lifetimes[i];
      for (const Cell &cell : cells[i])
        expect(cell.state == State::Free, nameOf("a value stays in chunk ", lifetime.chunk, cell.microBatch));
      expect(kinds.size() == 1 || most[i] == static_cast<size_t>(lifetime.inFlight),
             nameOf("lifetime " + std::to_string(static_cast<int>(lifetime.kind)) + " of chunk ", lifetime.chunk,
                    lifetime.inFlight) +
                 ", but RUNs hold " + std::to_string(most[i]));
      bool isMade = lifetime.kind == LifetimeKind::Saved || lifetime.kind == LifetimeKind::SavedForWeights ||
                    lifetime.kind == LifetimeKind::SavedByBackward;
      bool isOfBackward = lifetime.kind == LifetimeKind::DIn || lifetime.kind == LifetimeKind::DOut;
      bool isTurn = std::ranges::count_if(list.chunks, [&](const auto &chunk) {
                      return std::ranges::find(chunk, static_cast<int>(i)) != chunk.end();
                    }) > 1;
      if (!isMade && !isTurn && (kinds.size() > 1 || !isOfBackward))
        flights += microBatches;
    }
    expect(started.size() == flights, std::to_string(started.size()) + " flights, wanted " + std::to_string(flights));
  }

  const StageList &list;
  int microBatches;
  std::set<ActionKind> kinds;
  std::vector<std::vector<Cell>> cells; // indexed by lifetime and slot
  std::vector<std::set<int>> held;      // the micro-batches that each lifetime holds
  std::vector<size_t> most;
  std::set<std::string> open, started;
  std::string fault;
};

} // namespace

std::string checkBuffers(const StageList &list, int microBatches) { return BufferChecker(list, microBatches).check(); }

} // namespace espalier
