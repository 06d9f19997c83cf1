// A changed dataset has another size or, very likely, other bytes in one of the sampled blocks.
#include "runtime/dataset/content_digest.h"

#include "format/checksum.h"
#include "runtime/files/mapped_file.h"

#include <algorithm>

namespace espalier::rt {
namespace {

constexpr size_t wholeBytes = size_t(64) << 20; ///< smaller files are read completely
constexpr size_t blockBytes = 4096, blocks = 1024;

void addFile(const std::string &path, size_t &bytes, RunningChecksum &sum) {
  MappedFile file(path);
  std::span<const std::byte> content = std::as_bytes(file.bytes());
  bytes += content.size();
  std::string size = fmt::format("{};", content.size());
  sum.add(std::as_bytes(std::span(size)));
  if (content.size() <= wholeBytes)
    return sum.add(content);
  for (size_t i = 0; i < blocks; ++i) // includes the first block
    sum.add(content.subspan((content.size() - blockBytes) / (blocks - 1) * i, blockBytes));
  sum.add(content.last(blockBytes));
}

} // namespace

std::string contentDigest(const std::string &path) {
  if (path == "mock")
    return path;
  bool hasSuffix = path.ends_with(".idx") || path.ends_with(".bin");
  std::string prefix = hasSuffix ? path.substr(0, path.size() - 4) : path;
  size_t bytes = 0;
  RunningChecksum sum;
  if (isRegularFile(prefix + ".idx"))
    for (const char *suffix : {".idx", ".bin"})
      addFile(prefix + suffix, bytes, sum);
  else
    addFile(path, bytes, sum);
  return fmt::format("{} bytes {}", bytes, sum.text());
}

} // namespace espalier::rt
