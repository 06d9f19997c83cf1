#include "tools/run/model_arguments.h"

#include "format/path_kind.h"
#include "runtime/status.h"
#include "tools/data/data_command.h"
#include "tools/run/choose_device.h"
#include "tools/run/folder_model.h"
#include "tools/run/signed_plan.h"

#include <fmt/format.h>
#include <limits>

namespace espalier {

void addModelOptions(const Verb &command, ModelArguments &arguments) {
  command
      .option("plan", arguments.plan,
              "the .plan file, compiled with --set run_mode=predict; or weights: a checkpoint, a folder of "
              "transformers, models--ORG--NAME of the hub's cache, or a .gguf file")
      .required();
  addSignerOption(command, arguments.requiresSigner);
  command.option("--checkpoint", arguments.checkpoint,
                 "a checkpoint, the folder of a run (its newest one), or a folder of transformers or Megatron; "
                 "default: the plan's load_checkpoint");
  addFolderOptions(command, arguments);
}

void addFolderOptions(const Verb &command, ModelArguments &arguments) {
  command.option("--context", arguments.context, "of a folder: tokens of a text; default: the model's, at most 4096")
      .range(2, 1 << 30);
  command
      .option("--device", arguments.device,
              "cpu, cuda or emulated; default: what the plan is compiled for, of a folder cuda if there is a GPU")
      .oneOf({"cpu", "cuda", "emulated"});
  command.option("--threads", arguments.run.threads, "threads per rank; default: cores / ranks").range(1, 1024);
  command.choice(
      "--weights", arguments.weights, {{"stored", rt::Weights::AsStored}, {"q8_0", rt::Weights::Q8}},
      "of matrix products, on CPUs: q8_0 keeps 8 bits of each and a scale per 32, which takes less memory and "
      "time; stored (default): the type of the plan");
  command.flag("--allow-nan", arguments.allowsNan, "load weights that are NaN or infinite, too");
  addTokenizerOptions(command, arguments.tokenizer);
  arguments.tokenizerGiven = command.find("--tokenizer");
}

std::vector<Option> addSamplingOptions(const Verb &command, rt::Sampling &sampling) {
  std::string most = sampling.topP < 1 ? fmt::format("default {}: ", sampling.topP) : "";
  std::vector<Option> ofDraws = {
      command.option("--top-k", sampling.topK, "draw from so many best tokens; default: all").range(0, 1 << 30),
      command.option("--top-p", sampling.topP, most + "draw from the best tokens with this probability together")
          .range(1e-9, 1.0),
      command
          .option("--min-p", sampling.minP, "draw from tokens with at least this share of the best token's probability")
          .range(0.0, 1.0),
      command.option("--seed", sampling.seed, "of the draws; equal seeds give equal text")
          .range(0, std::numeric_limits<int64_t>::max())};
  command
      .option("--repetition-penalty", sampling.repetitionPenalty,
              "divides positive logits of tokens of the prompt and the text, and multiplies negative ones; default 1")
      .range(1e-9, 1e6);
  command.option("--presence-penalty", sampling.presencePenalty, "is subtracted from the logits of tokens of the text")
      .range(-2.0, 2.0);
  command
      .option("--frequency-penalty", sampling.frequencyPenalty,
              "is subtracted from the logit of a token for each time that the text has it")
      .range(-2.0, 2.0);
  return ofDraws;
}

bool isFolderOrGguf(const std::string &path) {
  return std::filesystem::is_directory(path) || rt::pathKind(path) == rt::PathKind::Gguf;
}

namespace {

/// Replaces a folder or a GGUF file by its plan, its weights and its tokenizer.
void chooseFolder(ModelArguments &arguments) {
  arguments.hasTokenizer = arguments.tokenizerGiven.count() > 0;
  if (!isFolderOrGguf(arguments.plan)) {
    if (arguments.context)
      throw rt::PlanError(fmt::format(
          "--context is of a folder or a .gguf file, and {} is neither; the sequence length of a plan's run "
          "file is its context",
          arguments.plan));
    return;
  }
  if (!arguments.checkpoint.empty())
    throw rt::PlanError(fmt::format("{}: has weights of its own; leave --checkpoint out", arguments.plan));
  FolderModel found = folderModel(arguments.plan, {arguments.device, arguments.texts, arguments.context});
  arguments.folder = found.side;
  arguments.checkpoint = found.weights;
  arguments.plan = found.plan;
  if (!arguments.hasTokenizer && found.tokenizer) {
    arguments.tokenizer = *found.tokenizer;
    arguments.hasTokenizer = true;
  }
}

} // namespace

Model openModel(ModelArguments &arguments) {
  chooseFolder(arguments);
  Model model;
  if (rt::pathKind(arguments.plan) == rt::PathKind::RunFile)
    throw rt::PlanError(
        fmt::format("{0}: is a run file: `espalier compile {0} -o {1}.plan --set run_mode=predict` makes "
                    "the plan that generates text",
                    arguments.plan, std::filesystem::path(arguments.plan).stem().string()));
  rt::OwnedPlan read = rt::readSignedPlan(arguments.plan, arguments.requiresSigner);
  rt::pb::Plan &plan = read.plan;
  if (std::string reason = rt::whyNotGenerating(plan); !reason.empty())
    throw rt::PlanError(fmt::format("{}: {}", arguments.plan, reason));
  std::filesystem::path weights =
      arguments.checkpoint.empty() ? std::filesystem::path(plan.settings().load_checkpoint()) : arguments.checkpoint;
  if (weights.empty())
    throw rt::PlanError(fmt::format(
        "{}: names no weights; give --checkpoint FOLDER, or load_checkpoint in the run file", arguments.plan));
  chooseDevice(arguments.device, plan, arguments.plan);
  if (arguments.hasTokenizer)
    model.tokenizer = rt::openTokenizer(arguments.tokenizer);
  model.run = arguments.run;
  chooseComm(arguments.comm, plan, arguments.plan, model.run);
  if (model.run.log)
    printNote(read);
  bool isApart = model.run.comm == rt::Comm::shm && model.run.topology->isProcessPerRank();
  if (isApart || model.run.comm == rt::Comm::hosts)
    throw rt::PlanError(
        fmt::format("{}: ranks of a plan for generation are threads, processes of one host by --processes, or on CPUs "
                    "those of mpirun; what this launcher starts is none of these",
                    arguments.plan));
  model.run.threads = rt::threadsPerRank(arguments.run.threads, model.run.hostRanks(rt::Mesh(plan.mesh()).ranks()));
  model.program = std::make_unique<rt::Program>(std::move(plan), model.run.threads, arguments.weights);
  model.weights = std::make_unique<rt::StartingWeights>(
      *model.program, weights, arguments.allowsNan ? rt::NonFinite::Accepted : rt::NonFinite::Refused);
  return model;
}

} // namespace espalier
