#include "compiler/import/model/check_ops.h"

#include "compiler/import/model/rotary_form.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {

namespace {

/// Reports scores that have no meaning, and groups that do not split the experts.
void checkRouting(const OpDescription &op, const ModelDescription &model, Diagnostics &diagnostics) {
  if (auto score = op.strings.find("score");
      score != op.strings.end() && score->second != "softmax" && score->second != "sigmoid")
    diagnostics.error(op.location, fmt::format("no score '{}', there are sigmoid, softmax", score->second));
  auto number = [&](const char *name) {
    auto found = op.numbers.find(name);
    return found == op.numbers.end() ? 1 : static_cast<int64_t>(found->second);
  };
  int64_t groups = number("groups"), kept = number("kept_groups"), experts = 0, choices = 0;
  for (auto [dim, size] : {std::pair("router", &experts), {"choice", &choices}})
    if (auto found = model.dims.find(dim); found != model.dims.end())
      *size = found->second;
  bool isReported = diagnostics.hasErrors() && (groups == 0 || kept == 0); // a wrong size is 0
  if (op.kind != "route" || experts == 0 || choices == 0 || isReported)
    return;
  bool isGrouped = groups >= 1 && groups <= 32 && experts % groups == 0 && kept >= 1 && kept <= groups;
  if (!isGrouped)
    diagnostics.error(op.location, fmt::format("wanted 1 to 32 equal groups of the {} experts, of which at most all "
                                               "are kept, got {} of {} groups",
                                               experts, kept, groups));
  else if (kept * (experts / groups) < choices)
    diagnostics.error(op.location, fmt::format("{} of {} groups have {} experts, wanted at least {}, which a token "
                                               "chooses",
                                               kept, groups, kept * (experts / groups), choices));
}

} // namespace

void checkOp(const OpDescription &op, const ModelDescription &model, const SizeTable &sizes,
             const SourceLocation &headDimPlace, Diagnostics &diagnostics) {
  const std::vector<std::string> activations = {"fast_gelu", "gelu", "gelu_tanh", "relu", "relu2", "sigmoid", "silu"};
  auto kind = op.strings.find("kind"); // empty if an error has been reported
  if (op.kind == "activation" && kind != op.strings.end() && !kind->second.empty() &&
      std::find(activations.begin(), activations.end(), kind->second) == activations.end())
    diagnostics.error(op.location,
                      fmt::format("no activation '{}', there are {}", kind->second, fmt::join(activations, ", ")));
  checkRouting(op, model, diagnostics);
  auto headDim = model.dims.find("head_dim");
  if (op.kind != "rope" || headDim == model.dims.end() || headDim->second == 0)
    return;
  auto fraction = op.numbers.find("fraction");
  if (fraction == op.numbers.end() && headDim->second % 2 != 0)
    diagnostics.error(
        headDimPlace,
        fmt::format(
            "rotary positions turn pairs of a head's values, wanted an even head_dim, got {}{}", headDim->second,
            sizes.count("head_dim") && sizes.at("head_dim").number ? "" : "; choose hidden_size and num_heads so"));
  int64_t rotary = rotaryColumns(op, headDim->second);
  if (op.numbers.contains("last") && (rotary % 2 != 0 || rotary > headDim->second))
    diagnostics.error(op.location,
                      fmt::format("rotary positions turn pairs of a head's values, wanted an even number of "
                                  "columns up to {}, got {}",
                                  headDim->second, rotary));
  if (fraction != op.numbers.end() && (rotary % 2 != 0 || rotary > headDim->second))
    diagnostics.error(headDimPlace,
                      fmt::format("rotary positions turn pairs of a head's values, wanted an even part of "
                                  "a head_dim of {}, got {} columns for the fraction {}",
                                  headDim->second, rotary, fraction->second));
  if (std::string fault = scalingFault(op); !fault.empty())
    diagnostics.error(op.location, fault);
}

} // namespace espalier
