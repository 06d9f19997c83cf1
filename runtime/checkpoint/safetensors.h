// The safetensors container: 8 bytes with the header's length, a JSON header, then the tensors'
// bytes.
#pragma once

#include "runtime/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// A tensor to write: its bytes stay the caller's.
struct TensorBytes {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes tensors and string metadata in the given order and flushes to disk. Throws PlanError
/// where the disk refuses.
void writeSafetensors(const std::filesystem::path &file, std::span<const TensorBytes> tensors,
                      const std::map<std::string, std::string> &metadata);

/// A safetensors file, read whole; every size checked against the file's before use.
class SafetensorsFile {
public:
  /// Throws PlanError for a file that is missing or damaged.
  explicit SafetensorsFile(const std::filesystem::path &file);

  /// The bytes of a tensor. Throws PlanError if it is missing or has not `bytes` bytes.
  std::span<const std::byte> tensor(const std::string &name, uint64_t bytes) const;

  const std::map<std::string, std::string> &metadata() const { return strings; }

private:
  std::filesystem::path file;
  std::vector<std::byte> content;
  std::map<std::string, std::pair<uint64_t, uint64_t>> places; ///< first byte and size, in `content`
  std::map<std::string, std::string> strings;
};

/// Writes `bytes` to a file and flushes it to disk. Throws PlanError where the disk refuses.
void writeDurably(const std::filesystem::path &file, std::span<const std::span<const std::byte>> parts);

/// Makes names that were added to or changed in a folder durable.
void syncFolder(const std::filesystem::path &folder);

} // namespace espalier::rt
