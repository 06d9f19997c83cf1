#include "tools/run/generate_words.h"

#include "format/path_kind.h"
#include "runtime/status.h"
#include "tools/data/data_command.h"
#include "tools/run/choose_device.h"
#include "tools/run/folder_model.h"

#include <fmt/format.h>

namespace espalier {

void addModelOptions(const Verb &command, ModelWords &words) {
  command
      .option("plan", words.plan,
              "the .plan file, compiled with --set run_mode=predict; or a folder: a checkpoint, a folder of "
              "transformers, or models--ORG--NAME of the hub's cache")
      .required();
  command.option("--checkpoint", words.checkpoint,
                 "a checkpoint, the folder of a run (its newest one), or a folder of transformers or Megatron; "
                 "default: the plan's load_checkpoint");
  addFolderOptions(command, words);
}

void addFolderOptions(const Verb &command, ModelWords &words) {
  command.option("--context", words.context, "of a folder: tokens of a text; default: the model's, at most 4096")
      .range(2, 1 << 30);
  command
      .option("--device", words.device,
              "cpu, cuda or emulated; default: what the plan is compiled for, of a folder cuda if there is a GPU")
      .oneOf({"cpu", "cuda", "emulated"});
  command.option("--threads", words.run.threads, "threads per rank; default: cores / ranks").range(1, 1024);
  command.flag("--allow-nan", words.allowsNan, "load weights that are NaN or infinite, too");
  addTokenizerOptions(command, words.tokenizer);
  words.tokenizerGiven = command.find("--tokenizer");
}

namespace {

/// Replaces a folder by its plan, its weights and its tokenizer.
void chooseFolder(ModelWords &words) {
  words.hasTokenizer = words.tokenizerGiven.count() > 0;
  if (!std::filesystem::is_directory(words.plan)) {
    if (words.context)
      throw rt::PlanError(fmt::format("--context is of a folder, and {} is none; the sequence length of a plan's run "
                                      "file is its context",
                                      words.plan));
    return;
  }
  if (!words.checkpoint.empty())
    throw rt::PlanError(fmt::format("{}: is a folder with weights of its own; leave --checkpoint out", words.plan));
  FolderModel found = folderModel(words.plan, {words.device, words.texts, words.context});
  words.folder = found.weights;
  words.checkpoint = found.weights;
  words.plan = found.plan;
  if (!words.hasTokenizer && found.tokenizer) {
    words.tokenizer = *found.tokenizer;
    words.hasTokenizer = true;
  }
}

} // namespace

Model openModel(ModelWords &words) {
  chooseFolder(words);
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
  if (words.hasTokenizer)
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
