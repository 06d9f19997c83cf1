// The verbs that need the compiler are in a library with MLIR and LLVM, which is loaded from ../lib or from this
// program's folder.
#include "tools/commands.h"

#include "runtime/plan_signature.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "tools/machine/device_kernels.h"
#include "tools/machine/rank_table_words.h"
#include "tools/plan/entry.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>

namespace espalier {
namespace {

/// Loads the library and returns its entry function. Never unloads it, because LLVM does not support that.
CompilerEntry loadEntry() {
  constexpr const char *libraryName = "libespalier_verbs.so";
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path &folder : {here.parent_path() / "lib", here}) {
    std::filesystem::path file = folder / libraryName;
    if (!std::filesystem::exists(file))
      continue;
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw rt::PlanError(fmt::format("{} cannot be loaded: {}", file.string(), dlerror()));
    if (void *entry = dlsym(library, compilerEntryName))
      return reinterpret_cast<CompilerEntry>(entry);
    throw rt::PlanError(fmt::format("{} has no entry", file.string()));
  }
  throw rt::PlanError(fmt::format("{} is not installed beside this command or in ../lib; "
                                  "build it with ./dev build",
                                  libraryName));
}

} // namespace

void addCompilerCommands(const Verb &app, int argc, char **argv) {
  for (auto [verb, text] : {std::pair("plan", "Find the best plans for a run file"),
                            {"compile", "Compile a run file into a .plan file"},
                            {"import-args", "Turn a Megatron-LM command line into a run file"},
                            {"explain", "Say where a run file's values came from and what they do"}}) {
    Verb command = app.verb(verb, text);
    command.passWordsThrough(); // the compiler parses its options itself, including --help
    command.action([argc, argv] { return runCompilerVerb(argc, argv); });
  }
}

int runCompilerVerb(int argc, char **argv) {
  std::vector<std::string> words = resolveRankTable({argv, argv + argc});
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  CompilerServices services{openDeviceKernels, rt::verifyPlan, rt::signPlan};
  return loadEntry()(static_cast<int>(words.size()), pointers.data(), services);
}

} // namespace espalier
