#include "compiler/import/megatron/section_flags.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

namespace espalier {

namespace {

/// Writes what is the same in all models.
class NumericsWriter : protected FlagWriter {
protected:
  NumericsWriter(GivenFlags &given, RunFileWriter &yaml, const ScriptDType &dtype)
      : FlagWriter(given, yaml), dtype(dtype) {}

  /// Writes the form of the norms' weights and the format of matrix products, also over a base.
  void writeNumerics(const std::string &section) {
    const char *normFlag = "--apply-layernorm-1p", *format8Flag = "--fp8-format", *format4Flag = "--fp4-format";
    if (const std::string key = section + "layernorm_zero_centered_gamma"; given.isSet(normFlag, key))
      put(key, "True", normFlag);
    const std::string key = section + "matmul_format";
    std::vector<std::pair<std::string, std::string>> formats; // flags and values
    auto read = [&](const char *flag, const std::string &prefix, const std::vector<std::string> &known) {
      std::optional<std::string> value = given.value(flag, key);
      if (value && std::ranges::find(known, *value) == known.end())
        given.error(flag, fmt::format("no format '{}', there are {}", *value, fmt::join(known, ", ")));
      else if (value)
        formats.emplace_back(flag, prefix + *value);
    };
    read(format8Flag, "fp8_", {"e4m3", "hybrid"});
    for (auto [flag, value] : {std::pair("--fp8-hybrid", "fp8_hybrid"), {"--fp8-e4m3", "fp8_e4m3"}}) // until 2023
      if (given.isSet(flag, key))
        formats.emplace_back(flag, value);
    read(format4Flag, "fp4_", {"e2m1"});
    if (formats.size() > 1)
      given.error(formats[1].first, fmt::format("{} and {} contradict each other", formats[0].first, formats[1].first));
    else if (!formats.empty())
      put(key, formats.front().second, formats.front().first);
  }

  /// Writes that attention stores its scores, if the script chooses such an implementation. Transformer Engine, the
  /// default, chooses a fused kernel where the device has one.
  void writeAttention(const std::string &section) {
    const std::string key = section + "use_flash_attention";
    const char *backendFlag = "--attention-backend", *implementationFlag = "--transformer-impl";
    std::string backend = given.value(backendFlag, key).value_or("auto");
    bool isFlash = given.isSet("--use-flash-attn", key);
    bool isLocal = given.value(implementationFlag, key).value_or("") == "local";
    isLocal = given.isSet("--use-legacy-models", key) || isLocal;
    if (backend == "unfused" || backend == "local")
      put(key, "False", backendFlag);
    else if (isLocal && !isFlash)
      put(key, "False", implementationFlag);
  }

  void writeType(const std::string &section) {
    if (!dtype.isStated)
      return;
    put(section + "param_init_type", dtype.name, dtype.flag());
    put(section + "compute_dtype", dtype.name);
  }

  const ScriptDType &dtype;
};

/// Writes the model of one script.
class ModelWriter : NumericsWriter {
public:
  ModelWriter(GivenFlags &given, RunFileWriter &yaml, TokenizerFlags &tokenizer, const ScriptDType &dtype,
              int64_t layers, bool hasBase)
      : NumericsWriter(given, yaml, dtype), tokenizer(tokenizer), layers(layers), hasBase(hasBase) {}

