// The list of each stage (runtime/README.md, sections 1 to 3) on a form without places and calls: which RUNs, which
// flights are started and waited for where, and how many slots each lifetime has. Made from the planner's table of a
// schedule; the emitter turns items into actions of the plan and adds what begins and ends a step.
#pragma once

#include "compiler/pipeline/order_transfers.h"

#include <array>
#include <functional>
#include <vector>

namespace espalier {

/// A RUN of all calls of a chunk, or the START or WAIT of flights, in the order listed.
struct StageItem {
  enum class Kind { Run, Start, Wait };
  Kind kind = Kind::Run;
  planner::Action run;              ///< of a Run
  std::vector<StageFlight> flights; ///< of a Start or Wait
};

/// Values of a chunk that come and go with a micro-batch. Inputs and the stream that came in live from their START to
/// the chunk's last RUN of the micro-batch (W where the schedule has it, else B), the cotangent that came in to the end
/// of B, what is sent from the RUN that makes it to the flight's end.
enum class LifetimeKind {
  Inputs,
  Saved,           ///< by F, read by B
  SavedForWeights, ///< by F, read by W: only where weight gradients are RUNs of their own, as the next
  SavedByBackward, ///< by B, read by W
  Out,
  In,
  DIn,
  DOut
};
inline constexpr int kLifetimeKinds = 8;

/// A micro-batch uses slot micro-batch mod `slots`.
struct StageLifetime {
  LifetimeKind kind = LifetimeKind::Inputs;
  int chunk = 0;
  int slots = 1;
  int inFlight = 1; ///< slots without which a RUN would find another micro-batch's values; the others are for transfers
};

struct StageList {
  std::vector<StageItem> items;
  std::vector<StageLifetime> lifetimes; ///< chunk by chunk, each in the order of LifetimeKind

  /// [chunk][LifetimeKind] -> index in `lifetimes`, -1 where the chunk has none. Neighbouring chunks of one stage (the
  /// turn of a V) need no transfer: Out of the first is the very lifetime that is In of the second, DIn of the second
  /// is DOut of the first.
  std::vector<std::array<int, kLifetimeKinds>> chunks;

  int lifetimeOf(int chunk, LifetimeKind kind) const { return chunks[chunk][static_cast<int>(kind)]; }

  /// Slots of all chunks that RUNs do not ask for: what transfers ahead cost in memory.
  int slotsAhead(LifetimeKind kind) const;
};

struct ListOptions {
  /// Whether each chunk copies inputs from the host; else the first and the last of the model only.
  bool everyChunkHasInputs = false;
  /// Whether the backward of a chunk of a stage reads the stream that came in: what it does not read is free after the
  /// chunk's forward. Without it all do.
  std::function<bool(int stage, int chunk)> readsStreamAgain = nullptr;
  /// Slots of each received stream beyond those in flight, so that the next one arrives beside the RUNs of this one.
  /// Where a send would have to wait for a receive there are more in any case.
  int streamsAhead = 1;
};

/// One list per stage, without `set`, sums over micro-batches and the step's end. All stages start their transfers in
/// one order, so that none hangs even where each device runs one transfer at a time. Every flight is waited for.
std::vector<StageList> expandSchedule(const planner::ScheduleTable &table, const ListOptions &options = {});

/// The same for the forwards of one micro-batch, each chunk once. All are in slot 0.
std::vector<StageList> expandEvaluation(const planner::ScheduleTable &table, const ListOptions &options = {});

} // namespace espalier
