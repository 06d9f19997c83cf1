// The record of a written checkpoint.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::rt {

/// How a run writes the checkpoints before its last step: from a copy in host memory while training goes on, or at
/// once.
enum class SaveMode { background, sync };

/// How a process can write checkpoints, and why not in the background: the memory that is missing. No reason is given
/// if the user chose so.
struct SaveChoice {
  SaveMode mode = SaveMode::background;
  std::string reason = "";
};

/// A checkpoint that is on disk under its final name.
struct SaveRecord {
  int64_t step = 0;      ///< whose state the checkpoint holds
  int64_t afterStep = 0; ///< the last step that had ended when the checkpoint was found complete
  std::string name;      ///< of its folder
  uint64_t bytes = 0;
  double blockedSeconds = 0; ///< for which training waited: the longest of all ranks
  double writtenSeconds = 0; ///< from the first byte of the slowest rank to the final name
};

} // namespace espalier::rt
