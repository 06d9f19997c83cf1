// Imports any bytes as a config.json. The import may refuse them, but any run file that it writes must be valid. Seeds:
// test/fuzz/seeds/hf_config.
#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/yaml/yaml.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  espalier::ImportedHf hf = espalier::importHfConfig("config.json", text, {ESPALIER_SOURCE_DIR "/configs"});
  hf.diagnostics.render();
  espalier::Diagnostics diagnostics;
  if (!hf.diagnostics.hasErrors() && !espalier::parseYaml("run.yaml", hf.yaml, diagnostics))
    std::abort();
  return 0;
}
