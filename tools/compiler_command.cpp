// The subcommands of the compiler. The compiler is a library with MLIR and LLVM, which is loaded from this program's
// folder or from ../lib.
#include "tools/commands.h"

#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "tools/device_kernels.h"
#include "tools/rank_table_words.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>

namespace espalier {
namespace {

constexpr const char *libraryName = "libespalier_compiler.so";

using CompilerMain = int (*)(int argc, char **argv, const OpenKernelRunner &openKernelRunner);

/// Loads the library and returns its entry function. Never unloads it, because LLVM does not support that.
CompilerMain loadCompiler() {
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path &folder : {here.parent_path() / "lib", here}) {
    std::filesystem::path file = folder / libraryName;
    if (!std::filesystem::exists(file))
      continue;
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw rt::PlanError(fmt::format("the compiler cannot be loaded: {}", dlerror()));
    if (void *entry = dlsym(library, "espalierCompilerMain"))
      return reinterpret_cast<CompilerMain>(entry);
    throw rt::PlanError(fmt::format("{} has no entry", file.string()));
  }
  throw rt::PlanError(fmt::format("the compiler ({}) is not installed beside this command or in "
                                  "../lib; build it with ./dev build",
                                  libraryName));
}

/// Returns the file after -o or --output, or an empty string.
std::string outputOf(int argc, char **argv) {
  std::string output;
  for (int i = 2; i < argc; ++i) {
    std::string_view word = argv[i];
    if ((word == "-o" || word == "--output") && i + 1 < argc)
      output = argv[++i];
    else if (word.starts_with("--output="))
      output = word.substr(9);
    else if (word.starts_with("-o") && word.size() > 2)
      output = word.substr(2);
  }
  return output;
}

/// Verifies the written plan. An invalid plan is a bug of the compiler: removes the file and prints every error.
int verifyWritten(const std::string &file) {
  if (file.empty() || !std::filesystem::exists(file))
    return Success;
  std::vector<std::string> errors = rt::verifyPlan(rt::readPlan(file));
  if (errors.empty())
    return Success;
  std::filesystem::remove(file);
  for (const std::string &error : errors)
    fmt::print(stderr, "espalier: the compiled plan does not hold, please report it: {}\n", error);
  return Failed;
}

} // namespace

void addCompilerCommands(const Verb &app, int argc, char **argv) {
  for (auto [verb, text] : {std::pair("plan", "Find the best plans for a run file"),
                            {"compile", "Compile a run file into a .plan file"},
                            {"import-args", "Turn a Megatron-LM command line into a run file"},
                            {"explain", "Say where a run file's values came from and what they do"}}) {
    Verb command = app.verb(verb, text);
    command.passWordsThrough(); // the compiler parses its options itself, including --help
    command.action([argc, argv, isCompile = std::string_view(verb) == "compile"] {
      std::vector<std::string> words = resolveRankTable({argv, argv + argc});
      std::vector<char *> pointers;
      for (std::string &word : words)
        pointers.push_back(word.data());
      pointers.push_back(nullptr);
      int exitCode = loadCompiler()(static_cast<int>(words.size()), pointers.data(), openDeviceKernels);
      if (exitCode == Success && isCompile)
        exitCode = verifyWritten(outputOf(argc, argv));
      return exitCode;
    });
  }
}

} // namespace espalier
