// The small files that a checkpoint keeps beside its weights, so that other commands need nothing else:
//
//   step-00000020/run.yaml            the run file as it was read, complete
//   step-00000020/models/llama.yaml   the model file, complete; it is found from run.yaml like any model file
//   step-00000020/tokenizer.json ...  the tokenizer under the names of transformers
#pragma once

#include "format/plan.pb.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/tokenizer/tokenizer_files.h"

namespace espalier::rt {

/// The name of the run file in a checkpoint.
inline constexpr const char *keptRunName = "run.yaml";

/// Returns the run file and the model file. If `weights` is not empty, the run file's load_checkpoint is replaced by
/// it. Returns nothing if a text is empty.
std::vector<SideFile> keptTexts(const std::string &run, const std::string &modelFile, const std::string &model,
                                const std::filesystem::path &weights = {});

/// Returns the weights that the run of a checkpoint started from; empty if it started from initial values or keeps no
/// run file.
std::filesystem::path keptWeights(const std::filesystem::path &checkpoint);

/// Returns the folder of a checkpoint, or of weights of another system, that holds the tokenizer's files.
std::filesystem::path sideFolderOf(const std::filesystem::path &weights);

/// Writes the files into the folder of a checkpoint, unless they are there. Throws DataError.
void writeKept(const std::filesystem::path &checkpoint, const std::vector<SideFile> &files);

/// Returns the entries of the manifest.
std::vector<KeptFile> keptEntries(const std::vector<SideFile> &files);

} // namespace espalier::rt
