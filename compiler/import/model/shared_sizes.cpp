#include "compiler/import/model/shared_sizes.h"

#include <algorithm>
#include <set>

namespace espalier {

namespace {

using Type = SizeRule::Type;

/// Properties of an architecture, as its model file shows them.
struct Traits {
  const Architecture &architecture;
  std::set<std::string> ops, parameters;

  bool has(const char *size) const { return architecture.sizeRule(size) != nullptr; }
  bool isRotary() const { return ops.contains("rope"); }
  bool hasExperts() const { return ops.contains("route"); }
  bool hasGate() const { return ops.contains("mul"); }
  bool hasAny(std::initializer_list<const char *> names) const {
    return std::ranges::any_of(names, [&](const char *name) { return parameters.contains(name); });
  }
};

const char *textOf(bool value) { return value ? "true" : "false"; }

/// A name that all model files share.
struct SharedSize {
  const char *name;
  Type type;
  std::vector<std::string> aliases;
  const char *meaning;
  /// Returns the only value that the architecture has, as an expression or, for a string, the word. Null: any value.
  std::string (*only)(const Traits &);
  bool (*isFor)(const Traits &) = nullptr; ///< architectures that have the name; null: all
  std::vector<std::string> words = {};     ///< values of a string, if any of them is taken
};

bool isRotary(const Traits &traits) { return traits.isRotary(); }
bool hasExperts(const Traits &traits) { return traits.hasExperts(); }
bool hasTheta(const Traits &traits) { return traits.has("theta"); }
bool hasLatents(const Traits &traits) { return traits.has("kv_lora_rank"); }
bool hasHeads(const Traits &traits) {
  return traits.has("hidden_size") && traits.has("num_heads") && !hasLatents(traits);
}
bool hasSoftmaxRouter(const Traits &traits) { return hasExperts(traits) && traits.has("norm_topk_prob"); }
std::string never(const Traits &) { return "false"; }
std::string zero(const Traits &) { return "0"; }
std::string one(const Traits &) { return "1"; }
std::string gate(const Traits &traits) { return textOf(traits.hasGate()); }
std::string norm(const Traits &traits) { return traits.ops.contains("rms_norm") ? "RMSNorm" : "LayerNorm"; }
std::string positions(const Traits &traits) { return traits.isRotary() ? "rope" : "learned_absolute"; }
std::string headNorms(const Traits &traits) { return textOf(traits.hasAny({"attn_q_norm_weight"})); }
std::string balanceBias(const Traits &traits) {
  const char *size = "balance_via_topk_bias";
  return traits.architecture.sizeOrConstant(size) ? size : textOf(traits.ops.contains("balance_bias"));
}
std::string latents(const Traits &traits) { return textOf(hasLatents(traits)); }
std::string theta(const Traits &) { return "theta"; }
std::string mlpBiases(const Traits &traits) { return textOf(traits.hasAny({"mlp_fc_bias"})); }
std::string attentionBiases(const Traits &traits) {
  return traits.has("attention_bias") ? "attention_bias" : textOf(traits.hasAny({"attn_q_bias"}));
}
std::string tied(const Traits &traits) { return textOf(!traits.hasAny({"lm_head_weight"})); }
std::string untied(const Traits &traits) {
  return traits.has("tie_word_embeddings") ? "1 - tie_word_embeddings" : textOf(traits.hasAny({"lm_head_weight"}));
}
/// Without the softmax over all experts, weights sum to 1.
std::string preSoftmax(const Traits &traits) {
  return traits.has("use_gating_sigmoid") ? "moe_router_pre_softmax"
                                          : "max(moe_router_pre_softmax, 1 - norm_topk_prob)";
}
std::string headWidth(const Traits &traits) {
  return traits.has("head_dim") ? "first_of(head_dim, hidden_size / num_heads)" : "hidden_size / num_heads";
}

constexpr const char *laidOut = "code generation lays weights out", *fused = "kernels are always fused",
                     *grouped = "the products of a rank's experts are one call";

const std::vector<std::string> dtypes = {"float32", "float16", "bfloat16"};

const std::vector<SharedSize> sharedSizes = {
    {"max_position_embeddings",
     Type::Integer,
     {"max_position_embedding"},
     "rotary positions need no table",
     nullptr,
     isRotary},
    {"multiple_of", Type::Integer, {}, "intermediate_size is the width of the MLP", nullptr},
    {"layernorm_compute_type",
     Type::String,
     {"layernorm_compute_dtype"},
     "norms are always computed in float32",
     nullptr,
     nullptr,
     dtypes},
    {"softmax_compute_type",
     Type::String,
     {"softmax_compute_dtype"},
     "the softmax is always computed in float32",
     nullptr,
     nullptr,
     dtypes},
    {"rotary_dtype", Type::String, {}, "rotary angles are always computed in float32", nullptr, nullptr, dtypes},
    {"use_contiguous_weight_layout_attention", Type::Bool, {}, laidOut, nullptr},
    {"use_interleaved_weight_layout_mlp", Type::Bool, {}, laidOut, nullptr},
    {"qkv_concat", Type::Bool, {"mla_qkv_concat"}, laidOut, nullptr},
    {"mlp_concat", Type::Bool, {}, laidOut, nullptr},
    {"compute_in_2d", Type::Bool, {}, "code generation collapses every matrix product to two dimensions", nullptr},
    {"fine_grain_interleave",
     Type::Integer,
     {},
     "overlap of communication and compute is the schedule's business",
     nullptr},
    {"bias_swiglu_fusion", Type::Bool, {"bias_dropout_fusion"}, fused, nullptr},
    {"apply_rope_fusion", Type::Bool, {}, fused, nullptr},
    {"moe_grouped_gemm", Type::Bool, {}, grouped, nullptr},
    {"moe_permute_fusion", Type::Bool, {"moe_router_fusion"}, grouped, nullptr},
    {"moe_token_dispatcher_type",
     Type::String,
     {},
     "the plan chooses its collectives",
     nullptr,
     nullptr,
     {"allgather", "alltoall", "alltoall_deredundency", "alltoall_zero_redundancy", "flex"}},
    {"moe_token_drop_policy",
     Type::String,
     {},
     "first choices take slots before second ones, tokens in order",
     nullptr,
     nullptr,
     {"probs", "position", "False"}},
    {"mtp_loss_scaling_factor", Type::Number, {"mtp_loss_factor"}, "belongs to mtp_num_layers", nullptr},
    {"add_bias_linear", Type::Bool, {}, "the MLP and the output of attention have biases, or not", mlpBiases},
    {"mlp_bias", Type::Bool, {}, "the MLP has biases, or not", mlpBiases},
    {"attention_bias", Type::Bool, {}, "attention has biases, or not", attentionBiases},
    {"qkv_has_bias", Type::Bool, {"add_qkv_bias"}, "q, k and v have biases, or not", attentionBiases},
    {"qk_layernorm", Type::Bool, {}, "q and k have norms, or not", headNorms},
    {"gated_linear_unit", Type::Bool, {}, "the MLP has a gate, or not", gate},
    {"normalization", Type::String, {}, "the form of the norms", norm},
    {"position_embedding_type", Type::String, {}, "the kind of positions", positions},
    {"attention_dropout", Type::Number, {"attention_dropout_rate"}, "there is no dropout", zero},
    {"hidden_dropout", Type::Number, {"emb_dropout_prob", "hidden_dropout_rate"}, "there is no dropout", zero},
    {"rotary_pct", Type::Number, {}, "all of a head is rotated", one, isRotary},
    {"rotary_emb_base", Type::Number, {}, "theta is the base of the rotary angles", theta, hasTheta},
    {"kv_channels", Type::Integer, {}, "the width of a head", headWidth, hasHeads},
    {"tie_word_embeddings", Type::Bool, {}, "the head is the token table, or not", tied},
    {"untie_embeddings_and_output_weights", Type::Bool, {}, "the head is not the token table, or it is", untied},
    {"fp32_residual_connection", Type::Bool, {}, "the residual stream has compute_dtype", never},
    {"sliding_window", Type::Integer, {}, "a token attends to all tokens before it", zero},
    {"use_sliding_window", Type::Bool, {}, "a token attends to all tokens before it", never},
    {"multi_latent_attention", Type::Bool, {}, "attention has latents, or not", latents},
    {"mtp_num_layers",
     Type::Integer,
     {"mtp_depth", "num_nextn_predict_layers"},
     "this architecture has no modules that predict further tokens",
     zero},
    {"routed_scaling_factor",
     Type::Number,
     {"moe_router_topk_scaling_factor"},
     "the weights of experts are not scaled, glm4_moe scales them",
     one,
     hasExperts},
    {"first_k_dense_replace", Type::Integer, {}, "every layer has experts, glm4_moe has dense ones", zero, hasExperts},
    {"moe_router_pre_softmax",
     Type::Bool,
     {},
     "without norm_topk_prob, weights are of a softmax over all experts",
     preSoftmax,
     hasSoftmaxRouter},
    {"moe_router_load_balancing_type",
     Type::String,
     {},
     "each sample is balanced, as by seq_aux_loss",
     nullptr,
     hasExperts,
     {"seq_aux_loss", "aux_loss", "gbs_aux_loss", "sub_seq_aux_loss", "none"}},
    {"moe_router_enable_expert_bias", Type::Bool, {}, "a bias balances the experts, or not", balanceBias, hasExperts},
    {"topk_bias_update_rate", Type::Number, {}, "no bias balances the experts", nullptr, hasExperts},
};

/// Further names of sizes.
const std::vector<std::pair<const char *, const char *>> otherNames = {
    {"aux_loss_factor", "moe_aux_loss_coeff"},
    {"aux_loss_factor", "router_aux_loss_coef"},
    {"z_loss_factor", "moe_z_loss_coeff"},
    {"topk_bias_update_rate", "moe_router_bias_update_rate"},
    {"num_experts_chosen", "moe_router_topk"},
    {"param_init_type", "params_dtype"},
    {"layernorm_compute_type", "layernorm_compute_dtype"},
    {"softmax_compute_type", "softmax_compute_dtype"},
    {"hidden_dropout_rate", "hidden_dropout"},
    {"attention_dropout_rate", "attention_dropout"},
};

Traits traitsOf(const Architecture &architecture) {
  Traits traits{architecture, {}, {}};
  for (const YamlEntry &segment : architecture.root->find("segments")->entries) {
    if (const YamlNode *ops = segment.value->find("ops"))
      for (const YamlPtr &op : ops->items)
        if (const YamlNode *kind = op->find("op"))
          traits.ops.insert(kind->text);
    if (const YamlNode *parameters = segment.value->find("parameters"))
      for (const YamlEntry &parameter : parameters->entries)
        traits.parameters.insert(parameter.key);
  }
  return traits;
}

/// Returns the constant of this name, or null.
SizeRule *constantOf(Architecture &architecture, const char *name) {
  auto found = std::ranges::find_if(architecture.sizes,
                                    [&](const SizeRule &rule) { return rule.isConstant && rule.name == name; });
  return found == architecture.sizes.end() ? nullptr : &*found;
}

} // namespace

void addSharedSizes(Architecture &architecture) {
  for (const auto &[size, other] : otherNames)
    for (SizeRule &rule : architecture.sizes)
      if (rule.name == size && !architecture.sizeRule(other))
        rule.aliases.emplace_back(other);
  const Traits traits = traitsOf(architecture);
  std::vector<SizeRule> added;
  for (const SharedSize &shared : sharedSizes) {
    for (SizeRule &own : architecture.sizes) // of a part of the model file
      own.isShared |= own.name == shared.name && (!own.only.empty() || own.choices.size() == 1);
    if (traits.has(shared.name) || (shared.isFor && !shared.isFor(traits)))
      continue;
    if (SizeRule *constant = constantOf(architecture, shared.name)) { // a key with one value
      constant->isConstant = false;
      constant->isShared = true;
      constant->only = constant->defaultText;
      constant->meaning = shared.meaning;
      constant->action = "accepted";
      constant->aliases.insert(constant->aliases.end(), shared.aliases.begin(), shared.aliases.end());
      continue;
    }
    SizeRule rule;
    rule.name = shared.name;
    rule.type = shared.type;
    rule.meaning = shared.meaning;
    rule.action = "accepted";
    rule.isShared = true;
    rule.least = shared.type == Type::Integer ? "0" : "";
    rule.where = {architecture.file, 1, 1};
    for (const std::string &alias : shared.aliases)
      if (!traits.has(alias.c_str()))
        rule.aliases.push_back(alias);
    std::string only = shared.only ? shared.only(traits) : "";
    for (const std::string &word : shared.type == Type::String && shared.only ? std::vector{only} : shared.words)
      rule.choices[word] = word;
    if (shared.type != Type::String)
      rule.only = only;
    bool isOwn = only.find(shared.name) != std::string::npos; // a limit, not a value
    rule.defaultText = isOwn ? "true" : only;
    added.push_back(rule);
  }
  architecture.sizes.insert(architecture.sizes.end(), added.begin(), added.end());
}

} // namespace espalier
