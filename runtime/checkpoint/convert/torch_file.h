// Files of torch.save: a pickle of names and tensors, and their storages. Read by an interpreter that can build tensors
// and nothing else, and written without one.
#pragma once

#include "runtime/checkpoint/convert/pickle.h"
#include "runtime/checkpoint/convert/weight_files.h"

#include <optional>

namespace espalier::rt {

/// A file of today, a zip, or of the time before, one pickle after the other.
class TorchFile {
public:
  /// Reads everything but the storages. Throws PlanError for a file that is missing or damaged.
  explicit TorchFile(const std::filesystem::path &file);

  const PickleValue &root() const { return pickle->root(); }
  const std::filesystem::path &path() const { return content.path(); }
  /// The elements of a tensor in row-major order.
  std::vector<std::byte> read(const PickleTensor &tensor) const;
  /// Of a row-major tensor the bytes from `begin` on; the checksum of its storage is compared where these are all of it.
  void readPart(const PickleTensor &tensor, uint64_t begin, std::span<std::byte> bytes) const;

private:
  struct Place {
    uint64_t at = 0, bytes = 0;
    std::optional<uint32_t> crc; ///< of a zip's entry
  };
  void openZip();
  void openOld();
  void place(const PickleStorage &storage, const Place &place);
  void requireChecksum(const PickleStorage &storage, uint32_t found) const;

  RegularFile content;
  std::optional<Pickle> pickle;
  std::map<std::string, Place> places;
};

/// The tensors of a dict of dicts, names joined by `/`: of the whole file or, where `entry` is given, of that value.
/// Values of other kinds count only where a weight is asked for under their name.
std::unique_ptr<WeightSource> openTorchFile(const std::filesystem::path &file);
std::unique_ptr<WeightSource> openTorchEntry(std::shared_ptr<const TorchFile> file, const std::string &entry);

/// A number beside the tensors: Megatron compares its version as a float.
struct TorchNumber {
  std::string name;
  double value = 0;
  bool isWhole = true;
};

/// Writes a dict of tensors, one in memory at a time; the file is whole and on disk, or absent.
void writeTorchFile(const std::filesystem::path &file, std::span<const WrittenTensor> tensors);
/// The same as {numbers ..., "model": tensors}, where `/` in a name is a dict within a dict.
void writeTorchModel(const std::filesystem::path &file, std::span<const TorchNumber> numbers,
                     std::span<const WrittenTensor> tensors);

} // namespace espalier::rt
