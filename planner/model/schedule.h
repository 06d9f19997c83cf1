// Pipeline schedules as tables of actions: one list per stage, in execution order. The simulator plays these tables,
// and the compiler compiles them into the run plan.
#pragma once

#include "planner/plan.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// Forward keeps values for backward. Backward computes the gradients of the input and of the weights. Weight computes
/// the gradients of the weights if the schedule separates them from Backward.
enum class ActionKind { Forward, Backward, Weight };

/// One action of a stage. `chunk` is an index into the chunks of this stage, in model order.
struct Action {
  ActionKind kind = ActionKind::Forward;
  int microBatch = 0;
  int chunk = 0;
  bool operator==(const Action &) const = default;
};

/// The stages of the chunks of a pipeline. A model chunk is a chunk's position in model order; the chunks of a stage
/// are numbered in model order, too.
struct Placement {
  int stageCount = 1;
  int chunksPerStage = 1;
  /// Whether the second chunks run from the last stage back to the first. Otherwise chunk c lies on stage c modulo the
  /// number of stages.
  bool returns = false;

  /// Returns the number of chunks of all stages.
  int chunks() const { return stageCount * chunksPerStage; }
  /// Returns the stage that holds a model chunk.
  int stageOf(int modelChunk) const;
  /// Returns the model chunk of chunk `chunk` of `stage`.
  int modelChunk(int stage, int chunk) const;
  /// Returns the stage of the last chunk, which holds the head.
  int headStage() const { return stageOf(chunks() - 1); }
};

/// Return where a schedule places its chunks.
Placement placement(Schedule schedule, int stages, int virtualStages);
Placement placement(const ParallelConfig &config);

/// The actions of each stage.
struct ScheduleTable : Placement {
  std::vector<std::vector<Action>> stages;
  bool splitsBackward = false; ///< weight gradients are separate actions
};

/// All schedules, in the order in which the search prefers equal ones.
inline constexpr Schedule kSchedules[] = {Schedule::OneFOneB,     Schedule::GPipe,       Schedule::Interleaved,
                                          Schedule::ZeroBubbleH1, Schedule::ZeroBubbleV, Schedule::VHalf,
                                          Schedule::VMin};

/// Name as the run file spells it: 1f1b, gpipe, interleaved, zero_bubble_h1, zero_bubble_v, v_half, v_min.
const char *scheduleName(Schedule schedule);
/// Returns the schedule with this run-file name, or nothing when the name is unknown.
std::optional<Schedule> scheduleNamed(std::string_view name);

/// Whether each stage has two chunks and the second chunks run from the last stage back to the first.
bool isVShaped(Schedule schedule);

/// Whether weight gradients are separate actions.
bool splitsBackward(Schedule schedule);

/// Chunks of one stage that a schedule uses: 1, `virtualStages` (interleaved) or 2 (V-shaped).
int chunksOf(Schedule schedule, int virtualStages);

/// Returns why a schedule cannot be built for these sizes; empty when it can. Interleaved schedules need a number of
/// micro-batches that divides by the number of stages, and at least two chunks.
std::string whyNotSchedulable(Schedule schedule, int stages, int microBatches, int virtualStages);

/// Builds the table. Requires whyNotSchedulable() to be empty. Sources: GPipe (Huang 2019), 1F1B (PipeDream-Flush,
/// Narayanan 2021), interleaved (Narayanan SC21), ZB-H1 (Qi 2023), ZB-V, V-Half and V-Min (Qi 2024).
ScheduleTable buildSchedule(Schedule schedule, int stages, int microBatches, int virtualStages = 1);

/// Returns the actions of each stage under a V-shaped schedule, for buildSchedule().
std::vector<std::vector<Action>> buildVStages(Schedule schedule, int stages, int microBatches);

/// The peaks of the micro-batches whose saved values the chunks of a stage hold, as [moment][chunk]. A value is held
/// from Forward to Backward, or to Weight if the schedule splits backward. Dominated moments are omitted. Moments on a
/// straight line between two others are omitted too, because any weighted sum over chunks is larger at one of the
/// line's ends.
using InFlightPeaks = std::vector<std::vector<int>>;
/// Plays the actions of `stage` and returns its peaks.
InFlightPeaks inFlightPeaks(const ScheduleTable &table, int stage);

/// The most micro-batches of one chunk whose values are live at once, by live range: from the action that writes the
/// values to the last action that reads them. Without separate weight gradients the first two are equal, and the third
/// is 0.
struct LivePeaks {
  int untilBackward = 1; ///< Forward to Backward
  int untilWeight = 1;   ///< Forward to Weight
  int fromBackward = 0;  ///< Backward to Weight
  /// The received activation, until Weight. At the turn of a V, the chunk before on the same stage writes it.
  int received = 1;
  /// The received gradient, until Backward. At the turn of a V, the next chunk on the same stage writes it.
  int gradients = 1;
  bool operator==(const LivePeaks &) const = default;
};

/// The peaks of one stage: of its chunks together, and of each chunk by itself.
struct StagePeaks {
  InFlightPeaks moments;
  std::vector<LivePeaks> chunks;
  bool operator==(const StagePeaks &) const = default;
};
/// Plays the actions of `stage` and returns its peaks.
StagePeaks stagePeaks(const ScheduleTable &table, int stage);

/// Returns the same peaks from closed forms: GPipe m, 1F1B min(m, p - s), ZB-H1 min(m, p) until Weight, min(m, p - s)
/// until Backward and min(m, s + 1) from there to Weight. Interleaved schedules are periodic in p micro-batches, so
/// that a short table is played. V-shaped schedules have no closed form; their whole table is built.
inline constexpr int kRepeatedBatches = 3; ///< times p: warm-up, one period, cool-down
StagePeaks stagePeaks(Schedule schedule, int stage, int stages, int microBatches, int virtualStages);

} // namespace espalier::planner
