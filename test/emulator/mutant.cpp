#include "test/emulator/mutant.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace espalier::emulator {
namespace {

struct Calls {
  std::mutex lock;
  std::map<std::string, uint64_t, std::less<>> byKind;
};

Calls &calls() {
  static auto *all = new Calls; // threads may still call while the process exits
  return *all;
}

} // namespace

bool isMutant(std::string_view kind) {
  std::lock_guard held(calls().lock);
  uint64_t number = ++calls().byKind[std::string(kind)];
  const char *setting = std::getenv("ESPALIER_EMULATOR_MUTANT");
  std::string_view wanted = setting ? setting : "";
  return wanted.size() > kind.size() && wanted.starts_with(kind) && wanted[kind.size()] == ':' &&
         std::strtoull(setting + kind.size() + 1, nullptr, 10) == number;
}

uint64_t mutantCalls(std::string_view kind) {
  std::lock_guard held(calls().lock);
  auto found = calls().byKind.find(kind);
  return found == calls().byKind.end() ? 0 : found->second;
}

} // namespace espalier::emulator
