#include "compiler/import/megatron/section_flags.h"

#include <cmath>
#include <cstdlib>

namespace espalier {

namespace {

const std::string section = "model.model_config.";

/// Writes the latent attention of one script.
class LatentWriter : FlagWriter {
public:
  using FlagWriter::FlagWriter;

  void write(int64_t layers) {
    given.isSet("--multi-latent-attention", "model.arch.type");
    put("model.arch.type", given.isGiven("--q-lora-rank") ? "DeepseekV3ForCausalLM" : "deepseek_v3_full_q");
    put(section + "type", "DeepseekV3Config");
    if (!given.isSet("--qk-layernorm", section + "type"))
      given.error("--multi-latent-attention", "deepseek_v3 has norms of the latents: add --qk-layernorm");
    if (given.isSet("--add-qkv-bias", section + "type"))
      given.error("--add-qkv-bias", "deepseek_v3 has no biases of q, k and v");
    if (!given.isGiven("--num-experts"))
      put(section + "first_k_dense_replace", fmt::format("{}", layers));
    else if (!hasBiasedRouter(given))
      given.error("--num-experts", "deepseek_v3 chooses experts by biased sigmoids: add --moe-router-score-function "
                                   "sigmoid and --moe-router-enable-expert-bias");
    putCount(section + "q_lora_rank", "--q-lora-rank");
    // The other values are Megatron's defaults.
    for (auto [flag, key, otherwise] : {std::tuple("--kv-lora-rank", "kv_lora_rank", 32),
                                        {"--qk-head-dim", "qk_nope_head_dim", 128},
                                        {"--qk-pos-emb-head-dim", "qk_rope_head_dim", 64},
                                        {"--v-head-dim", "v_head_dim", 128}})
      put(section + key, fmt::format("{}", given.count(flag, section + key).value_or(otherwise)), flag);
    given.value("--kv-channels", "latent attention has heads of widths of its own");
    writePositions();
  }

private:
  /// Writes YaRN if the positions are scaled. With the factor 1 it is no scaling.
  void writePositions() {
    const char *kindFlag = "--rope-type", *factorFlag = "--rotary-scaling-factor";
    std::string kind = given.value(kindFlag, section + "extend_method").value_or("yarn");
    if (kind != "yarn" && kind != "rope")
      given.error(kindFlag, fmt::format("no rotary positions '{}' here, there are rope, yarn", kind));
    double factor = numberOf(factorFlag, "scaling_factor", 1), some = numberOf("--mscale", "rope_attention_factor", 1),
           all = numberOf("--mscale-all-dim", "rope_mscale_all_dim", 0);
    if (factor < 1)
      given.error(factorFlag, fmt::format("positions are scaled by at least 1, got {}", factor));
    if (factor <= 1)
      return;
    put(section + "scaling_factor", fmt::format("{}", factor), factorFlag);
    put(section + "rope_mscale_all_dim", fmt::format("{}", all), "--mscale-all-dim"); // also scales the scores
    if (kind != "yarn")
      return;
    put(section + "extend_method", "YARN", kindFlag);
    put(section + "original_max_position", "4096"); // Megatron's default
    auto magnitude = [&](double weight) { return 0.1 * weight * std::log(factor) + 1; };
    put(section + "rope_attention_factor", fmt::format("{}", magnitude(some) / magnitude(all)), "--mscale");
  }

  double numberOf(const char *flag, const char *key, double otherwise) {
    std::optional<std::string> text = given.number(flag, section + key);
    return text ? std::strtod(text->c_str(), nullptr) : otherwise;
  }
};

} // namespace

bool hasLatents(const GivenFlags &given) { return given.isGiven("--multi-latent-attention"); }

void writeLatents(GivenFlags &given, RunFileWriter &yaml, int64_t layers) { LatentWriter(given, yaml).write(layers); }

} // namespace espalier
