// Weights that are used without a plan: a checkpoint that keeps its run file, a folder of transformers, a folder of the
// hub's cache, or a GGUF file.
#pragma once

#include "runtime/tokenizer/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace espalier {

/// What is asked of the plan of a folder.
struct FolderWish {
  std::string device;             ///< cpu, cuda or emulated; empty: cuda if this machine has a GPU, else cpu
  int64_t texts = 1;              ///< at a time
  std::optional<int64_t> context; ///< tokens of a text; unset: the model's, at most mostContext
  static constexpr int64_t mostContext = 4096;
};

/// A folder with its plan.
struct FolderModel {
  std::filesystem::path plan;                    ///< in planCache()
  std::filesystem::path weights;                 ///< the checkpoint of a step, folder of transformers or GGUF file
  std::filesystem::path side;                    ///< the folder of the tokenizer and the chat template
  std::string device;                            ///< of the plan
  std::optional<rt::TokenizerOptions> tokenizer; ///< nothing if they have none
};

/// Returns the folder itself, or the snapshot of a folder of the hub's cache (models--ORG--NAME) that refs/main or its
/// only snapshot is. Throws PlanError if several snapshots are there.
std::filesystem::path snapshotOf(const std::filesystem::path &folder);

/// Returns the weights of a folder with a plan that generates on this machine. The plan is compiled if the cache has
/// none for the folder as it is now, and the place is then told on standard error. Throws PlanError, or
/// ReportedElsewhere if the compilation fails.
FolderModel folderModel(const std::filesystem::path &folder, const FolderWish &wish);

} // namespace espalier
