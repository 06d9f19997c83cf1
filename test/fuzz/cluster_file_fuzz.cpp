// Parses any bytes as the file of --cluster. Seeds: configs/clusters.
#include "compiler/import/run/import_run.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  espalier::ImportOptions options;
  options.cluster = file.path();
  espalier::importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options).diagnostics.render();
  return 0;
}
