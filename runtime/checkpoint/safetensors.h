// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes.
#pragma once

#include "format/plan.pb.h"
#include "runtime/checkpoint/regular_file.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// A tensor of a file. `begin` counts from the end of the header.
struct TensorEntry {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, bytes = 0;
  std::string otherType = {}; ///< a type of the format that we do not support, as "BOOL"; empty: `type` is valid
};

/// Returns everything before the first tensor: length and JSON header, for contiguous tensors in this order.
std::string safetensorsHeader(std::span<const TensorEntry> tensors, const std::map<std::string, std::string> &metadata);

/// A tensor to write. The caller keeps its bytes alive.
struct TensorBytes {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes tensors and string metadata in the given order. The file is written completely or not at all. Throws
/// DataError if writing fails.
void writeSafetensors(const std::filesystem::path &file, std::span<const TensorBytes> tensors,
                      const std::map<std::string, std::string> &metadata);

/// A safetensors file whose tensors are contiguous and end at the end of the file.
class SafetensorsFile {
public:
  /// Reads the header only. Throws PlanError if the file is missing or damaged.
  explicit SafetensorsFile(const std::filesystem::path &file, Links links = Links::Followed);

  const RegularFile &file() const { return content; }
  /// Returns the size of length field and JSON header.
  uint64_t headerBytes() const { return header; }
  /// Returns the tensors by position.
  const std::vector<TensorEntry> &tensors() const { return entries; }
  const std::map<std::string, std::string> &metadata() const { return strings; }

  /// Returns the bytes of a tensor. Throws PlanError if it is missing or does not have `bytes` bytes.
  std::vector<std::byte> tensor(const std::string &name, uint64_t bytes) const;

private:
  void requireCover() const;

  RegularFile content;
  uint64_t header = 0;
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> strings;
};

/// Convert between types and their safetensors names, as "F32". typeOfName throws PlanError for unsupported types.
const char *safetensorsType(pb::DataType type);
pb::DataType typeOfName(const std::string &name);

/// Returns the bytes of a tensor. Throws PlanError if a size is negative or the product exceeds 2^62.
uint64_t tensorBytes(std::span<const int64_t> shape, pb::DataType type);

/// Makes changes to a folder's entries durable.
void syncFolder(const std::filesystem::path &folder);

} // namespace espalier::rt
