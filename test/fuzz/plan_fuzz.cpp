// Any bytes as a plan: they are read and verified; what holds would be run as a program. Seeds: compiled plans. Fields
// of a good plan are broken by test/runtime/mutate_plan_test.cpp.
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "test/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::fuzz::MemoryFile file(data, size);
  try {
    espalier::rt::verifyPlan(espalier::rt::readPlan(file.path()));
  } catch (const espalier::rt::PlanError &) {
  }
  return 0;
}
