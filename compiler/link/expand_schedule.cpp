#include "compiler/link/expand_schedule.h"

#include <algorithm>
#include <cassert>

namespace espalier {

namespace {

using planner::ActionKind;

bool isSend(FlightKind kind) { return kind == FlightKind::Out || kind == FlightKind::DIn; }

LifetimeKind lifetimeKind(FlightKind kind) {
  switch (kind) {
  case FlightKind::Inputs:
    return LifetimeKind::Inputs;
  case FlightKind::Out:
    return LifetimeKind::Out;
  case FlightKind::In:
    return LifetimeKind::In;
  case FlightKind::DIn:
    return LifetimeKind::DIn;
  case FlightKind::DOut:
    break;
  }
  return LifetimeKind::DOut;
}

/// Makes the instruction stream of one stage. Positions in the stream are counted in RUNs: position i is before RUN i.
class StageLister {
public:
  StageLister(const planner::ScheduleTable &table, int stage, const std::vector<StageFlight> &order,
              const ListOptions &options)
      : table(table), stage(stage), order(order), options(options), runs(table.stages[stage]) {}

  StageList list() {
    indexRuns();
    addLifetimes();
    for (StageLifetime &lifetime : out.lifetimes)
      setSlots(lifetime);
    while (StageLifetime *lacking = placeTransfers())
      ++lacking->slots;
    placeInputs();
    placeWaits();
    writeItems();
    return std::move(out);
  }

private:
  static constexpr int none = -1, mostOpen = 32;

  int modelChunk(int chunk) const { return table.modelChunk(stage, chunk); }

  /// Returns whether the chunk passes its stream to the next chunk of this stage.
  bool isTurn(int chunk) const {
    return chunk >= 0 && chunk + 1 < table.chunksPerStage && modelChunk(chunk + 1) == modelChunk(chunk) + 1;
  }

  size_t indexOf(ActionKind kind, int chunk, int microBatch) const {
    return (static_cast<size_t>(kind) * table.chunksPerStage + chunk) * microBatches + microBatch;
  }
  int runAt(ActionKind kind, int chunk, int microBatch) const { return runIndex[indexOf(kind, chunk, microBatch)]; }

  void indexRuns() {
    for (const planner::Action &run : runs)
      microBatches = std::max(microBatches, run.microBatch + 1);
    runIndex.assign(3 * static_cast<size_t>(table.chunksPerStage) * microBatches, none);
    for (size_t i = 0; i < runs.size(); ++i)
      runIndex[indexOf(runs[i].kind, runs[i].chunk, runs[i].microBatch)] = static_cast<int>(i);
  }

  /// Returns the last RUN of a chunk for a micro-batch among the action kinds up to `upTo`.
  int lastRun(int chunk, int microBatch, ActionKind upTo) const {
    int last = none;
    for (int kind = 0; kind <= static_cast<int>(upTo); ++kind)
      last = std::max(last, runAt(static_cast<ActionKind>(kind), chunk, microBatch));
    return last;
  }

  void addLifetimes() {
    int chunks = table.chunksPerStage, last = static_cast<int>(table.stages.size()) * chunks - 1;
    bool hasBackward =
        std::ranges::any_of(runs, [](const planner::Action &run) { return run.kind == ActionKind::Backward; });
    out.chunks.resize(chunks);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int model = modelChunk(chunk);
      auto add = [&](LifetimeKind kind, bool isThere) {
        out.chunks[chunk][static_cast<int>(kind)] = isThere ? static_cast<int>(out.lifetimes.size()) : none;
        if (isThere)
          out.lifetimes.push_back({.kind = kind, .chunk = chunk});
      };
      add(LifetimeKind::Inputs, options.everyChunkHasInputs || model == 0 || model == last);
      add(LifetimeKind::Saved, hasBackward);
      add(LifetimeKind::SavedForWeights, hasBackward && table.splitsBackward);
      add(LifetimeKind::SavedByBackward, hasBackward && table.splitsBackward);
      add(LifetimeKind::Out, model < last && !isTurn(chunk));
      add(LifetimeKind::In, model > 0);
      add(LifetimeKind::DIn, hasBackward && model > 0 && !isTurn(chunk - 1));
      add(LifetimeKind::DOut, hasBackward && model < last);
    }
    for (int chunk = 0; chunk + 1 < chunks; ++chunk)
      if (isTurn(chunk)) {
        out.chunks[chunk][static_cast<int>(LifetimeKind::Out)] = out.lifetimeOf(chunk + 1, LifetimeKind::In);
        out.chunks[chunk + 1][static_cast<int>(LifetimeKind::DIn)] = out.lifetimeOf(chunk, LifetimeKind::DOut);
      }
  }

