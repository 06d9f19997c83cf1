// A changed dataset has another size or, very likely, other bytes in one of the sampled blocks.
#include "runtime/dataset/content_digest.h"

#include "format/checksum.h"
#include "runtime/files/mapped_file.h"

#include <algorithm>

namespace espalier::rt {
namespace {

constexpr size_t wholeBytes = size_t(64) << 20; ///< smaller files are read completely
constexpr size_t blockBytes = 4096;

void addFile(const std::string &path, size_t &bytes, RunningChecksum &sum, size_t blocks = 1024) {
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

/// Returns the PREFIX of PREFIX.bin and PREFIX.idx.
std::string prefixOf(const std::string &path) {
  bool hasSuffix = path.ends_with(".idx") || path.ends_with(".bin");
  return hasSuffix ? path.substr(0, path.size() - 4) : path;
}

} // namespace

std::string contentDigest(const std::string &path) {
  if (path == "mock")
    return path;
  std::string prefix = prefixOf(path);
  size_t bytes = 0;
  RunningChecksum sum;
  if (isRegularFile(prefix + ".idx"))
    for (const char *suffix : {".idx", ".bin"})
      addFile(prefix + suffix, bytes, sum);
  else
    addFile(path, bytes, sum);
  return fmt::format("{} bytes {}", bytes, sum.text());
}

std::string fileDigest(const std::string &path) {
  size_t bytes = 0;
  RunningChecksum sum;
  addFile(path, bytes, sum, /*blocks=*/64);
  return fmt::format("{} bytes {}", bytes, sum.text());
}

std::string indexDigest(const std::string &path) {
  std::string index = prefixOf(path) + ".idx";
  if (path == "mock" || !isRegularFile(index))
    return "";
  MappedFile file(index);
  return file.bytes().size() <= wholeBytes ? "" : checksumText(std::as_bytes(file.bytes()));
}

std::string sampleDigest(const Dataset &data) {
  constexpr int64_t most = 64;
  std::vector<int32_t> numbers(data.seqLength() + 1);
  RunningChecksum sum;
  int64_t all = data.sampleCount(), count = std::min(all, most);
  for (int64_t i = 0; i < count; ++i) {
    int64_t sample = count == all ? i : (all - 1) * i / (count - 1);
    data.readTokens(sample, numbers);
    sum.add(std::as_bytes(std::span(numbers)));
    if (data.readLossMask(sample, numbers))
      sum.add(std::as_bytes(std::span(numbers)));
  }
  return fmt::format("{} samples {}", all, sum.text());
}

} // namespace espalier::rt
