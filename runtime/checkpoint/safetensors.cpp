// Reading trusts nothing: header length, offsets and sizes are bounded by the file before they are
// used.
#include "runtime/checkpoint/safetensors.h"

#include "runtime/status.h"

#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr uint64_t maxHeaderBytes = uint64_t(64) << 20;

const char *typeName(pb::DataType type) {
  switch (type) {
  case pb::BF16:
    return "BF16";
  case pb::F16:
    return "F16";
  case pb::I32:
    return "I32";
  default:
    return "F32";
  }
}

[[noreturn]] void refuse(const std::filesystem::path &file, const std::string &reason) {
  throw PlanError(fmt::format("{}: {}", file.string(), reason));
}

std::span<const std::byte> bytesOf(const std::string &text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

} // namespace

void writeDurably(const std::filesystem::path &file, std::span<const std::span<const std::byte>> parts) {
  int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool isWritten = descriptor >= 0;
  for (std::span<const std::byte> part : parts) {
    while (isWritten && !part.empty()) {
      ssize_t count = write(descriptor, part.data(), part.size());
      if (count < 0 && errno == EINTR)
        continue;
      isWritten = count > 0;
      part = part.subspan(isWritten ? count : 0);
    }
  }
  isWritten = isWritten && fsync(descriptor) == 0;
  int reason = errno;
  if (descriptor >= 0)
    close(descriptor);
  if (!isWritten)
    refuse(file, fmt::format("cannot be written: {}", std::strerror(reason)));
}

void syncFolder(const std::filesystem::path &folder) {
  int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || fsync(descriptor) != 0)
    refuse(folder, fmt::format("cannot be flushed: {}", std::strerror(errno)));
  close(descriptor);
}

void writeSafetensors(const std::filesystem::path &file, std::span<const TensorBytes> tensors,
                      const std::map<std::string, std::string> &metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  std::vector<std::span<const std::byte>> parts(2);
  uint64_t offset = 0;
  for (const TensorBytes &tensor : tensors) {
    header[tensor.name] = {{"dtype", typeName(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
    parts.push_back(tensor.bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  parts[0] = std::as_bytes(std::span(&length, 1));
  parts[1] = bytesOf(text);
  writeDurably(file, parts);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path &file) : file(file) {
  std::error_code error;
  uint64_t size = std::filesystem::file_size(file, error);
  std::ifstream stream(file, std::ios::binary);
  uint64_t length = 0;
  if (error || !stream.read(reinterpret_cast<char *>(&length), 8))
    refuse(file, "missing or too short");
  if (length > maxHeaderBytes || length > size - 8)
    refuse(file, fmt::format("a header of {} bytes in a file of {}", length, size));
  content.resize(size - 8);
  if (!stream.read(reinterpret_cast<char *>(content.data()), content.size()))
    refuse(file, "cannot be read");
  const char *text = reinterpret_cast<const char *>(content.data());
  uint64_t data = content.size() - length;
  try {
    nlohmann::json header = nlohmann::json::parse(text, text + length);
    for (const auto &[name, entry] : header.items()) {
      if (name == "__metadata__") {
        strings = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
      if (begin > end || end > data)
        refuse(file, fmt::format("tensor '{}' lies outside the file", name));
      places[name] = {length + begin, end - begin};
    }
  } catch (const nlohmann::json::exception &problem) {
    refuse(file, fmt::format("damaged header: {}", problem.what()));
  }
}

std::span<const std::byte> SafetensorsFile::tensor(const std::string &name, uint64_t bytes) const {
  auto place = places.find(name);
  if (place == places.end() || place->second.second != bytes)
    refuse(file,
           fmt::format("needs '{}' with {} bytes, has {}", name, bytes,
                       place == places.end() ? std::string("none") : fmt::format("{} bytes", place->second.second)));
  return std::span(content).subspan(place->second.first, bytes);
}

} // namespace espalier::rt
