// Parses any bytes as a model file and uses its default sizes. Seeds: configs/models.
#include "compiler/import/model/architecture.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  espalier::Diagnostics diagnostics;
  if (std::optional<espalier::Architecture> architecture = espalier::loadArchitecture(file.path(), diagnostics)) {
    espalier::SizeTable sizes = espalier::resolveSizes(*architecture, nullptr, diagnostics);
    espalier::ModelDescription model = espalier::describeModel(*architecture, sizes, diagnostics);
    if (!diagnostics.hasErrors())
      model.parameterCount();
  }
  diagnostics.render();
  return 0;
}
