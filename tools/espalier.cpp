// espalier: plans, compiles, runs and inspects. Starts without LLVM; the compiler is a library of
// its own.
#include "tools/commands.h"
#include "tools/data_command.h"

#include "runtime/data/data_error.h"
#include "runtime/status.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

namespace {

/// The form of every user error that has no place in a file.
int report(const char *message, espalier::ExitCode code) {
  std::fprintf(stderr, "espalier: error: %s\n", message);
  return code;
}

/// True if `inspect` is asked about tokens rather than about a plan: a word is a PREFIX of
/// PREFIX.idx, or such a file.
bool inspectsDataset(int argc, char **argv) {
  for (int i = 2; i < argc; ++i) {
    std::string word = argv[i];
    if (word.ends_with(".idx") || word.ends_with(".bin") || std::filesystem::exists(word + ".idx"))
      return true;
  }
  return false;
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app("A graph compiler and auto-parallel planner for training language models",
               "espalier");
  app.require_subcommand(1);
  int exitCode = espalier::Success;
  espalier::addRunCommand(app, exitCode);
  if (!inspectsDataset(argc, argv))
    espalier::addInspectCommand(app, exitCode);
  espalier::addDataCommands(app);
  espalier::addCalibrateCommand(app, exitCode);
  espalier::addCompilerCommands(app, exitCode, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? espalier::Success : espalier::UserError;
  } catch (const espalier::rt::PlanError &error) {
    return report(error.what(), espalier::UserError);
  } catch (const espalier::rt::DataError &error) {
    return report(error.what(), espalier::UserError);
  } catch (const espalier::rt::RankFailure &error) {
    return report(error.what(), espalier::Failed);
  } catch (const std::exception &error) {
    return report(error.what(), espalier::Failed);
  }
  return exitCode;
}