  bool readsStreamAgain(int chunk) const { return !options.readsStreamAgain || options.readsStreamAgain(stage, chunk); }

  struct Span {
    int first = none, last = none;
  };

  /// Returns the first and the last RUN that access a live range's values of a micro-batch.
  Span span(const StageLifetime &lifetime, int microBatch) const {
    int chunk = lifetime.chunk;
    int forward = runAt(ActionKind::Forward, chunk, microBatch),
        backward = runAt(ActionKind::Backward, chunk, microBatch);
    switch (lifetime.kind) {
    case LifetimeKind::Inputs:
    case LifetimeKind::SavedForWeights:
      return {forward, lastRun(chunk, microBatch, ActionKind::Weight)};
    case LifetimeKind::Saved:
      return {forward, lastRun(chunk, microBatch, ActionKind::Backward)};
    case LifetimeKind::SavedByBackward:
      return {backward, runAt(ActionKind::Weight, chunk, microBatch)};
    case LifetimeKind::Out:
      return {forward, forward};
    case LifetimeKind::In:
      return {isTurn(chunk - 1) ? runAt(ActionKind::Forward, chunk - 1, microBatch) : forward,
              readsStreamAgain(chunk) ? lastRun(chunk, microBatch, ActionKind::Weight) : forward};
    case LifetimeKind::DIn:
      return {backward, backward};
    case LifetimeKind::DOut:
      break;
    }
    return {isTurn(chunk) ? runAt(ActionKind::Backward, chunk + 1, microBatch) : backward, backward};
  }

  void setSlots(StageLifetime &lifetime) {
    for (int microBatch = 0; microBatch < microBatches; ++microBatch)
      while (microBatch >= lifetime.inFlight &&
             span(lifetime, microBatch - lifetime.inFlight).last >= span(lifetime, microBatch).first)
        ++lifetime.inFlight;
    bool isReceived = lifetime.kind == LifetimeKind::In && !isTurn(lifetime.chunk - 1);
    int ahead = isReceived ? options.streamsAhead : lifetime.kind == LifetimeKind::Inputs ? 1 : 0;
    lifetime.slots = std::min(lifetime.inFlight + ahead, std::max(microBatches, 1));
  }

  /// Returns the first position at which a transfer's buffer is free: after the last RUN that reads the buffer's
  /// previous value. Also keeps at most `mostOpen` transfers per queue without a wait. If the stage has several chunks,
  /// the schedule's order already ensures that, except for inputs, because they are not part of that order.
  int freeFrom(const StageLifetime &lifetime, int microBatch) const {
    int free = microBatch < lifetime.slots ? 0 : span(lifetime, microBatch - lifetime.slots).last + 1;
    int most = lifetime.kind == LifetimeKind::Inputs ? std::max(1, mostOpen / table.chunksPerStage) : mostOpen;
    bool isBound = table.chunksPerStage == 1 || lifetime.kind == LifetimeKind::Inputs;
    if (isBound && microBatch >= most)
      free = std::max(free, span(lifetime, microBatch - most).first + 1);
    return free;
  }

  StageLifetime &lifetimeOf(const StageFlight &flight) {
    return out.lifetimes[out.lifetimeOf(flight.chunk, lifetimeKind(flight.kind))];
  }

