// What a path holds, told by its content and not by its name: for the errors of commands that are given something else
// than they take.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::rt {

/// The files and folders that people hand to the wrong command.
enum class PathKind {
  Unknown, ///< none of the others, not there, or not readable
  Plan,
  RunFile,
  ModelFile,
  ClusterFile,
  RankTable, ///< the JSON of hosts, devices and ranks of Huawei's launchers
  ShellScript,
  HfConfig,         ///< a config.json of transformers
  HfFolder,         ///< a folder of transformers
  Gguf,             ///< a file of llama.cpp
  MegatronFolder,   ///< a checkpoint of Megatron
  CheckpointFolder, ///< the folder of a run's checkpoints
  Checkpoint,       ///< the checkpoint of one step
  Dataset,          ///< PREFIX of PREFIX.bin and PREFIX.idx, or one of these files
};

/// Returns what `path` holds. Reads the head and the tail of a file, opens nothing but regular files, and never throws.
PathKind pathKind(const std::filesystem::path &path);

/// Says what `path` is and which command takes it, for example "is a run file: `espalier compile a.yaml -o a.plan`".
/// Returns an empty text where the kind is unknown.
std::string wayOf(const std::filesystem::path &path);

/// Throws a PlanError that names `path` and says what it is and which command takes it, or `otherwise` where that is
/// unknown.
[[noreturn]] void refuseOther(const std::filesystem::path &path, const std::string &otherwise);

/// Returns why `path` cannot be opened, where the system says `reason` (an errno): a URL, a missing folder, a missing
/// file with the nearest name in its folder, a name of a model or data set instead of a path, or the system's words
/// alone.
std::string whyNotOpened(const std::filesystem::path &path, int reason);

} // namespace espalier::rt
