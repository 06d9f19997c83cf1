// A module's values and parameters have the names of those that it copies, behind a prefix.
#include "compiler/import/model/further_tokens.h"

#include "format/model_inputs.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

namespace espalier {
namespace {

constexpr const char *pairDim = "mtp_pair"; // the embedding, then the hidden state

/// Returns `name` as an input of the samples, `further` tokens later.
std::string later(const std::string &name, int further) {
  return further == 0 ? name : fmt::format("{}_{}", name, further);
}

SegmentDescription &segmentOf(ModelDescription &model, const SegmentRun &run) {
  return *std::ranges::find(model.segments, run.kind, &SegmentDescription::kind);
}

class FurtherTokens {
public:
  FurtherTokens(ModelDescription &model, int depth, double factor)
      : model(model), embed(segmentOf(model, model.runs.front())), layer(segmentOf(model, model.runs.rbegin()[1])),
        head(segmentOf(model, model.runs.back())), headOps(head.ops), factor(factor / depth) {}

  /// Returns why modules cannot be added, or an empty string.
  std::string fault() const {
    const OpDescription &first = headOps.front();
    if (first.inputs.front() != head.streamIn || first.kind.find("norm") == std::string::npos)
      return "the model's head has no norm in front of it";
    for (const OpDescription &op : embed.ops)
      if (std::ranges::count(op.inputs, "positions") > 0)
        return "the model's embedding reads positions";
    return "";
  }

  void add(int module) {
    prefix = rt::furtherPrefix(module);
    std::string hidden = module == 1 ? headOps.front().outputs.front() : lastHidden;
    std::string token = copyEmbedding(module), pair = prefix + "pair", stream = prefix + "stream";
    addOp("concat", {norm("token_", token), norm("hidden_", hidden)}, pair).strings["dim"] = pairDim;
    ParameterDescription project{.name = prefix + "project_weight", .dims = {pairDim, "hidden"}};
    project.initializer = initializerOfProducts();
    head.parameters.push_back(project);
    addOp("linear", {pair, project.name}, stream);
    for (const ParameterDescription &parameter : layer.parameters)
      head.parameters.push_back(own(parameter));
    names = {{layer.streamIn, stream}};
    for (const OpDescription &op : layer.ops)
      copyOp(op);
    lastHidden = norm("last_", names.at(layer.streamOut));
    copyHead(module);
  }

private:
  OpDescription &addOp(const std::string &kind, std::vector<std::string> inputs, const std::string &output) {
    OpDescription op{.kind = kind, .inputs = std::move(inputs), .outputs = {output}};
    op.location = headOps.front().location;
    return head.ops.emplace_back(std::move(op));
  }

  ParameterDescription own(ParameterDescription parameter) const {
    parameter.name = prefix + parameter.name;
    return parameter;
  }

  /// Products start like the weights of the layer's first product.
  Initializer initializerOfProducts() const {
    for (const ParameterDescription &parameter : layer.parameters)
      if (parameter.dims.size() > 1 && parameter.initializer.kind == rt::pb::Initialization::NORMAL)
        return parameter.initializer;
    return {rt::pb::Initialization::NORMAL, 0.02};
  }

  /// Adds a norm like that of the head, with parameters of its own. Returns its result.
  std::string norm(const std::string &which, const std::string &of) {
    OpDescription op = headOps.front();
    op.inputs.front() = of;
    for (size_t i = 1; i < op.inputs.size(); ++i) {
      auto like = std::ranges::find(head.parameters, op.inputs[i], &ParameterDescription::name);
      ParameterDescription parameter = *like;
      op.inputs[i] = parameter.name = prefix + which + parameter.name;
      head.parameters.push_back(parameter);
    }
    op.outputs = {prefix + which + "normal"};
    head.ops.push_back(op);
    return op.outputs.front();
  }

  /// Appends a copy of an op of another segment whose inputs are renamed by `names`. Its outputs get the prefix.
  OpDescription &copyOp(OpDescription op) {
    for (std::string &input : op.inputs)
      if (auto known = names.find(input); known != names.end())
        input = known->second;
      else if (!rt::modelInput(input))
        input = prefix + input;
    for (std::string &output : op.outputs)
      output = names[output] = prefix + output;
    return head.ops.emplace_back(std::move(op));
  }

  /// Adds the embedding of the token that stands `module` tokens later, which is the label `module` - 1 tokens later.
  std::string copyEmbedding(int module) {
    names = {{"tokens", later("labels", module - 1)}};
    for (const ParameterDescription &parameter : embed.parameters) {
      std::string owner = embed.kind + "." + parameter.name;
      auto tied = std::ranges::find(head.parameters, owner, &ParameterDescription::tiedTo);
      if (tied == head.parameters.end()) {
        ParameterDescription shared = parameter;
        shared.name = "mtp_" + parameter.name;
        shared.tiedTo = owner;
        tied = head.parameters.insert(head.parameters.end(), shared);
      }
      names[parameter.name] = tied->name;
    }
    for (const OpDescription &op : embed.ops)
      copyOp(op);
    return names.at(embed.streamOut);
  }

