// Options shared by `generate` and `serve`.
#pragma once

#include "runtime/checkpoint/start.h"
#include "runtime/generate/decode.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tools/choose_comm.h"

#include "compiler/command_line.h"
#include <filesystem>
#include <memory>
#include <string>

namespace espalier {

/// The options that select and configure a model.
struct ModelWords {
  std::string plan, device;
  std::filesystem::path checkpoint;
  CommWords comm;
  bool allowsNan = false;
  rt::RunOptions run; ///< threads and failure options
  rt::TokenizerOptions tokenizer;
  Option tokenizerGiven;
};

/// Adds the plan argument, --checkpoint, --device, --threads and the tokenizer options.
void addModelOptions(const Verb &command, ModelWords &words);

/// A plan for generation, and the state that generation needs.
struct Model {
  std::unique_ptr<rt::Program> program;
  std::unique_ptr<rt::StartingWeights> weights;
  std::unique_ptr<rt::Tokenizer> tokenizer; ///< null if not requested
  rt::RunOptions run;                       ///< communicator and threads of its ranks
};

/// Opens the plan and loads its weights. Throws PlanError for a training plan, and the runtime's other exceptions.
Model openModel(const ModelWords &words);

} // namespace espalier
