// Input is untrusted: header length, offsets and sizes are checked against the file size before use.
#include "runtime/checkpoint/safetensors.h"

#include "messages/json_reason.h"
#include "runtime/checkpoint/json_text.h"
#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr uint64_t maxHeaderBytes = uint64_t(64) << 20;

constexpr std::pair<pb::DataType, const char *> typeNames[] = {
    {pb::F32, "F32"}, {pb::BF16, "BF16"}, {pb::F16, "F16"}, {pb::I32, "I32"}};

/// Types of other systems' files that we do not support, with their element size in bytes.
constexpr std::pair<const char *, uint64_t> otherTypes[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                                            {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"U32", 4},
                                                            {"I64", 8},     {"U64", 8}, {"F64", 8}};

[[noreturn]] void refuse(const std::filesystem::path &file, const std::string &reason) {
  throw PlanError(fmt::format("{}: {}", file.string(), reason));
}

/// At most 2^60, so that multiplying by 8 bytes per element does not overflow.
uint64_t elementCount(std::span<const int64_t> shape) { return tensorBytes(shape, pb::F32) / 4; }

TensorEntry readEntry(const std::string &name, const nlohmann::json &json) {
  TensorEntry entry;
  entry.name = name;
  std::string type = json.at("dtype");
  auto other = std::ranges::find(otherTypes, type, [](const auto &known) { return std::string(known.first); });
  entry.shape = wholeNumbers(json.at("shape"));
  uint64_t expected = 0;
  if (other != std::end(otherTypes)) {
    entry.otherType = type;
    expected = elementCount(entry.shape) * other->second;
  } else {
    entry.type = typeOfName(type);
    expected = tensorBytes(entry.shape, entry.type);
  }
  entry.begin = wholeNumber(json.at("data_offsets").at(0));
  uint64_t end = wholeNumber(json.at("data_offsets").at(1));
  entry.bytes = end - entry.begin;
  if (end < entry.begin || entry.bytes != expected)
    throw PlanError(fmt::format("tensor '{}' has another size than its shape", name));
  return entry;
}

} // namespace

const char *safetensorsType(pb::DataType type) {
  for (auto [known, name] : typeNames)
    if (known == type)
      return name;
  return "F32";
}

pb::DataType typeOfName(const std::string &name) {
  for (auto [type, known] : typeNames)
    if (known == name)
      return type;
  throw PlanError(fmt::format("type '{}' is not read; known: F32, BF16, F16, I32", name));
}

uint64_t tensorBytes(std::span<const int64_t> shape, pb::DataType type) {
  uint64_t bytes = elementBytes(type);
  bool isEmpty = std::ranges::count(shape, 0) > 0;
  for (int64_t size : shape)
    if (size < 0 || (!isEmpty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) ||
        bytes >> 62 != 0)
      throw PlanError(fmt::format("a shape with size {} passes what can be held", size));
  return isEmpty ? 0 : bytes;
}

void syncFolder(const std::filesystem::path &folder) {
  int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool isSynced = descriptor >= 0 && fsync(descriptor) == 0;
  int reason = errno;
  if (descriptor >= 0)
    close(descriptor);
  if (!isSynced)
    refuse(folder, fmt::format("cannot be flushed: {}", std::strerror(reason)));
}

std::string safetensorsHeader(std::span<const TensorEntry> tensors,
                              const std::map<std::string, std::string> &metadata) {
  using Json = nlohmann::ordered_json;
  std::string text;
  // The header is built as text, because an insertion into an ordered JSON object takes linear time.
  auto add = [&](const std::string &name, const Json &value) {
    text += (text.empty() ? "{" : ",") + Json(name).dump() + ":" + value.dump();
  };
  if (!metadata.empty())
    add("__metadata__", metadata);
  for (const TensorEntry &tensor : tensors)
    add(tensor.name, {{"dtype", safetensorsType(tensor.type)},
                      {"shape", tensor.shape},
                      {"data_offsets", {tensor.begin, tensor.begin + tensor.bytes}}});
  text += text.empty() ? "{}" : "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte)
    bytes.push_back(static_cast<char>(length >> (8 * byte)));
  return bytes + text;
}

void writeSafetensors(const std::filesystem::path &file, std::span<const TensorBytes> tensors,
                      const std::map<std::string, std::string> &metadata) {
  std::vector<TensorEntry> entries;
  uint64_t begin = 0;
  for (const TensorBytes &tensor : tensors) {
    entries.push_back({tensor.name, tensor.type, tensor.shape, begin, tensor.bytes.size()});
    begin += tensor.bytes.size();
  }
  std::string header = safetensorsHeader(entries, metadata);
  AtomicFile written(file.string());
  written.write(header.data(), header.size());
  for (const TensorBytes &tensor : tensors)
    written.write(tensor.bytes);
  written.commit();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path &file, Links links) : content(file, links) {
  uint64_t length = 0;
  if (content.size() < 8)
    refuse(file, "too short for a tensor file");
  content.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > maxHeaderBytes || length > content.size() - 8)
    refuse(file, fmt::format("a header of {} bytes in a file of {}", length, content.size()));
  header = 8 + length;
  std::string text(length, '\0');
  content.read(8, std::as_writable_bytes(std::span(text)));
  try {
    nlohmann::json json = parseShallow(text);
    for (const auto &[name, entry] : json.items())
      if (name == "__metadata__")
        strings = entry.get<std::map<std::string, std::string>>();
      else
        entries.push_back(readEntry(name, entry));
  } catch (const nlohmann::json::exception &problem) {
    refuse(file, fmt::format("damaged header: {}", jsonReason(problem)));
  } catch (const PlanError &problem) {
    refuse(file, problem.what());
  }
  std::ranges::sort(entries, {}, [](const TensorEntry &entry) {
    return std::tuple(entry.begin, entry.bytes, std::string_view(entry.name));
  });
  requireCover();
}

void SafetensorsFile::requireCover() const {
  uint64_t end = 0;
  for (const TensorEntry &entry : entries) {
    if (entry.begin != end)
      refuse(content.path(), fmt::format("tensor '{}' begins at byte {} and not at {}, where the one before it ends",
                                         entry.name, entry.begin, end));
    end += entry.bytes;
  }
  if (end != content.size() - header)
    refuse(content.path(), fmt::format("{} bytes of tensors, {} are there", end, content.size() - header));
}

std::vector<std::byte> SafetensorsFile::tensor(const std::string &name, uint64_t bytes) const {
  auto entry = std::ranges::find(entries, name, &TensorEntry::name);
  if (entry == entries.end() || entry->bytes != bytes)
    refuse(content.path(),
           fmt::format("needs '{}' with {} bytes, has {}", name, bytes,
                       entry == entries.end() ? std::string("none") : fmt::format("{} bytes", entry->bytes)));
  std::vector<std::byte> values(bytes);
  content.read(header + entry->begin, values);
  return values;
}

} // namespace espalier::rt
