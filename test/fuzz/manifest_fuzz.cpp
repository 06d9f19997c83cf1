// Parses any bytes as the manifest of a checkpoint, unchanged and with a valid checksum. Seeds:
// test/fuzz/seeds/manifest.
#include "format/checksum.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/status.h"

#include <string>

namespace {

void parse(const std::string &text) {
  try {
    espalier::rt::manifestText(espalier::rt::parseManifest(text, "manifest"));
  } catch (const espalier::rt::PlanError &) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  parse(text);
  std::string rest = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  parse(fmt::format("{{\"checksum\": \"{}\",\n", espalier::rt::checksumText(std::as_bytes(std::span(rest)))) + rest);
  return 0;
}
