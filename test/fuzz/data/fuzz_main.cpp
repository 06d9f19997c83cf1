// The entry point of each fuzz program. ESPALIER_FUZZ_TARGET is the target.
#include "test/fuzz/data/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return espalier::rt::fuzz::ESPALIER_FUZZ_TARGET(data, size);
}
