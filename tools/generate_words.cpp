#include "tools/generate_words.h"

#include "runtime/status.h"
#include "tools/choose_device.h"
#include "tools/data_command.h"

#include <fmt/format.h>

namespace espalier {

void addModelOptions(CLI::App &command, ModelWords &words) {
  command.add_option("plan", words.plan, "the .plan file, compiled with --set run_mode=predict")->required();
  command.add_option("--checkpoint", words.checkpoint, "a checkpoint, or the folder of a run: its newest one")
      ->required();
  command.add_option("--device", words.device, "cpu, cuda or emulated; default: what the plan is compiled for")
      ->check(CLI::IsMember({"cpu", "cuda", "emulated"}));
  command.add_option("--threads", words.threads, "threads per rank; default: cores / ranks")
      ->check(CLI::Range(1, 1024));
  addTokenizerOptions(command, words.tokenizer);
  words.tokenizerGiven = command.get_option("--tokenizer");
}

Model openModel(const ModelWords &words) {
  Model model;
  rt::pb::Plan plan = rt::readPlan(words.plan);
  if (std::string reason = rt::whyNotGenerating(plan); !reason.empty())
    throw rt::PlanError(fmt::format("{}: {}", words.plan, reason));
  chooseDevice(words.device, plan, words.plan);
  if (words.tokenizerGiven->count() > 0)
    model.tokenizer = rt::openTokenizer(words.tokenizer);
  int threads = rt::threadsPerRank(words.threads, rt::Mesh(plan.mesh()).ranks());
  model.program = std::make_unique<rt::Program>(std::move(plan), threads);
  model.decoder = std::make_unique<rt::Decoder>(*model.program, words.checkpoint, threads);
  return model;
}

} // namespace espalier
