// Imports any bytes as a run file. The import may refuse them but must not fail in another way. Covers the YAML layer,
// the key checker, sizes, clusters, pins and both forms of explain. Seeds: configs/*.yaml.
#include "compiler/import/run/explain.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  espalier::ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  espalier::ImportedRun run = espalier::importRun(file.path(), options);
  run.diagnostics.render();
  espalier::explainRun(run);
  espalier::explainRunJson(run);
  return 0;
}
