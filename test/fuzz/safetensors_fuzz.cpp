// Parses any bytes as a shard of a checkpoint. Seeds: test/fuzz/seeds/safetensors.
#include "runtime/checkpoint/safetensors.h"
#include "runtime/status.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  try {
    espalier::rt::SafetensorsFile tensors(file.path());
    unsigned char sum = 0;
    for (std::byte value :
         tensors.tensor("a", 8)) // reads every byte, so that a sanitizer detects an offset out of range
      sum ^= static_cast<unsigned char>(value);
    volatile unsigned char kept = sum;
    static_cast<void>(kept);
  } catch (const espalier::rt::PlanError &) {
  }
  return 0;
}
