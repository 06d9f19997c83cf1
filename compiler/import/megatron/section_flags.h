// The parts of the import that convert Megatron-LM's flags to the sections of a run file. Each function is in the file
// of its name: expert_flags.cpp, hybrid_flags.cpp, latent_flags.cpp, model_flags.cpp, optimizer_flags.cpp,
// parallel_flags.cpp and start_flags.cpp.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/megatron/hybrid_pattern.h"
#include "compiler/import/run/ramp.h"
#include "compiler/import/yaml/run_file_writer.h"

#include <fmt/format.h>

namespace espalier {

/// A base of the parts that write one section each. A key's comment names its flag if the flag is given.
class FlagWriter {
public:
  FlagWriter(GivenFlags &given, RunFileWriter &yaml) : given(given), yaml(yaml) {}

protected:
  void put(const std::string &key, const std::string &value, const std::string &flag = "") {
    yaml.put(key, value, given.isGiven(flag) ? flag : "");
  }
  /// Write the value of a flag if the flag is given.
  void putNumber(const std::string &key, const std::string &flag) {
    if (std::optional<std::string> text = given.number(flag, key))
      put(key, *text, flag);
  }
  std::optional<int64_t> putCount(const std::string &key, const std::string &flag) {
    std::optional<int64_t> number = given.count(flag, key);
    if (number)
      put(key, fmt::format("{}", *number), flag);
    return number;
  }

  GivenFlags &given;
  RunFileWriter &yaml;
};

/// The data type of --fp16, --bf16 or neither.
struct ScriptDType {
  std::string name; ///< "float16", "bfloat16" or "float32"
  /// Whether the run file states the type. Otherwise the base's type applies.
  bool isStated = true;
  std::string flag() const; ///< the flag that selects the type; empty for float32
};

/// Sizes of a script's run that several parts of the import need.
struct ScriptSizes {
  int64_t layers = 0; ///< 0 if neither the script nor its base states them
  int64_t globalBatch = 1, microBatches = 1, tensorRanks = 1;
  std::vector<BatchStep> ramp; ///< the smaller batches before the global batch

  /// Returns the number of steps of a run over `samples` samples. As in Megatron, the last partial batch is dropped.
  int64_t stepsOf(int64_t samples) const { return espalier::stepsOf(samples, ramp, globalBatch); }
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

/// Writes parallel, parallel_config, recompute_config and the pins of the planner. `devices` is 0 if their number is
/// not known, and `baseLayers` the number of layers of the base's model.
ScriptSizes writeParallel(GivenFlags &given, RunFileWriter &yaml, int64_t devices, int64_t baseLayers);

/// Writes parallel_config.expert_parallel. `replicas` is the number of model replicas, over which experts are
/// distributed. Returns the ranks of our ep axis, which divide `replicas`; 1 if the flags are refused.
int64_t writeExpertSplit(GivenFlags &given, RunFileWriter &yaml, int64_t tensorRanks, int64_t contextRanks,
                         int64_t replicas);

/// Returns whether the script has the router of DeepSeek-V3, whose architectures here are glm4_moe and deepseek_v3.
bool hasBiasedRouter(const GivenFlags &given);

/// Returns the flags that only the biased router has, or nothing if the script does not have this router.
std::vector<std::string> biasedRouterFlags(const GivenFlags &given);

/// Writes moe_config: experts, routing and load balancing. Megatron's defaults are written only if `statesModel`;
/// otherwise those of the base apply. A feature that is not implemented is an error at its flag.
void writeRouting(GivenFlags &given, RunFileWriter &yaml, int64_t layers, bool statesModel);

/// Returns whether the script has multi-head latent attention, whose architecture is deepseek_v3 here.
bool hasLatents(const GivenFlags &given);

/// Writes model.arch and the sizes of latent attention: ranks, widths of heads and YaRN. Flags that contradict the
/// architecture are errors.
void writeLatents(GivenFlags &given, RunFileWriter &yaml, int64_t layers);

/// Returns whether the script says the kind of each layer by --hybrid-layer-pattern. The architecture is nemotron_h
/// here.
bool hasHybridPattern(const GivenFlags &given);

/// Returns the flags that only scripts with a pattern have, or nothing if the script has no pattern.
std::vector<std::string> hybridFlags(const GivenFlags &given);

/// Returns the layers of --hybrid-layer-pattern. Does not report its fault.
HybridPattern hybridPattern(GivenFlags &given);

/// Writes model.arch and the sizes of a model with a pattern. Flags that contradict the architecture are errors.
void writeHybrid(GivenFlags &given, RunFileWriter &yaml, int64_t vocabulary);

/// Writes moe_config and model. `hasBase`: the base's model applies if the script has no --num-layers.
void writeModel(GivenFlags &given, RunFileWriter &yaml, TokenizerFlags &tokenizer, const ScriptDType &dtype,
                int64_t layers, bool hasBase);

/// Writes optimizer, lr_schedule and runner_wrapper. `hasBase`: the base's optimizer applies if no flag concerns it.
/// Converts samples to steps of the script's global batch.
void writeOptimizer(GivenFlags &given, RunFileWriter &yaml, const ScriptDType &dtype, const ScriptSizes &sizes,
                    bool hasBase);

/// Writes run_mode, load_checkpoint and resume_training. If a script loads from the folder that it saves to, it resumes
/// its own run, for which there is `espalier run --resume`. Omits paths that only the shell knows.
void writeStart(GivenFlags &given, RunFileWriter &yaml);

/// Writes the data paths, their split, and the handling of the end-of-document token, if it is known.
void writeData(GivenFlags &given, RunFileWriter &yaml, std::optional<int64_t> endOfDocument);

/// Returns an `espalier run` command with the script's values of options of the run, or an empty string if it has none.
std::string startLine(GivenFlags &given, const ScriptSizes &sizes);

} // namespace espalier
