// espalier: plans, compiles, runs and inspects. Starts without LLVM, because the compiler is a separate library.
#include "tools/checkpoint/convert_command.h"
#include "tools/commands.h"
#include "tools/data/data_command.h"

#include "tools/command_line/command_line.h"

#include "messages/data_error.h"
#include "messages/error_line.h"
#include "runtime/crash_report.h"
#include "runtime/launch/rank_table.h"
#include "runtime/status.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

namespace {

/// Prints a user error without a source location.
int report(const char *message, espalier::ExitCode code) {
  espalier::printError("espalier", message);
  return code;
}

} // namespace

int main(int argc, char **argv) {
  espalier::CommandLine app("espalier", "A graph compiler and auto-parallel planner for training language models");
  app.requireVerb();
  app.version("espalier " ESPALIER_VERSION);
  std::signal(SIGCHLD, SIG_DFL); // children inherit an ignored SIGCHLD, and waitpid would then find no child
  std::signal(SIGXFSZ, SIG_IGN); // exceeding the file size limit (ulimit -f) becomes a write error
  espalier::rt::reportCrashes();
  espalier::addDemoCommand(app);
  espalier::addCompilerCommands(app, argc, argv);
  espalier::addTrainCommand(app);
  espalier::addRunCommand(app);
  espalier::addGenerateCommand(app);
  espalier::addChatCommand(app);
  espalier::addServeCommand(app);
  espalier::addInspectCommand(app);
  espalier::addVerifyCommand(app);
  espalier::addDataCommands(app);
  espalier::addConvertCommand(app);
  espalier::addImportHfCommand(app);
  espalier::addBenchCommand(app, argc, argv);
  espalier::addClusterCommand(app);
  espalier::addLaunchCommand(app);
  espalier::addCalibrateCommand(app);
  espalier::addPreflightCommand(app);
  int exitCode = espalier::Success;
  try {
    exitCode = app.parse(argc, argv);
  } catch (const espalier::rt::ReportedElsewhere &error) {
    return error.status;
  } catch (const espalier::rt::MemoryError &error) {
    return report(error.what(), espalier::DoesNotFit);
  } catch (const espalier::rt::launch::TableError &error) {
    espalier::printErrorText(error.what());
    return espalier::UserError;
  } catch (const espalier::rt::PlanError &error) {
    return report(error.what(), espalier::UserError);
  } catch (const espalier::rt::DataError &error) {
    espalier::printErrorText(error.what());
    return espalier::UserError;
  } catch (const espalier::rt::RankFailure &error) {
    return report(error.what(), espalier::Failed);
  } catch (const std::filesystem::filesystem_error &error) { // for a path from the user
    std::string text = error.path1().string() + ": " + error.code().message();
    return report(text.c_str(), espalier::UserError);
  } catch (const std::bad_alloc &) {
    return report("the system refuses more memory", espalier::Failed);
  } catch (const std::exception &error) {
    return report(error.what(), espalier::Failed);
  }
  // `run` reports write errors itself, and continues if it writes files.
  if (exitCode == espalier::Success && app.chosenVerb() != "run" && std::fflush(stdout) != 0) {
    std::string text = std::string("standard output cannot be written: ") + std::strerror(errno);
    return report(text.c_str(), espalier::Failed);
  }
  return exitCode;
}
