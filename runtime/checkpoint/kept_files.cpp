#include "runtime/checkpoint/kept_files.h"

#include "format/checksum.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/files/atomic_file.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr const char *weightsKey = "load_checkpoint";
constexpr uint64_t mostRunBytes = uint64_t(1) << 24;

/// Returns where the line of load_checkpoint begins in a run file in block style, or npos.
size_t weightsLine(const std::string &text) {
  std::string key = fmt::format("{}:", weightsKey);
  size_t at = text.starts_with(key) ? 0 : text.find("\n" + key);
  return at == std::string::npos || at == 0 ? at : at + 1;
}

std::string withWeights(std::string text, const std::string &value) {
  std::string line = fmt::format("{}: '{}'\n", weightsKey, value);
  size_t at = weightsLine(text);
  return at == std::string::npos ? text + line : text.replace(at, text.find('\n', at) + 1 - at, line);
}

std::string quotesDoubled(const std::string &text) {
  std::string doubled;
  for (char c : text)
    doubled += c == '\'' ? "''" : std::string(1, c);
  return doubled;
}

} // namespace

std::vector<SideFile> keptTexts(const std::string &run, const std::string &modelFile, const std::string &model,
                                const std::filesystem::path &weights) {
  if (run.empty() || model.empty())
    return {};
  std::string path = weights.empty() ? "" : quotesDoubled(std::filesystem::absolute(weights).lexically_normal());
  return {{keptRunName, path.empty() ? run : withWeights(run, path)},
          {"models/" + std::filesystem::path(modelFile).filename().string(), model}};
}

std::filesystem::path keptWeights(const std::filesystem::path &checkpoint) {
  std::filesystem::path file = checkpoint / keptRunName;
  if (!std::filesystem::exists(file))
    return {};
  std::string text = readText(file, mostRunBytes);
  size_t line = weightsLine(text);
  if (line == std::string::npos)
    return {};
  size_t begin = text.find(": ", line) + 2;
  std::string value = text.substr(begin, text.find('\n', begin) - begin), plain;
  bool isQuoted = value.size() > 1 && value.front() == '\'';
  if (!isQuoted)
    return value == "null" || value == "\"\"" ? "" : value;
  for (size_t i = 1; i + 1 < value.size(); ++i) {
    plain += value[i];
    i += value[i] == '\'' ? 1 : 0; // a quote is doubled
  }
  return plain;
}

std::filesystem::path sideFolderOf(const std::filesystem::path &weights) {
  std::string newest = latestCheckpoint(weights);
  return newest.empty() ? weights : std::filesystem::path(newest);
}

void writeKept(const std::filesystem::path &checkpoint, const std::vector<SideFile> &files) {
  for (const SideFile &file : files) {
    std::filesystem::path path = checkpoint / file.name;
    if (std::filesystem::exists(path))
      continue; // a draft has written it
    std::filesystem::create_directories(path.parent_path());
    writeWhole(path, file.bytes);
    syncFolder(path.parent_path());
  }
}

std::vector<KeptFile> keptEntries(const std::vector<SideFile> &files) {
  std::vector<KeptFile> entries;
  for (const SideFile &file : files)
    entries.push_back({file.name, file.bytes.size(), checksumText(std::as_bytes(std::span(file.bytes)))});
  return entries;
}

} // namespace espalier::rt
