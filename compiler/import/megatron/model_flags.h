// Converts Megatron-LM's flags of the model and of its tokenizer to keys of a run file.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

namespace espalier {

/// The data type of --fp16, --bf16 or neither.
struct ScriptDType {
  std::string name; ///< "float16", "bfloat16" or "float32"
  /// Whether the run file states the type. Otherwise the base's type applies.
  bool isStated = true;
  std::string flag() const; ///< the flag that selects the type; empty for float32
};

/// The token ids of a script's tokenizer.
class TokenizerFlags {
public:
  TokenizerFlags(GivenFlags &given, const ArgsOptions &options) : given(given), options(options) {}

  /// Returns the number of token ids: --vocab-size, or the tokenizer's if it has a fixed number.
  int64_t vocabulary();

  /// Returns the token that ends a document, or nothing if the tokenizer does not define it.
  std::optional<int64_t> endOfDocument();

private:
  const std::optional<ScriptVocabulary> &vocabularyFile();

  GivenFlags &given;
  const ArgsOptions &options;
  bool looksForVocabulary = true;
  std::optional<ScriptVocabulary> ownVocabulary;
};

/// Writes moe_config and model. `hasBase`: the base's model applies if the script has no --num-layers.
void writeModel(GivenFlags &given, RunFileWriter &yaml, TokenizerFlags &tokenizer, const ScriptDType &dtype,
                int64_t layers, bool hasBase);

} // namespace espalier
