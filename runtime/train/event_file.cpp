// The two messages are small, so they are encoded here and no schema of TensorFlow is needed:
//   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//   Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }
#include "runtime/train/event_file.h"

#include "messages/write_fault.h"
#include "runtime/status.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

enum WireType { varint = 0, fixed64 = 1, lengthDelimited = 2, fixed32 = 5 };

static_assert(std::endian::native == std::endian::little);

template <typename T> std::string bytesOf(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varintOf(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7)
    bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string tag(int field, WireType type) { return varintOf(static_cast<uint64_t>(field) << 3 | type); }

std::string textField(int field, const std::string &text) {
  return tag(field, lengthDelimited) + varintOf(text.size()) + text;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

uint32_t maskedCrc(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8;
}

} // namespace

uint32_t crc32c(std::string_view bytes) {
  constexpr uint32_t polynomial = 0x82f63b78; // reversed
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = value >> 1 ^ (value & 1 ? polynomial : 0);
      entries[i] = value;
    }
    return entries;
  }();
  uint32_t crc = ~0U;
  for (char c : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(c)) & 255];
  return ~crc;
}

std::string tfRecord(std::string_view data) {
  std::string length = bytesOf<uint64_t>(data.size());
  return length + bytesOf(maskedCrc(length)) + std::string(data) + bytesOf(maskedCrc(data));
}

std::string scalarEvent(double wallTime, int64_t step, const std::vector<std::pair<std::string, double>> &scalars) {
  std::string summary;
  for (const auto &[name, value] : scalars)
    if (std::isfinite(value))
      summary += textField(1, textField(1, name) + tag(2, fixed32) + bytesOf(static_cast<float>(value)));
  return tag(1, fixed64) + bytesOf(wallTime) + tag(2, varint) + varintOf(static_cast<uint64_t>(step)) +
         textField(5, summary);
}

void EventFile::open(const std::filesystem::path &folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  errno = error.value();
  double time = now();
  path = folder / fmt::format("events.out.tfevents.{:.0f}.espalier.{}", time, getpid());
  stream.open(path, std::ios::binary | std::ios::app);
  stream << tfRecord(tag(1, fixed64) + bytesOf(time) + textField(3, "brain.Event:2")) << std::flush;
  if (!stream)
    throw PlanError(fmt::format("--tensorboard {}: cannot be written: {}; name a folder that can", folder.string(),
                                whyNotWritten(path, errno)));
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>> &scalars) {
  if (!stream.is_open())
    return;
  stream << tfRecord(scalarEvent(now(), step, scalars)) << std::flush;
  if (stream)
    return;
  fmt::print(stderr, "{}: cannot be written: {}; the run goes on without it\n", path.string(),
             whyNotWritten(path, errno));
  stream.close();
}

} // namespace espalier::rt
