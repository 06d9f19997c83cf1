// Options shared by `generate` and `serve`.
#pragma once

#include "runtime/checkpoint/start.h"
#include "runtime/generate/decode.h"
#include "runtime/generate/request.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tools/run/choose_comm.h"

#include "tools/command_line/command_line.h"
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// The options that select and configure a model.
struct ModelArguments {
  std::string plan; ///< a plan, or weights (folder_model.h), which openModel() replaces by its plan
  std::string device;
  std::filesystem::path checkpoint;
  std::filesystem::path folder; ///< of the tokenizer of weights that are used without a plan, else empty
  std::optional<int64_t> context;
  int64_t texts = 8; ///< at a time, for the plan of a folder
  CommArguments comm;
  bool allowsNan = false, requiresSigner = false;
  rt::Weights weights = rt::Weights::AsStored;
  rt::RunOptions run; ///< threads and failure options
  rt::TokenizerOptions tokenizer;
  Option tokenizerGiven;
  bool hasTokenizer = false; ///< given, or of the folder; set by openModel()
};

/// Adds the plan argument, --checkpoint, --device, --threads, --weights, --context and the tokenizer options.
void addModelOptions(const Verb &command, ModelArguments &arguments);
/// Adds all of them except the plan argument and --checkpoint.
void addFolderOptions(const Verb &command, ModelArguments &arguments);

/// Adds the options of sampling, except the temperature. Returns those that have an effect on draws alone.
std::vector<Option> addSamplingOptions(const Verb &command, rt::Sampling &sampling);

/// A plan for generation, and the state that generation needs.
struct Model {
  std::unique_ptr<rt::Program> program;
  std::unique_ptr<rt::StartingWeights> weights;
  std::unique_ptr<rt::Tokenizer> tokenizer; ///< null if not requested
  rt::RunOptions run;                       ///< communicator and threads of its ranks
};

/// Returns whether a path holds weights that openModel() makes a plan for, and no plan.
bool isFolderOrGguf(const std::string &path);

/// Opens the plan, or the plan of the weights, and loads its weights. Throws PlanError for a training plan, and the
/// runtime's other exceptions.
Model openModel(ModelArguments &arguments);

} // namespace espalier
