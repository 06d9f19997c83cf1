// The entry of the library with the verbs that need the compiler. The command loads this library only for these verbs,
// so that `run` starts without an LLVM installation.
#include "tools/plan/verbs.h"

#include "compiler/codegen/target.h"
#include "messages/error_line.h"
#include "tools/command_line/exit_code.h"

#include <fmt/ranges.h>

namespace espalier {

void addRunFile(const Verb &verb, std::string &file, ImportOptions &import) {
  verb.option("RUN", file, "run file (YAML)").required();
  verb.option(
      "--cluster", import.cluster,
      "cluster NAME, NAME:HOSTSxDEVICES or FILE instead of the file's; NAME --rank-table T.json takes hosts and "
      "devices from a rank table; plan compares both");
  verb.option("--set", import.sets, "section.key=value over the file's value; may be repeated");
}

void addTarget(const Verb &verb, std::string &target) {
  verb.option("--target", target, "what to compile for: cpu (default) or cuda");
}

bool isTarget(const std::string &target, const std::string &file) {
  if (codegen::findTarget(target))
    return true;
  std::vector<std::string> known;
  for (const codegen::Target *one : codegen::targets())
    known.push_back(one->name().str());
  printError(file,
             fmt::format("target '{}' is not known; this build compiles for {}", target, fmt::join(known, " and ")));
  return false;
}

} // namespace espalier

/// The function that the command looks up in this library; see CompilerEntry.
extern "C" int espalierCompilerMain(int argc, char **argv, const espalier::CompilerServices &services) {
  using namespace espalier;
  for (int i = 1; i < argc; ++i)
    if (!*argv[i]) { // options would treat an empty argument as not given
      printError("espalier", fmt::format("an empty argument behind '{}'; is a variable not set?", argv[i - 1]));
      return UserError;
    }
  CommandLine app("espalier", "the compiler's verbs");
  app.requireVerb();
  addCompileVerb(app, services);
  addExplainVerb(app);
  addPlanVerb(app);
  addImportArgsVerb(app);
  Verb bench = app.verb("bench", "compare predictions with measurements");
  bench.requireVerb();
  addBenchPlansVerb(bench);
  return app.parse(argc, argv);
}
