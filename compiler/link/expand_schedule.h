// Expands the planner's schedule table into one instruction stream per stage (runtime/README.md, sections 1 to 3). A
// stream says which RUNs a stage executes, where each transfer is started and waited for, and how many slots each live
// range has. It has neither allocations nor layer calls. The emitter turns its items into plan actions and adds the
// start and the end of a step.
#pragma once

#include "compiler/link/order_transfers.h"

#include <array>
#include <functional>
#include <vector>

namespace espalier {

/// A RUN of all layer calls of a chunk, or a START or WAIT of transfers in the listed order.
struct StageItem {
  enum class Kind { Run, Start, Wait };
  Kind kind = Kind::Run;
  planner::Action run;              ///< set for a Run
  std::vector<StageFlight> flights; ///< set for a Start or a Wait
};

/// Values of a chunk that live for part of a micro-batch. Inputs and the received stream live from their START to the
/// chunk's last RUN of the micro-batch: W if the schedule has weight RUNs, else B. The received cotangent lives until
/// the end of B. A sent value lives from the RUN that makes it to the end of its transfer.
enum class LifetimeKind {
  Inputs,
  Saved,           ///< written by F, read by B
  SavedForWeights, ///< written by F, read by W; exists only if the schedule has separate weight RUNs
  SavedByBackward, ///< written by B, read by W; exists only if the schedule has separate weight RUNs
  Out,
  In,
  DIn,
  DOut
};
inline constexpr int kLifetimeKinds = 8;

/// A live range of a chunk. A micro-batch uses the ring slot `micro-batch mod slots`.
struct StageLifetime {
  LifetimeKind kind = LifetimeKind::Inputs;
  int chunk = 0;
  int slots = 1;
  int inFlight =
      1; ///< slots that RUNs need so that micro-batches do not overwrite each other; further slots are for transfers
};

/// The instruction stream of one stage with its live ranges.
struct StageList {
  std::vector<StageItem> items;
  std::vector<StageLifetime> lifetimes; ///< ordered by chunk, then by LifetimeKind

  /// Maps [chunk][LifetimeKind] to an index in `lifetimes`, or to -1 if the chunk has no live range of this kind.
  /// Consecutive chunks on one stage (the middle of a V-shaped schedule) need no transfer. There, Out of the first
  /// chunk and In of the second are the same live range, and so are DIn of the second and DOut of the first.
  std::vector<std::array<int, kLifetimeKinds>> chunks;

  int lifetimeOf(int chunk, LifetimeKind kind) const { return chunks[chunk][static_cast<int>(kind)]; }

  /// Returns the slots of all chunks beyond those that RUNs need. They are the memory cost of prefetched transfers.
  int slotsAhead(LifetimeKind kind) const;
};

/// Options of expandSchedule.
struct ListOptions {
  /// Whether each chunk copies inputs from the host. If false, only the model's first and last chunks do.
  bool everyChunkHasInputs = false;
  /// Returns whether the backward pass of a chunk reads the received stream. If it does not, the stream is free after
  /// the chunk's forward pass. Without this function, every chunk reads its stream again.
  std::function<bool(int stage, int chunk)> readsStreamAgain = nullptr;
  /// Slots of each received stream beyond those in flight, so that the next stream arrives while RUNs use the current
  /// one. More slots are added where a send would otherwise wait for a receive.
  int streamsAhead = 1;
};

/// Returns one instruction stream per stage, without the `set` transfer, the sums over micro-batches and the end of the
/// step. All stages start their transfers in one global order, so that none deadlocks even if each device runs one
/// transfer at a time. Each started transfer is also waited for.
std::vector<StageList> expandSchedule(const planner::ScheduleTable &table, const ListOptions &options = {});

/// Returns the instruction streams of an evaluation: one forward RUN per chunk, for one micro-batch. All live ranges
/// use slot 0.
std::vector<StageList> expandEvaluation(const planner::ScheduleTable &table, const ListOptions &options = {});

} // namespace espalier
