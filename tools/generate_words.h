// What `generate` and `serve` have in common on the command line.
#pragma once

#include "runtime/data/tokenizer.h"
#include "runtime/generate/decode.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

namespace espalier {

struct ModelWords {
  std::string plan, device;
  std::filesystem::path checkpoint;
  int threads = 0;
  rt::TokenizerOptions tokenizer;
  CLI::Option *tokenizerGiven = nullptr;
};

/// The plan, --checkpoint, --device, --threads and the tokenizer's options.
void addModelOptions(CLI::App &command, ModelWords &words);

/// A plan for generation with its ranks running.
struct Model {
  std::unique_ptr<rt::Program> program;
  std::unique_ptr<rt::Decoder> decoder;
  std::unique_ptr<rt::Tokenizer> tokenizer; ///< null where none was asked for
};

/// Throws as the runtime does: PlanError for a plan that trains.
Model openModel(const ModelWords &words);

} // namespace espalier
