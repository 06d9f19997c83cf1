// Any bytes as a run file: the import may refuse them, and must do nothing worse. Covers the YAML
// layer, the key checker, sizes, clusters, pins and both forms of explain. Seeds: configs/*.yaml.
#include "compiler/import/explain.h"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // One file per process, so that jobs that run side by side do not mix.
  std::string file = "/tmp/espalier_import_fuzz_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char *>(data), static_cast<std::streamsize>(size));
  espalier::ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  espalier::ImportedRun run = espalier::importRun(file, options);
  run.diagnostics.render();
  espalier::explainRun(run);
  espalier::explainRunJson(run);
  std::remove(file.c_str());
  return 0;
}
