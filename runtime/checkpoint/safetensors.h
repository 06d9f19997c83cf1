// The safetensors container: 8 bytes with the header's length, a JSON header, then the tensors'
// bytes.
#pragma once

#include "runtime/checkpoint/regular_file.h"
#include "runtime/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// A tensor of a file: `begin` counts from the first byte behind the header.
struct TensorEntry {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, bytes = 0;
  std::string otherType = {}; ///< a type of the format that is none of ours, "BOOL"; empty: `type` holds
};

/// Everything before the first tensor: the length and the JSON of tensors that follow each other in this order.
std::string safetensorsHeader(std::span<const TensorEntry> tensors, const std::map<std::string, std::string> &metadata);

/// A tensor to write: its bytes stay the caller's.
struct TensorBytes {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes tensors and string metadata in the given order: the file is whole and on disk, or absent. Throws DataError
/// where the disk refuses.
void writeSafetensors(const std::filesystem::path &file, std::span<const TensorBytes> tensors,
                      const std::map<std::string, std::string> &metadata);

/// A safetensors file whose tensors lie side by side and end where it ends.
class SafetensorsFile {
public:
  /// Reads the header only. Throws PlanError for a file that is missing or damaged.
  explicit SafetensorsFile(const std::filesystem::path &file, Links links = Links::Followed);

  const RegularFile &file() const { return content; }
  /// Length and JSON.
  uint64_t headerBytes() const { return header; }
  /// By place.
  const std::vector<TensorEntry> &tensors() const { return entries; }
  const std::map<std::string, std::string> &metadata() const { return strings; }

  /// The bytes of a tensor. Throws PlanError if it is missing or has not `bytes` bytes.
  std::vector<std::byte> tensor(const std::string &name, uint64_t bytes) const;

private:
  void requireCover() const;

  RegularFile content;
  uint64_t header = 0;
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> strings;
};

/// "f32" as safetensors says it: "F32"; and back, throwing PlanError for a type that is none of ours.
const char *safetensorsType(pb::DataType type);
pb::DataType typeOfName(const std::string &name);

/// Bytes of a tensor; throws PlanError where a size is negative or the product passes 2^62.
uint64_t tensorBytes(std::span<const int64_t> shape, pb::DataType type);

/// Makes names that were added to or changed in a folder durable.
void syncFolder(const std::filesystem::path &folder);

} // namespace espalier::rt