  void write() {
    const std::string section = "model.model_config.";
    if (hasHybridPattern(given))
      return writeLayersOfPattern(section);
    bool isGated = given.isSet("--swiglu", section + "type");
    std::string norm = given.value("--normalization", section + "type").value_or("LayerNorm");
    bool isRms = norm == "RMSNorm" || norm == "rmsnorm"; // Megatron-DeepSpeed's spelling
    bool isRotary = given.isSet("--use-rotary-position-embeddings", section + "type");
    const char *positionFlag = "--position-embedding-type";
    std::string positions =
        given.value(positionFlag, section + "type").value_or(isRotary ? "rope" : "learned_absolute");
    isRotary |= positions == "rope";
    if (!isRotary && positions != "learned_absolute")
      given.error(positionFlag, fmt::format("no positions '{}' here, there are learned_absolute, rope", positions));
    if (given.isSet("--no-position-embedding", section + "type") && !isRotary)
      given.error("--no-position-embedding", "gpt2 has learned positions, llama --position-embedding-type rope");
    bool isUntied = given.isSet("--untie-embeddings-and-output-weights", section + "type");
    bool isBare = given.isSet("--disable-bias-linear", section + "type");
    int marks = isGated + isRms + isRotary + isBare;
    hasLayerNorm = marks == 3 && !isRms;
    bool isLlama = marks == 4 || hasLayerNorm;
    if ((marks != 0 && !isLlama) || (marks == 0 && isUntied))
      given.error(isGated    ? "--swiglu"
                  : isRms    ? "--normalization"
                  : isRotary ? "--position-embedding-type"
                  : isBare   ? "--disable-bias-linear"
                             : "--untie-embeddings-and-output-weights",
                  "no architecture of configs/models has this mix: llama is --swiglu, --normalization RMSNorm, "
                  "--position-embedding-type rope and --disable-bias-linear, with or without "
                  "--untie-embeddings-and-output-weights; stablelm is the same with LayerNorm; gpt2 none of them");
    hasExperts = given.isGiven("--num-experts");
    bool statesModel = given.isGiven("--num-layers") || !hasBase;
    hasBias = hasExperts && hasBiasedRouter(given);
    writeRouting(given, yaml, layers, statesModel);
    writeNumerics(section);
    writeAttention(section);
    putCount(section + "mtp_num_layers", "--mtp-num-layers");
    putNumber(section + "mtp_loss_scaling_factor", "--mtp-loss-scaling-factor");
    if (!statesModel && !dtype.isStated)
      return;
    if (statesModel) {
      isLatent = hasLatents(given);
      if (isLatent && (!isLlama || hasLayerNorm))
        given.error("--multi-latent-attention", "deepseek_v3 takes llama's flags and those of latent attention");
      if (isLatent)
        writeLatents(given, yaml, layers);
      else
        chooseModel(section, isLlama, isUntied);
      if (isLlama && !isUntied)
        put(section + "tie_word_embeddings", "True");
      writeSizes(section, isLlama);
      if (!isLatent)
        writeHeads(section, /*hasOwnWidth=*/isLlama && (hasHeadNorms || hasBias || !hasExperts));
    }
    writeType(section);
  }

private:
  /// Writes the layers of a pattern.
  void writeLayersOfPattern(const std::string &section) {
    writeRouting(given, yaml, layers, /*statesModel=*/true);
    writeNumerics(section);
    writeAttention(section);
    writeHybrid(given, yaml, tokenizer.vocabulary());
    writeType(section);
  }

  /// Writes model.arch: an architecture with Llama's block, or gpt2.
  void chooseModel(const std::string &section, bool isLlama, bool isUntied) {
    hasHeadNorms = given.isSet("--qk-layernorm", section + "type");
    bool hasBiases = given.isSet("--add-qkv-bias", section + "type");
    for (const char *flag : {"--num-experts", "--qk-layernorm", "--add-qkv-bias"})
      if (hasLayerNorm && given.isGiven(flag))
        given.error(flag, fmt::format("stablelm, which is Llama's block with LayerNorm, has no {}; add --normalization "
                                      "RMSNorm",
                                      flag));
    if (hasExperts && !isLlama)
      given.error("--num-experts",
                  "gpt2 has no experts; mixtral and qwen3_moe take llama's flags and those of experts");
    if (hasHeadNorms && !isLlama)
      given.error("--qk-layernorm",
                  "gpt2 has no norms of q and k; qwen3 and qwen3_moe take llama's flags and these norms");
    if (hasBias && !hasBiases)
      given.error("--moe-router-enable-expert-bias", "glm4_moe has biases of q, k and v: add --add-qkv-bias");
    if (hasBiases && (!isLlama || (!hasBias && (hasExperts || hasHeadNorms))))
      given.error("--add-qkv-bias", "only qwen2 has biases of q, k and v alone: llama's flags without --num-experts "
                                    "and --qk-layernorm");
    if (hasExperts && isLlama && !isUntied)
      given.error("--num-experts", "mixtral and qwen3_moe have a head of their own; add "
                                   "--untie-embeddings-and-output-weights");
    const char *name = !isLlama       ? "GPT2"
                       : hasLayerNorm ? "StableLm"
                       : hasBias      ? "Glm4Moe"
                       : hasExperts   ? (hasHeadNorms ? "Qwen3Moe" : "Mixtral")
                       : hasBiases    ? "Qwen2"
                                      : (hasHeadNorms ? "Qwen3" : "Llama");
    bool isVariant = hasBias && hasHeadNorms;
    put("model.arch.type",
        isVariant ? "glm4_moe_qk_norm" : fmt::format("{}{}", name, isLlama ? "ForCausalLM" : "LMHeadModel"));
    put(section + "type", fmt::format("{}Config", name));
  }

