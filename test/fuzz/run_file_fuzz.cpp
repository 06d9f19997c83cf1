// Any bytes as a run file: the import may refuse them, and must do nothing worse. Covers the YAML
// layer, the key checker, sizes, clusters, pins and both forms of explain. Seeds: configs/*.yaml.
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
