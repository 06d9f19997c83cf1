// Pipeline schedules as tables of actions, one list per stage, in the order the stage executes
// them. The same tables are played by the simulator and compiled into the run plan.
#pragma once

#include "planner/plan.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// Forward keeps values; Backward gives the input's gradient (and the weights' unless the schedule
/// splits them off as Weight).
enum class ActionKind { Forward, Backward, Weight };

/// One action of a stage: `chunk` counts the chunks that lie on this stage, in model order.
struct Action {
  ActionKind kind = ActionKind::Forward;
  int microBatch = 0;
  int chunk = 0;
  bool operator==(const Action &) const = default;
};

/// One list per stage.
struct ScheduleTable {
  std::vector<std::vector<Action>> stages;
  int chunksPerStage = 1;
  bool splitsBackward = false; ///< weight gradients are actions of their own
  bool vShape = false;         ///< the second chunk runs from the last stage back to the first
};

/// All schedules, in the order in which the search prefers equal ones.
inline constexpr Schedule kSchedules[] = {Schedule::OneFOneB,     Schedule::GPipe,       Schedule::Interleaved,
                                          Schedule::ZeroBubbleH1, Schedule::ZeroBubbleV, Schedule::VHalf,
                                          Schedule::VMin};

/// Name as the run file spells it: 1f1b, gpipe, interleaved, zero_bubble_h1, zero_bubble_v, v_half, v_min.
const char *scheduleName(Schedule schedule);
std::optional<Schedule> scheduleNamed(std::string_view name);

/// Whether each stage has two chunks of which the second runs from the last stage back to the first.
bool isVShaped(Schedule schedule);

/// Whether weight gradients are actions of their own.
bool splitsBackward(Schedule schedule);

/// Stage of a chunk given in model order (0 .. stages * chunksPerStage - 1).
int stageOfChunk(int modelChunk, int stages, bool vShape);

/// Position in model order of the chunk `chunk` of `stage`.
int modelChunk(int stage, int chunk, int stages, bool vShape);

/// Chunks of one stage that a schedule uses: 1, `virtualStages` (interleaved) or 2 (V-shaped).
int chunksOf(Schedule schedule, int virtualStages);

/// Why a schedule cannot be built for these sizes; empty when it can. Interleaved needs
/// micro-batches that divide by the stages and at least two chunks.
std::string whyNotSchedulable(Schedule schedule, int stages, int microBatches, int virtualStages);

/// Builds the table. Requires whyNotSchedulable() to be empty. Sources: GPipe (Huang 2019), 1F1B
/// (PipeDream- Flush, Narayanan 2021), interleaved (Narayanan SC21), ZB-H1 (Qi 2023), ZB-V, V-Half and V-Min (Qi
/// 2024).
ScheduleTable buildSchedule(Schedule schedule, int stages, int microBatches, int virtualStages = 1);

/// Most micro-batches (of any chunk) whose saved values stage `stage` holds at once, by playing its
/// list: +1 at Forward, -1 at Backward, or at Weight where the schedule splits backward.
int peakInFlight(const ScheduleTable &table, int stage);

/// What a stage holds of each of its chunks at its fullest moments, by playing its list as in peakInFlight(): [moment]
/// [chunk]. No moment holds at least as much of every chunk as another; moments on a straight line between two others
/// are left out, as any sum over chunks is larger at one of its ends.
using InFlightPeaks = std::vector<std::vector<int>>;
InFlightPeaks inFlightPeaks(const ScheduleTable &table, int stage);

/// The same by closed forms: GPipe m, 1F1B min(m, p - s), ZB-H1 min(m, p); interleaved repeats itself after p
/// micro-batches, so that a short list is played. V-shaped schedules have none: their table is built.
inline constexpr int kRepeatedBatches = 3; ///< times p: warm-up, what repeats itself, cool-down
InFlightPeaks inFlightPeaks(Schedule schedule, int stage, int stages, int microBatches, int virtualStages);

} // namespace espalier::planner