  /// Adds the ops of the head behind its norm, with the head's own parameters, and the loss of the module.
  void copyHead(int module) {
    names = {{headOps.front().outputs.front(), lastHidden},
             {"labels", later("labels", module)},
             {"loss_weights", later("loss_weights", module)}};
    for (const ParameterDescription &parameter : head.parameters)
      names.emplace(parameter.name, parameter.name);
    for (size_t i = 1; i < headOps.size(); ++i) {
      OpDescription &op = copyOp(headOps[i]);
      if (op.kind == "cross_entropy") {
        op.kind = "further_loss";
        op.numbers["factor"] = factor;
      }
    }
  }

  ModelDescription &model;
  const SegmentDescription &embed, &layer;
  SegmentDescription &head;
  const std::vector<OpDescription> headOps; ///< of the head without modules
  const double factor;
  std::string prefix, lastHidden;
  std::map<std::string, std::string> names;
};

/// Replaces the first `{i}` and what stands before it.
std::string withLayer(const std::string &pattern, const std::string &layer) {
  return layer + pattern.substr(pattern.find("{i}") + 3);
}

/// Returns what a rule of the layer holds, for a module; empty if it holds parameters of other layers.
std::string heldBy(const std::string &holds, const SegmentDescription &layer, const std::string &prefix) {
  std::istringstream words(holds.substr(0, holds.find('=')));
  std::string result;
  for (std::string word; words >> word;) {
    size_t dot = word.find('.');
    std::string name = word.substr(dot == std::string::npos ? 0 : dot + 1);
    bool isOther = dot != std::string::npos && word.substr(0, dot) != layer.kind;
    if (isOther || std::ranges::find(layer.parameters, name, &ParameterDescription::name) == layer.parameters.end())
      return "";
    result += prefix + name + " ";
  }
  return result + (holds.find('=') == std::string::npos ? "" : holds.substr(holds.find('=')));
}

} // namespace

void addFurtherTokens(int depth, double factor, const SourceLocation &where, ModelDescription &model,
                      Diagnostics &diagnostics) {
  if (depth == 0 || model.runs.size() < 3 || model.segments.empty())
    return;
  FurtherTokens modules(model, depth, factor);
  if (std::string fault = modules.fault(); !fault.empty())
    return diagnostics.error(
        where, fmt::format("{}, so no module can predict further tokens: set mtp_num_layers to 0", fault));
  model.dims[pairDim] = 2 * model.dims.at("hidden");
  for (int module = 1; module <= depth; ++module)
    modules.add(module);
}

NamedParameters furtherNames(int depth, const ModelDescription &model, const std::string &system,
                             const NamedParameters &rules) {
  auto layered =
      std::ranges::find_if(rules, [](const auto &rule) { return rule.first.find("{i}") != std::string::npos; });
  NamedParameters added;
  if ((system != "hf" && system != "mcore") || layered == rules.end())
    return added;
  const SegmentDescription &layer = model.segment(model.runs.rbegin()[1].kind);
  bool isHf = system == "hf";
  for (int module = 1; module <= depth; ++module) {
    std::string prefix = rt::furtherPrefix(module);
    std::string place = isHf ? fmt::format("{}{}", layered->first.substr(0, layered->first.find("{i}")),
                                           model.layerCount() + module - 1)
                             : fmt::format("mtp.layers.{}", module - 1);
    for (const auto &[pattern, holds] : rules)
      if (std::string held = heldBy(holds, layer, prefix); pattern.find("{i}") != std::string::npos && !held.empty())
        added.emplace_back(withLayer(pattern, place + (isHf ? "" : ".(transformer_layer|mtp_model_layer)")), held);
    const SegmentDescription &head = model.segment(model.runs.back().kind);
    auto addNorm = [&](const std::string &which, const std::string &name) {
      for (const char *part : {"weight", "bias"})
        for (const ParameterDescription &parameter : head.parameters)
          if (parameter.name.starts_with(prefix + which) && parameter.name.ends_with(part))
            added.emplace_back(fmt::format("{}.{}.{}", place, name, part), parameter.name);
    };
    addNorm("token_", "enorm");
    addNorm("hidden_", "hnorm");
    addNorm("last_", isHf ? "shared_head.norm" : "final_layernorm");
    added.emplace_back(place + ".eh_proj.weight", fmt::format("{}project_weight = hidden {}", prefix, pairDim));
  }
  return added;
}

} // namespace espalier
