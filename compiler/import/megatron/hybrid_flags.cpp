#include "compiler/import/megatron/section_flags.h"

#include <algorithm>

namespace espalier {

namespace {

const std::string section = "model.model_config.";

/// Writes the layers of one script that has a pattern.
class HybridWriter : FlagWriter {
public:
  HybridWriter(GivenFlags &given, RunFileWriter &yaml, const HybridPattern &pattern)
      : FlagWriter(given, yaml), pattern(pattern) {}

  void write(int64_t vocabulary) {
    put("model.arch.type", "NemotronHForCausalLM", hybridPatternFlag);
    put(section + "type", "NemotronHConfig");
    writeLayers();
    checkBlock();
    writeSizes(vocabulary);
    writeMixers();
    writeExperts();
    checkDropout();
  }

private:
  void writeLayers() {
    std::string kinds;
    for (char letter : pattern.letters)
      kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", hybridKind(letter));
    put(section + "num_layers", fmt::format("{}", pattern.letters.size()));
    put(section + "layers_block_type", "[" + kinds + "]", hybridPatternFlag);
    given.isSet("--is-hybrid-model", section + "layers_block_type");
    static const std::vector<std::string> specs = {"megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec",
                                                   "megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec"};
    if (!given.isGiven("--spec"))
      return;
    std::string spec = fmt::format("{}", fmt::join(given.values("--spec", section + "type"), " "));
    if (std::ranges::find(specs, spec) == specs.end())
      given.error("--spec", fmt::format("no layers '{}' here, there are {}", spec, fmt::join(specs, ", ")));
  }

  /// Refuses flags that contradict the layers of nemotron_h.
  void checkBlock() {
    const char *normFlag = "--normalization", *biasFlag = "--disable-bias-linear",
               *positionFlag = "--position-embedding-type";
    if (std::string norm = given.value(normFlag, section + "type").value_or("LayerNorm"); norm != "RMSNorm")
      given.error(normFlag, fmt::format("nemotron_h has RMS norms, got {}; {} → RMSNorm", norm, normFlag));
    if (!given.isSet(biasFlag, section + "type"))
      given.error(biasFlag, fmt::format("nemotron_h has no biases of projections: add {}", biasFlag));
    bool isRotary = given.isSet("--use-rotary-position-embeddings", section + "type");
    std::string positions =
        given.value(positionFlag, section + "type").value_or(isRotary ? "rope" : "learned_absolute");
    if (positions != "none")
      given.error(positionFlag,
                  fmt::format("attention of nemotron_h has no positions, got {}; {} → none", positions, positionFlag));
    bool isSquared = given.isSet("--squared-relu", section + "hidden_act");
    if ((pattern.has('-') || pattern.has('E')) && !isSquared)
      given.error("--squared-relu", "MLPs and experts of nemotron_h have squared ReLUs: add --squared-relu");
    for (const char *flag : {"--swiglu", "--qk-layernorm", "--add-qkv-bias", "--multi-latent-attention",
                             "--use-rope-scaling", "--mtp-num-layers"})
      if (given.isGiven(flag))
        given.error(
            flag, fmt::format("layers of {} are nemotron_h's, which has no {}; leave it out", hybridPatternFlag, flag));
  }

  void writeSizes(int64_t vocabulary) {
    hidden = required("--hidden-size", "hidden_size");
    int64_t heads = required("--num-attention-heads", "num_heads");
    required("--seq-length", "seq_length");
    putCount(section + "max_position_embeddings", "--max-position-embeddings");
    put(section + "vocab_size", fmt::format("{}", vocabulary), "--vocab-size");
    putNumber(section + "initializer_range", "--init-method-std");
    put(section + "rms_norm_eps", given.number("--norm-epsilon", section + "rms_norm_eps").value_or("1e-05"),
        "--norm-epsilon");
    given.isSet("--group-query-attention", section + "n_kv_heads");
    putOr("n_kv_heads", "--num-query-groups", heads);
    putOr("head_dim", "--kv-channels", hidden / heads);
    width = putOr("intermediate_size", "--ffn-hidden-size", 4 * hidden);
    if (!given.isSet("--untie-embeddings-and-output-weights", section + "tie_word_embeddings"))
      put(section + "tie_word_embeddings", "True");
  }

  /// Writes the sizes of Mamba-2 mixers, with Megatron's defaults.
  void writeMixers() {
    if (!pattern.has('M')) { // the model file wants sizes that fit together
      put(section + "mamba_n_heads", "1");
      return put(section + "mamba_n_groups", "1");
    }
    int64_t headWidth = putOr("mamba_d_head", "--mamba-head-dim", 64);
    putOr("mamba_n_heads", "--mamba-num-heads", 2 * hidden / headWidth);
    putOr("mamba_n_groups", "--mamba-num-groups", 8);
    putOr("mamba_d_state", "--mamba-state-dim", 128);
  }

  void writeExperts() {
    const char *flag = "--num-experts";
    if (pattern.has('E') != given.isGiven(flag))
      given.error(given.isGiven(flag) ? flag : hybridPatternFlag,
                  pattern.has('E') ? "the pattern has layers with experts (E): add --num-experts"
                                   : "the pattern has no layers with experts (E); leave out --num-experts");
    if (!pattern.has('E'))
      return;
    if (!hasBiasedRouter(given))
      given.error(flag, "nemotron_h chooses experts by biased sigmoids: add --moe-router-score-function sigmoid and "
                        "--moe-router-enable-expert-bias");
    putOr("moe_intermediate_size", "--moe-ffn-hidden-size", width);
  }

  void checkDropout() {
    for (const char *flag : {"--hidden-dropout", "--attention-dropout"})
      if (std::string rate = given.number(flag, section + "type").value_or("0.1"); rate != "0")
        given.error(flag, fmt::format("nemotron_h has no dropout, {} is {}{}; say {} 0", flag, rate,
                                      given.isGiven(flag) ? "" : " unless it is given", flag));
  }

  /// Writes the count of a flag, which must be given.
  int64_t required(const std::string &flag, const std::string &key) {
    if (!given.isGiven(flag))
      given.error(flag, fmt::format("{} is missing", flag));
    return putCount(section + key, flag).value_or(1);
  }
  /// Writes the count of a flag, or another one if the flag is not given.
  int64_t putOr(const std::string &key, const std::string &flag, int64_t otherwise) {
    int64_t count = given.count(flag, section + key).value_or(otherwise);
    put(section + key, fmt::format("{}", count), flag);
    return count;
  }

  const HybridPattern &pattern;
  int64_t hidden = 1, width = 1; ///< `width` of MLPs
};

} // namespace

bool hasHybridPattern(const GivenFlags &given) { return given.isGiven(hybridPatternFlag); }

std::vector<std::string> hybridFlags(const GivenFlags &given) {
  if (!hasHybridPattern(given))
    return {};
  return {"--squared-relu", "--spec", "--hybrid-attention-ratio", "--hybrid-mlp-ratio"};
}

HybridPattern hybridPattern(GivenFlags &given) {
  return readHybridPattern(given.value(hybridPatternFlag, section + "layers_block_type").value_or(""));
}

void writeHybrid(GivenFlags &given, RunFileWriter &yaml, int64_t vocabulary) {
  HybridPattern pattern = hybridPattern(given);
  if (pattern.fault.empty()) // else it is reported
    HybridWriter(given, yaml, pattern).write(vocabulary);
}

} // namespace espalier
