// One row per op.
#include "compiler/import/model/op_vocabulary.h"

#include "compiler/import/model/model_description.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace espalier {
namespace {
constexpr OpAttribute option(std::string_view name, double neutral) { return {name, false, neutral, true}; }
constexpr OpAttribute plainNorm[] = {{"epsilon"}};
constexpr OpAttribute norm[] = {{"epsilon"}, option("offset", 0)};
constexpr OpAttribute rope[] = {{"theta"},
                                option("fraction", 1),
                                option("last", 0),
                                option("interleaved", 0),
                                option("inverse", 0),
                                {"scaling", /*isString=*/true, 0, true},
                                option("factor", 1),
                                option("original_context", 8192),
                                option("low_turns", 1),
                                option("high_turns", 4),
                                option("beta_fast", 32),
                                option("beta_slow", 1),
                                option("attention_factor", 0),
                                option("mscale", 0),
                                option("mscale_all_dim", 0),
                                option("truncate", 1)};
constexpr OpAttribute rate[] = {{"rate"}};
constexpr OpAttribute factor[] = {{"factor"}};
constexpr OpAttribute score = {"score", /*isString=*/true, 0, true};
constexpr OpAttribute route[] = {score, option("groups", 1), option("kept_groups", 1)};
constexpr OpAttribute gate[] = {{"normalize", false, 1}, score, option("scale", 1), option("epsilon", 1e-20)};
constexpr OpAttribute balanceLoss[] = {{"factor"}, score};
// A gate of silu has x sigmoid(alpha x).
constexpr OpAttribute activation[] = {{"kind", /*isString=*/true}, option("alpha", 1)};
constexpr OpAttribute clamp[] = {{"most"}, option("least", -std::numeric_limits<double>::infinity())};
constexpr OpAttribute by[] = {{"by"}};
// A scale of 0 means 1/sqrt(head_dim); the loader replaces it.
constexpr OpAttribute attention[] = {{"causal", false, 1}, {"scale", false, 0}, {"rate", false, 0},
                                     option("window", 0),  option("chunk", 0),  option("soft_cap", 0)};
constexpr OpAttribute alibi[] = {{"bias", false, 8}, {"scale", false, 0}};
constexpr OpAttribute temperature[] = {{"floor"}, {"factor"}, option("first", 0)};
constexpr OpAttribute shift[] = {option("shift", 0)};
constexpr OpAttribute cap[] = {{"cap"}};
constexpr OpAttribute state[] = {option("delta", 0)};
constexpr OpAttribute squares[] = {{"epsilon"}, option("dims", 1)};
constexpr OpAttribute dim[] = {{"dim", /*isString=*/true}};

constexpr OpSignature vocabulary[] = {
    {"embed", 2, 2, shift},
    {"add", 2, 2, {}},
    {"mul", 2, 2, {}},
    {"scale", 1, 1, factor},
    {"shift", 1, 1, by},
    {"linear", 2, 3, {}},
    {"concat", 2, 2, dim},
    {"soft_cap", 1, 1, cap},
    {"plain_layer_norm", 1, 1, plainNorm},
    {"plain_rms_norm", 1, 1, plainNorm},
    {"layer_norm", 2, 3, norm},
    {"rms_norm", 2, 2, norm},
    {"activation", 1, 1, activation},
    {"xielu", 5, 5, {}},
    {"clamp", 1, 1, clamp},
    {"rope", 1, 1, rope},
    {"alibi", 2, 2, alibi, 2},
    {"temperature", 1, 1, temperature},
    {"attention", 3, 5, attention},
    {"dropout", 1, 1, rate},
    {"cross_entropy", 3, 3, {}},
    {"further_loss", 3, 3, factor},
    {"route", 1, 2, route, 2},
    {"gate", 2, 2, gate},
    {"balance_loss", 3, 3, balanceLoss},
    {"balance_bias", 2, 2, {}},
    {"z_loss", 2, 2, factor},
    {"l2_norm", 1, 1, squares},
    {"causal_conv", 2, 3, {}},
    {"decay", 3, 3, {}, 2},
    {"recurrence", 5, 6, state},
    {"dispatch", 3, 4, {}},
    {"grouped_linear", 2, 3, {}},
    {"combine", 3, 4, {}},
};
} // namespace

std::span<const OpSignature> opVocabulary() { return vocabulary; }

const OpSignature *opSignature(std::string_view kind) {
  for (const OpSignature &signature : vocabulary)
    if (signature.kind == kind)
      return &signature;
  return nullptr;
}

double number(const OpDescription &op, std::string_view name) {
  if (auto given = op.numbers.find(std::string(name)); given != op.numbers.end())
    return given->second;
  std::span<const OpAttribute> attributes = opSignature(op.kind)->attributes;
  auto attribute = std::ranges::find(attributes, name, &OpAttribute::name);
  assert(attribute != attributes.end() && attribute->defaultNumber && "an attribute without a default is required");
  return *attribute->defaultNumber;
}

} // namespace espalier
