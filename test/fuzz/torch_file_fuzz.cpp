// Reads any bytes as a torch.save file: the zip file, the pickle, and every listed tensor. Seeds:
// test/fuzz/seeds/torch_file.
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/status.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  try {
    auto source = espalier::rt::openTorchFile(file.path());
    for (const auto &[name, tensor] : source->tensors())
      if (source->read(name).size() != tensor.bytes || tensor.bytes > size)
        std::abort();
  } catch (const espalier::rt::PlanError &) {
  }
  return 0;
}
