// Parses any lines as options: the first as --pin, the second as --why-not, the others as --set. Seeds:
// test/fuzz/seeds/options.
#include "compiler/import/run/import_run.h"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  espalier::ImportOptions options;
  options.freeAtBatch = 32;
  for (size_t begin = 0, line = 0; begin < text.size() && line < 8; ++line) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    if (line < 2 && !word.empty())
      options.pins.push_back({line == 0 ? "--pin" : "--why-not", word});
    else if (!word.empty())
      options.sets.push_back(word);
    begin = end + 1;
  }
  espalier::importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options).diagnostics.render();
  return 0;
}