  /// Writes the sizes of heads. Their width is hidden / heads, unless the model file has a separate size for it.
  void writeHeads(const std::string &section, bool hasOwnWidth) {
    int64_t hidden = given.count("--hidden-size", section + "hidden_size").value_or(1);
    int64_t heads = given.count("--num-attention-heads", section + "num_heads").value_or(1);
    std::optional<int64_t> width = given.count("--kv-channels", section + (hasOwnWidth ? "head_dim" : "num_heads"));
    if (hasOwnWidth && (width || hasHeadNorms))
      put(section + "head_dim", fmt::format("{}", width.value_or(hidden / heads)), "--kv-channels");
    else if (width && *width * heads != hidden)
      given.error("--kv-channels",
                  fmt::format("heads are hidden {} / heads {} wide, got {}; gpt2 and mixtral have no other width",
                              hidden, heads, *width));
  }

  /// Writes Llama 3.1's scaling of rotary positions, with Megatron's constants.
  void writeRopeScaling(const std::string &section) {
    const char *flag = "--use-rope-scaling", *factorFlag = "--rope-scaling-factor";
    std::string factor = given.number(factorFlag, section + "scaling_factor").value_or("8");
    if (!given.isSet(flag, section + "extend_method"))
      return;
    if (isLatent || (hasExperts && !hasBias))
      return given.error(flag, "only llama, qwen2, qwen3 and glm4_moe rescale rotary positions by this flag");
    put(section + "extend_method", "LLAMA3", flag);
    put(section + "scaling_factor", factor, factorFlag);
    put(section + "original_max_position", "8192");
  }

  void writeSizes(const std::string &section, bool isLlama) {
    put(section + "num_layers", fmt::format("{}", layers), "--num-layers");
    std::optional<int64_t> hidden = putCount(section + "hidden_size", "--hidden-size");
    std::optional<int64_t> heads = putCount(section + "num_heads", "--num-attention-heads");
    std::optional<int64_t> seq = putCount(section + "seq_length", "--seq-length");
    for (auto [isGiven, flag] : {std::pair(hidden.has_value(), "--hidden-size"),
                                 {heads.has_value(), "--num-attention-heads"},
                                 {seq.has_value(), "--seq-length"}})
      if (!isGiven && !given.isGiven(flag))
        given.error(flag, fmt::format("{} is missing", flag));
    putCount(section + "max_position_embeddings", "--max-position-embeddings");
    put(section + "vocab_size", fmt::format("{}", tokenizer.vocabulary()), "--vocab-size");
    putNumber(section + "initializer_range", "--init-method-std");
    const std::string epsilon = hasLayerNorm ? "layer_norm_eps" : isLlama ? "rms_norm_eps" : "layernorm_epsilon";
    const char *epsilonFlag = "--norm-epsilon";
    std::string normEpsilon = given.number(epsilonFlag, section + epsilon).value_or("1e-05");
    put(section + epsilon, normEpsilon, epsilonFlag);
    if (isLatent)
      put(section + "latent_norm_eps", normEpsilon, epsilonFlag);
    given.isSet("--group-query-attention", section + "n_kv_heads");
    std::optional<int64_t> ffn =
        given.count("--ffn-hidden-size", section + (isLlama ? "intermediate_size" : "expand_ratio"));
    std::optional<int64_t> groups = given.count("--num-query-groups", section + "n_kv_heads");
    std::optional<std::string> base = given.number("--rotary-base", section + "theta");
    std::string rotated = given.number("--rotary-percent", section + "rotary_pct").value_or("1");
    if ((hasBias || hasLayerNorm) && !isLatent)
      put(section + "rotary_pct", rotated, "--rotary-percent");
    else if (rotated != "1")
      given.error("--rotary-percent", "rotary positions turn the whole of a head; --rotary-percent → 1");
    std::string hiddenDropout = given.number("--hidden-dropout", section + "hidden_dropout_rate").value_or("0.1");
    std::string attentionDropout =
        given.number("--attention-dropout", section + "attention_dropout_rate").value_or("0.1");
    if (isLlama) {
      // Megatron's own default. An expert is as wide as a dense MLP would be.
      int64_t otherwise = hidden.value_or(1) * 8 / 3 / 64 * 64;
      const char *flag = "--ffn-hidden-size", *expertFlag = "--moe-ffn-hidden-size";
      if (hasBias || isLatent)
        put(section + "intermediate_size", fmt::format("{}", ffn.value_or(otherwise)), flag);
      bool hasBoth = hasExperts && (hasHeadNorms || hasBias || isLatent);
      const std::string key = section + (hasBoth ? "moe_intermediate_size" : "intermediate_size");
      std::optional<int64_t> expertFfn = hasExperts ? given.count(expertFlag, key) : std::nullopt;
      if (hasExperts || !isLatent)
        put(key, fmt::format("{}", expertFfn.value_or(ffn.value_or(otherwise))), expertFfn ? expertFlag : flag);
      put(section + "n_kv_heads", fmt::format("{}", groups.value_or(heads.value_or(1))), "--num-query-groups");
      put(section + "theta", base.value_or("10000"), "--rotary-base");
      writeRopeScaling(section);
      for (auto [flag, rate] :
           {std::pair("--hidden-dropout", hiddenDropout), {"--attention-dropout", attentionDropout}})
        if (rate != "0")
          given.error(flag, fmt::format("llama has no dropout, {} is {}{}; say {} 0", flag, rate,
                                        given.isGiven(flag) ? "" : " unless it is given", flag));
      return;
    }
    if (given.isSet("--use-rope-scaling", section + "type"))
      given.error("--use-rope-scaling", "gpt2 has learned positions, llama --position-embedding-type rope");
    if (ffn && hidden && *ffn % *hidden != 0)
      given.error("--ffn-hidden-size",
                  fmt::format("gpt2 requires a multiple of --hidden-size {}, got {}", *hidden, *ffn));
    else if (ffn && hidden)
      put(section + "expand_ratio", fmt::format("{}", *ffn / *hidden), "--ffn-hidden-size");
    if (groups && heads && *groups != *heads)
      given.error("--num-query-groups",
                  fmt::format("gpt2 has a key for each of its {} heads, got {} groups", *heads, *groups));
    put(section + "hidden_act", "gelu_new");
    put(section + "embedding_dropout_prob", hiddenDropout, "--hidden-dropout");
    put(section + "hidden_dropout_rate", hiddenDropout, "--hidden-dropout");
    put(section + "attention_dropout_rate", attentionDropout, "--attention-dropout");
  }

