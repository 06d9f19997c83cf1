// A folder as Hugging Face's transformers writes and loads it: weights in one file or in shards with an index, and
// beside them a config, the tokenizer's files and a README.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"

#include <filesystem>

namespace espalier::rt {

enum class WeightFormat { Safetensors, Bin };

/// The weights of a folder: its index where there is one, else its single file; safetensors before .bin. Files that the
/// index names must lie in the folder. Throws PlanError.
std::unique_ptr<WeightSource> openHfFolder(const std::filesystem::path &folder);

struct HfExport {
  WeightFormat format = WeightFormat::Safetensors;
  int64_t shards = 0; ///< 0: as many as files of 5 GB need
  std::filesystem::path
      reference;      ///< folder whose tokenizer files, README and generation config are copied; may be empty
  std::string config; ///< text of config.json
};

/// Writes the folder, which must not exist or be empty: it is whole, or what was there before. Names take their order
/// within a file from the format's own writer, so that the same tensors give the same bytes. Throws PlanError.
void writeHfFolder(const std::filesystem::path &folder, std::vector<WrittenTensor> tensors, const HfExport &options);

} // namespace espalier::rt
