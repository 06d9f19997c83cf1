// `espalier verify`: checks every byte of a plan, a checkpoint or a dataset.
#include "tools/commands.h"
#include "tools/data/data_command.h"

#include "format/plan_file.h"
#include "messages/error_line.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"

#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

struct VerifyArguments {
  std::string path, reseal;
  bool isJson = false;
};

/// Returns the errors of a readable file. Throws PlanError if the file cannot be read.
std::vector<std::string> errorsOf(const std::string &path) {
  if (isIndexedDataset(path))
    return datasetFaults(path);
  if (!std::filesystem::is_directory(path))
    return rt::verifyPlan(rt::readPlan(path));
  std::filesystem::path checkpoint = rt::checkpointAt(path);
  return rt::shardFaults(checkpoint, rt::readManifest(checkpoint), rt::Depth::EveryByte);
}

ExitCode verifyPath(const VerifyArguments &arguments) {
  if (!arguments.reseal.empty()) {
    rt::writeWhole(arguments.reseal, rt::resealed(rt::readPlanBytes(arguments.path)));
    return Success;
  }
  std::vector<std::string> errors;
  try {
    errors = errorsOf(arguments.path);
  } catch (const rt::PlanError &error) {
    if (!arguments.isJson)
      throw;
    errors = {error.what()};
  }
  if (arguments.isJson)
    fmt::print("{}\n", nlohmann::ordered_json({{"schema", 1}, {"ok", errors.empty()}, {"errors", errors}}).dump(2));
  else if (errors.empty())
    fmt::print("{}: holds\n", arguments.path);
  else
    for (const std::string &error : errors)
      printError(arguments.path, error);
  return errors.empty() ? Success : UserError;
}

} // namespace

void addVerifyCommand(const Verb &app) {
  Verb verify = app.verb("verify", "Check every byte of a plan, a checkpoint or a dataset");
  auto arguments = std::make_shared<VerifyArguments>();
  verify
      .option("path", arguments->path,
              "a .plan file, a folder of checkpoints or one of them, or PREFIX of PREFIX.bin and .idx")
      .required();
  Option json = verify.flag("--json", arguments->isJson, "print JSON: ok, errors");
  verify
      .option("--reseal", arguments->reseal,
              "write the plan here with a valid checksum, even if it is wrong: for tests of the verifier")
      .excludes(json);
  verify.action([arguments] { return verifyPath(*arguments); });
}

} // namespace espalier