  /// Assigns positions to the STARTs of sends and receives. If a send would have to wait for the buffer of a receive,
  /// returns the live range of that receive, which then needs another slot. Else returns null.
  StageLifetime *placeTransfers() {
    starts.assign(runs.size() + 1, {});
    int place = 0;
    StageLifetime *latest = nullptr; // the receive that last advanced `place`
    for (const StageFlight &flight : order) {
      StageLifetime &lifetime = lifetimeOf(flight);
      if (isSend(flight.kind)) {
        int made = span(lifetime, flight.microBatch).first + 1;
        if (made < place)
          return latest;
        place = made;
      } else if (int free = freeFrom(lifetime, flight.microBatch); free > place) {
        place = free;
        latest = &lifetime;
      }
      starts[place].push_back(flight);
    }
    return nullptr;
  }

  void placeInputs() {
    std::vector<std::vector<StageFlight>> inputs(runs.size() + 1);
    for (int chunk = 0; chunk < table.chunksPerStage; ++chunk)
      if (int lifetime = out.lifetimeOf(chunk, LifetimeKind::Inputs); lifetime != none)
        for (int microBatch = 0; microBatch < microBatches; ++microBatch)
          inputs[freeFrom(out.lifetimes[lifetime], microBatch)].push_back({FlightKind::Inputs, chunk, microBatch});
    for (size_t place = 0; place < inputs.size(); ++place)
      starts[place].insert(starts[place].begin(), inputs[place].begin(), inputs[place].end());
  }

  void placeWaits() {
    waits.assign(runs.size() + 1, {});
    for (bool sends : {false, true})
      for (const std::vector<StageFlight> &started : starts)
        for (const StageFlight &flight : started)
          if (isSend(flight.kind) == sends)
            waits[neededBy(flight)].push_back(flight);
  }

  /// Returns the RUN that reads the received value, or that overwrites the sent value.
  int neededBy(const StageFlight &flight) {
    const StageLifetime &lifetime = lifetimeOf(flight);
    int microBatch = flight.microBatch + (isSend(flight.kind) ? lifetime.slots : 0);
    return microBatch < microBatches ? span(lifetime, microBatch).first : static_cast<int>(runs.size());
  }

  void writeItems() {
    auto add = [&](StageItem::Kind kind, std::vector<StageFlight> &flights) {
      if (!flights.empty())
        out.items.push_back({kind, {}, std::move(flights)});
    };
    for (size_t place = 0; place <= runs.size(); ++place) {
      add(StageItem::Kind::Start, starts[place]);
      add(StageItem::Kind::Wait, waits[place]);
      if (place < runs.size())
        out.items.push_back({StageItem::Kind::Run, runs[place], {}});
    }
  }

  const planner::ScheduleTable &table;
  int stage;
  const std::vector<StageFlight> &order;
  const ListOptions &options;
  const std::vector<planner::Action> &runs;
  int microBatches = 0;
  std::vector<int> runIndex;                           ///< [kind][chunk][micro-batch] -> RUN
  std::vector<std::vector<StageFlight>> starts, waits; ///< by position
  StageList out;
};

} // namespace

int StageList::slotsAhead(LifetimeKind kind) const {
  int slots = 0;
  for (const StageLifetime &lifetime : lifetimes)
    if (lifetime.kind == kind)
      slots += lifetime.slots - lifetime.inFlight;
  return slots;
}

std::vector<StageList> expandSchedule(const planner::ScheduleTable &table, const ListOptions &options) {
  std::vector<std::vector<StageFlight>> order = orderTransfers(table);
  std::vector<StageList> lists;
  for (size_t stage = 0; stage < table.stages.size(); ++stage)
    lists.push_back(StageLister(table, static_cast<int>(stage), order[stage], options).list());
  return lists;
}

std::vector<StageList> expandEvaluation(const planner::ScheduleTable &table, const ListOptions &options) {
  planner::ScheduleTable forwards = table;
  for (std::vector<planner::Action> &actions : forwards.stages) {
    actions.clear();
    for (int chunk = 0; chunk < table.chunksPerStage; ++chunk)
      actions.push_back({ActionKind::Forward, 0, chunk});
  }
  return expandSchedule(forwards, options);
}

} // namespace espalier
