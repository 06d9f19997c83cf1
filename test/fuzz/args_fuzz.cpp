// Parses any bytes as a Megatron script. The parser may refuse them but must not fail in another way. Seeds:
// test/compiler/import and test/e2e/inputs.
#include "compiler/import/megatron/import_args.h"

#include <cstdint>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  espalier::ArgsOptions options;
  options.cluster = "a100_80g_selene:2x8";
  espalier::importArgs("script.sh", text, options).diagnostics.render();
  return 0;
}