  TokenizerFlags &tokenizer;
  int64_t layers;
  bool hasBase, hasExperts = false, hasHeadNorms = false;
  bool hasLayerNorm = false; ///< in Llama's block
  bool hasBias = false;      ///< of the router
  bool isLatent = false;     ///< attention is deepseek_v3's
};

} // namespace

std::string ScriptDType::flag() const { return name == "float16" ? "--fp16" : name == "bfloat16" ? "--bf16" : ""; }

int64_t TokenizerFlags::vocabulary() {
  const std::string key = "model.model_config.vocab_size";
  std::optional<std::string> tokenizer = given.value("--tokenizer-type", key);
  std::optional<int64_t> stated = given.count("--vocab-size", key);
  if (stated)
    return *stated + (tokenizer == "NullTokenizer" ? 1 : 0); // plus the end-of-document token
  if (!tokenizer || tokenizer == "GPT2BPETokenizer")
    return vocabularyFile() ? vocabularyFile()->ids : 50257;
  if (tokenizer == "Llama2Tokenizer")
    return 32000;
  given.error(
      "--tokenizer-type",
      fmt::format("the number of ids of {} is in its files, which are not read; give --vocab-size", *tokenizer));
  return 1;
}

/// Returns the contents of the script's vocab.json for GPT-2's tokenizer, or nothing if the file does not exist.
const std::optional<ScriptVocabulary> &TokenizerFlags::vocabularyFile() {
  if (std::exchange(looksForVocabulary, false) && options.readVocabulary && given.isKnown("--vocab-file")) {
    std::vector<std::string> files = given.values("--vocab-file", "model.model_config.vocab_size");
    if (files.size() == 1)
      ownVocabulary = options.readVocabulary(files[0]);
    if (ownVocabulary && ownVocabulary->ids == 0)
      given.error("--vocab-file", fmt::format("{} is no vocab.json: an object of tokens and their ids", files[0]));
  }
  return ownVocabulary;
}

std::optional<int64_t> TokenizerFlags::endOfDocument() {
  if (std::optional<int64_t> stated = given.count("--null-tokenizer-eod-id", "train_dataset.data_loader.config.eod", 0))
    return stated;
  std::string tokenizer = given.value("--tokenizer-type", "model.model_config.vocab_size").value_or("GPT2BPETokenizer");
  if (tokenizer == "GPT2BPETokenizer")
    return vocabularyFile() ? vocabularyFile()->endOfDocument : 50256;
  if (tokenizer == "NullTokenizer" && given.isGiven("--vocab-size"))
    return vocabulary() - 1;
  return tokenizer == "Llama2Tokenizer" ? std::optional<int64_t>(2) : std::nullopt;
}

void writeModel(GivenFlags &given, RunFileWriter &yaml, TokenizerFlags &tokenizer, const ScriptDType &dtype,
                int64_t layers, bool hasBase) {
  ModelWriter(given, yaml, tokenizer, dtype, layers, hasBase).write();
}

} // namespace espalier
