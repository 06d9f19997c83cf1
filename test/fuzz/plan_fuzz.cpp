// Reads and verifies any bytes as a plan, unchanged and with a valid checksum. A valid plan is loaded as a program.
// Seeds: compiled plans. test/runtime/mutate_plan_test.cpp changes fields of a valid plan.
#include "format/plan_file.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "test/fuzz/memory_file.h"

namespace {

void readAndVerify(const std::string &bytes) {
  espalier::fuzz::MemoryFile file(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  try {
    espalier::rt::verifyPlan(espalier::rt::readPlan(file.path()));
  } catch (const espalier::rt::PlanError &) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bytes(reinterpret_cast<const char *>(data), size);
  readAndVerify(bytes);
  readAndVerify(espalier::rt::resealed(bytes));
  return 0;
}
