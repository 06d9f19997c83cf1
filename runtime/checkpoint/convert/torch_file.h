// Files of torch.save: a pickle of names and tensors, followed by their storages. Reading does not execute the pickle.
#pragma once

#include "runtime/checkpoint/convert/file_part.h"
#include "runtime/checkpoint/convert/pickle.h"
#include "runtime/checkpoint/convert/weight_files.h"

#include <optional>

namespace espalier::rt {

/// A file in today's format, a zip, or in the old format, a sequence of pickles.
class TorchFile {
public:
  /// Reads everything except the storages. Throws PlanError if the file is missing or damaged.
  explicit TorchFile(const std::filesystem::path &file, const std::optional<FileRange> &range = std::nullopt);

  const PickleValue &root() const { return pickle->root(); }
  const std::filesystem::path &path() const { return content.path(); }
  /// Returns the elements of a tensor in row-major order.
  std::vector<std::byte> read(const PickleTensor &tensor) const;
  /// Reads the bytes of a row-major tensor from `begin` on. The checksum is verified if they are its whole storage.
  void readPart(const PickleTensor &tensor, uint64_t begin, std::span<std::byte> bytes) const;

private:
  struct Place {
    uint64_t at = 0, bytes = 0;
    std::optional<uint32_t> crc; ///< of a zip entry
  };
  void openZip();
  void openOld();
  void place(const PickleStorage &storage, const Place &place);
  void requireChecksum(const PickleStorage &storage, uint32_t found) const;

  RegularFile file;
  FilePart content;
  std::optional<Pickle> pickle;
  std::map<std::string, Place> places;
};

/// Open the tensors in nested dicts, with names joined by `/`: of the whole file, or of the value `entry`. Values of
/// other types are an error only if a weight has their name.
std::unique_ptr<WeightSource> openTorchFile(const std::filesystem::path &file);
std::unique_ptr<WeightSource> openTorchEntry(std::shared_ptr<const TorchFile> file, const std::string &entry);

/// A number stored next to the tensors. Megatron compares its version as a float.
struct TorchNumber {
  std::string name;
  double value = 0;
  bool isWhole = true;
};

/// Writes a dict of tensors with one tensor in memory at a time. The file is written completely or not at all.
void writeTorchFile(const std::filesystem::path &file, std::span<const WrittenTensor> tensors);
/// Writes {numbers ..., "model": tensors}. A `/` in a name makes a nested dict.
void writeTorchModel(const std::filesystem::path &file, std::span<const TorchNumber> numbers,
                     std::span<const WrittenTensor> tensors);

} // namespace espalier::rt
