// Sharded checkpoints: each rank writes its own blocks, the folder appears whole, and at every
// moment one is loadable.
//
//   DIR/latest                        names the newest folder, replaced atomically
//   DIR/step-00000020/run.json        step, samples read, loss scale, mesh
//   DIR/step-00000020/rank-00003.safetensors
//                                     value/NAME, master/NAME, moment1/NAME, moment2/NAME of the
//                                     rank's blocks;
//                                     __metadata__ has each block's place in the global parameter
//
// Values and replicated state are written by the first data replica only, ZeRO-1 shares by each.
#pragma once

#include "runtime/executor.h"
#include "runtime/train/step_scalars.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// Writes a checkpoint of all ranks; returns after it is on disk and named in `latest`. Called by
/// every rank at the same step. Throws PlanError where the disk refuses; then no other checkpoint
/// has changed.
void saveCheckpoint(const std::filesystem::path &folder, const Program &program, Executor &executor,
                    const ScalarState &state);

/// The newest complete checkpoint of the folder, empty where there is none.
std::string latestCheckpoint(const std::filesystem::path &folder);

/// Throws PlanError if the folder has no checkpoint: asked before ranks start, so that it is the user's
/// error and not the failure of a rank.
void requireCheckpoint(const std::filesystem::path &folder);

/// Makes the folder that checkpoints will go to, before anything is trained; throws PlanError if it cannot be.
void makeCheckpointFolder(const std::filesystem::path &folder);

/// Fills the rank's parameters and optimizer state from the latest checkpoint and returns where the
/// run stood. Throws PlanError if there is none, it is damaged, or it was written under another
/// split of the parameters.
ScalarState loadCheckpoint(const std::filesystem::path &folder, const Program &program, Executor &executor);

/// What a folder of checkpoints holds, for people: where the latest one stands, its split, size and the older ones.
/// Throws PlanError as requireCheckpoint does.
std::string describeCheckpoints(const std::filesystem::path &folder);

} // namespace espalier::rt
