// What `generate` and `serve` have in common on the command line.
#pragma once

#include "runtime/checkpoint/start.h"
#include "runtime/data/tokenizer.h"
#include "runtime/generate/decode.h"
#include "tools/choose_comm.h"

#include "compiler/command_line.h"
#include <filesystem>
#include <memory>
#include <string>

namespace espalier {

struct ModelWords {
  std::string plan, device;
  std::filesystem::path checkpoint;
  CommWords comm;
  rt::RunOptions run; ///< threads, and what is said of failures
  rt::TokenizerOptions tokenizer;
  Option tokenizerGiven;
};

/// The plan, --checkpoint, --device, --threads and the tokenizer's options.
void addModelOptions(const Verb &command, ModelWords &words);

/// A plan for generation with what it needs to begin.
struct Model {
  std::unique_ptr<rt::Program> program;
  std::unique_ptr<rt::StartingWeights> weights;
  std::unique_ptr<rt::Tokenizer> tokenizer; ///< null where none was asked for
  rt::RunOptions run;                       ///< how its ranks talk, and their threads
};

/// Throws as the runtime does: PlanError for a plan that trains.
Model openModel(const ModelWords &words);

} // namespace espalier
