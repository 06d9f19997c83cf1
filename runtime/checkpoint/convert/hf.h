// A folder in the format of Hugging Face's transformers: weights in one file or in shards with an index, a config,
// tokenizer files and a README.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"
#include "runtime/tokenizer/tokenizer_files.h"

#include <filesystem>

namespace espalier::rt {

enum class WeightFormat { Safetensors, Bin };

/// Throws PlanError if a file is a link out of its folder, except from a snapshot of the hub's cache to its blobs.
void requireInside(const std::filesystem::path &file);

/// Opens the weights of a folder: through its index if present, else the single file; safetensors before .bin. The
/// index may only name files inside the folder. Throws PlanError.
std::unique_ptr<WeightSource> openHfFolder(const std::filesystem::path &folder);
/// Opens the file `<stem>.safetensors` or `<stem>.bin` of a folder. Throws PlanError.
std::unique_ptr<WeightSource> openHfWeights(const std::filesystem::path &folder, const std::string &stem);

/// The settings of an export.
struct HfExport {
  WeightFormat format = WeightFormat::Safetensors;
  int64_t shards = 0; ///< 0: one per 5 GB
  std::filesystem::path
      reference;               ///< folder whose tokenizer files, README and generation config are copied; may be empty
  std::vector<SideFile> files; ///< written unless `reference` has a file of the name
  std::string config;          ///< the text of config.json
  bool mergesAdapters = false; ///< adds low-rank adapters to the weights that they lie beside
};

/// Writes the folder, which must be missing or empty, completely or not at all. The order of tensors within a file is
/// that of the format's own writer, so the same tensors give the same bytes. Throws PlanError.
void writeHfFolder(const std::filesystem::path &folder, std::vector<WrittenTensor> tensors, const HfExport &options);

} // namespace espalier::rt
