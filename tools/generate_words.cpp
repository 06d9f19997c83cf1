#include "tools/generate_words.h"

#include "format/path_kind.h"
#include "runtime/status.h"
#include "tools/choose_device.h"
#include "tools/data_command.h"

#include <fmt/format.h>

namespace espalier {

void addModelOptions(const Verb &command, ModelWords &words) {
  command.option("plan", words.plan, "the .plan file, compiled with --set run_mode=predict").required();
  command.option("--checkpoint", words.checkpoint,
                 "a checkpoint, the folder of a run (its newest one), or a folder of transformers or Megatron; "
                 "default: the plan's load_checkpoint");
  command.option("--device", words.device, "cpu, cuda or emulated; default: what the plan is compiled for")
      .oneOf({"cpu", "cuda", "emulated"});
  command.option("--threads", words.run.threads, "threads per rank; default: cores / ranks").range(1, 1024);
  command.flag("--allow-nan", words.allowsNan, "load weights that are NaN or infinite, too");
  addTokenizerOptions(command, words.tokenizer);
  words.tokenizerGiven = command.find("--tokenizer");
}

Model openModel(const ModelWords &words) {
  Model model;
  if (rt::pathKind(words.plan) == rt::PathKind::RunFile)
    throw rt::PlanError(
        fmt::format("{0}: is a run file: `espalier compile {0} -o {1}.plan --set run_mode=predict` makes "
                    "the plan that generates text",
                    words.plan, std::filesystem::path(words.plan).stem().string()));
  rt::pb::Plan plan = rt::readPlan(words.plan);
  if (std::string reason = rt::whyNotGenerating(plan); !reason.empty())
    throw rt::PlanError(fmt::format("{}: {}", words.plan, reason));
  std::filesystem::path weights =
      words.checkpoint.empty() ? std::filesystem::path(plan.settings().load_checkpoint()) : words.checkpoint;
  if (weights.empty())
    throw rt::PlanError(
        fmt::format("{}: names no weights; give --checkpoint FOLDER, or load_checkpoint in the run file", words.plan));
  chooseDevice(words.device, plan, words.plan);
  if (words.tokenizerGiven.count() > 0)
    model.tokenizer = rt::openTokenizer(words.tokenizer);
  model.run = words.run;
  chooseComm(words.comm, plan, words.plan, model.run);
  bool isApart = model.run.comm == rt::Comm::shm && model.run.topology->isProcessPerRank();
  if (isApart || model.run.comm == rt::Comm::hosts)
    throw rt::PlanError(
        fmt::format("{}: ranks of a plan for generation are threads, processes of one host by --processes, or on CPUs "
                    "those of mpirun; what this launcher starts is none of these",
                    words.plan));
  model.run.threads = rt::threadsPerRank(words.run.threads, model.run.hostRanks(rt::Mesh(plan.mesh()).ranks()));
  model.program = std::make_unique<rt::Program>(std::move(plan), model.run.threads);
  model.weights = std::make_unique<rt::StartingWeights>(
      *model.program, weights, words.allowsNan ? rt::NonFinite::Accepted : rt::NonFinite::Refused);
  return model;
}

} // namespace espalier
