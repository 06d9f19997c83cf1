// A module is found by the parameters of its matrix products. Which dimensions a product contracts follows from the
// dimensions of the values of its segment.
#include "compiler/import/model/adapters.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <sstream>

namespace espalier {
namespace {

using Dims = std::vector<std::string>;

constexpr const char *rankDim = "lora_rank";

bool has(const Dims &dims, const std::string &dim) { return std::ranges::find(dims, dim) != dims.end(); }

Dims wordsOf(const std::string &text) {
  std::istringstream stream(text);
  Dims words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

/// A module of another system: its name and the parameters that its matrix product has.
struct Module {
  std::string pattern; ///< without `.weight`: "model.layers.{i}.self_attn.q_proj"
  std::vector<std::string> parameters;
  std::vector<std::string> axes; ///< of the weight's layout, empty if unknown: "(kv_heads head_dim)", "hidden"

  bool isOfLayers() const { return pattern.find("{i}") != std::string::npos; }
  /// Returns the name of the module in a layer, in the first spelling.
  std::string name(int64_t layer) const;
  /// Returns "q_proj" of "model.layers.{i}.self_attn.q_proj".
  std::string shortName() const { return pattern.substr(pattern.rfind('.') + 1); }
};

std::string Module::name(int64_t layer) const {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '{') {
      size_t end = pattern.find('}', i);
      name += pattern.compare(i, 3, "{i}") == 0 ? std::to_string(layer) : "0";
      i = end;
    } else if (pattern[i] == '(') {
      size_t end = pattern.find(')', i);
      name += pattern.substr(i + 1, pattern.find('|', i) - i - 1);
      i = end;
    } else {
      name += pattern[i];
    }
  }
  return name;
}

/// Splits a layout into its axes: "(kv_heads head_dim) hidden" has two.
std::vector<std::string> axesOf(const std::string &layout) {
  std::vector<std::string> axes;
  bool isOpen = false;
  for (const std::string &word : wordsOf(layout)) {
    if (isOpen)
      axes.back() += " " + word;
    else
      axes.push_back(word);
    isOpen = (isOpen || word.starts_with('(')) && !word.ends_with(')');
  }
  return axes;
}

std::vector<Module> modulesOf(const NamedParameters &names, const std::string &suffix) {
  std::vector<Module> modules;
  for (const auto &[pattern, holds] : names) {
    size_t equals = holds.find('=');
    Module module{pattern, wordsOf(holds.substr(0, equals)), {}};
    if (!pattern.ends_with(suffix) || holds.starts_with("tied ") || holds == "derived")
      continue;
    module.pattern.resize(pattern.size() - suffix.size());
    if (equals != std::string::npos)
      module.axes = axesOf(holds.substr(equals + 1));
    modules.push_back(std::move(module));
  }
  return modules;
}

/// Finds the dimensions of the values of a segment.
class ValueDims {
public:
  explicit ValueDims(const SegmentDescription &segment) {
    known[segment.streamIn] = {"batch", "seq", "hidden"};
    for (const ParameterDescription &parameter : segment.parameters)
      known[parameter.name] = parameter.dims;
    for (const OpDescription &op : segment.ops)
      add(op);
  }

  const Dims &of(const std::string &value) { return known[value]; }

private:
  void add(const OpDescription &op) {
    const Dims &first = of(op.inputs.front());
    Dims dims = first;
    if (op.kind == "embed") {
      dims = {"batch", "seq", first.back()};
    } else if (op.kind == "linear" || op.kind == "grouped_linear") {
      dims = productDims(first, of(op.inputs[1]), op.kind == "grouped_linear");
    } else if (op.kind == "add" || op.kind == "mul") {
      const Dims &second = of(op.inputs[1]);
      dims = second.size() > first.size() ? second : first;
    } else if (op.kind == "attention") {
      dims.back() = of(op.inputs[2]).back(); // values may be shorter than keys
    } else if (op.kind == "dispatch") {
      dims = {"expert", "batch", "capacity", of(op.inputs[2]).back()};
    } else if (op.kind == "combine") {
      dims = {"batch", "seq", of(op.inputs[2]).back()};
    } else if (op.kind == "route") {
      dims = {"choice", "batch", "seq"};
    } else if (op.kind == "gate") {
      dims = of(op.inputs[1]);
    }
    for (const std::string &output : op.outputs)
      known[output] = dims;
  }

  static Dims productDims(const Dims &x, const Dims &weight, bool perExpert) {
    Dims dims;
    for (const std::string &dim : x)
      if (!has(weight, dim) || (perExpert && dim == "expert"))
        dims.push_back(dim);
    for (const std::string &dim : weight)
      if (!has(x, dim))
        dims.push_back(dim);
    return dims;
  }

  std::map<std::string, Dims> known;
};

class AdapterAdder {
public:
  AdapterAdder(const AdapterConfig &config, ModelDescription &model, Diagnostics &diagnostics)
      : config(config), model(model), diagnostics(diagnostics) {}

  NamedParameters run(const NamedParameters &weights, const NamedParameters &names) {
    std::vector<Module> modules = modulesOf(weights, ".weight"), others = modulesOf(names, "");
    modules.insert(modules.end(), others.begin(), others.end());
    std::erase_if(modules, [this](const Module &module) { return !isProduct(module); });
    for (const Module &module : modules)
      if (isSelected(module))
        choose(module);
    if (chosen.empty() && !diagnostics.hasErrors())
      refuse(modules);
    if (diagnostics.hasErrors())
      return {};
    model.dims[rankDim] = config.rank;
    for (SegmentDescription &segment : model.segments)
      adapt(segment);
    return peftNames(modules);
  }

private:
  /// Returns whether each parameter of the module is the weight of a matrix product and has its own storage.
  bool isProduct(const Module &module) const {
    return !module.parameters.empty() && std::ranges::all_of(module.parameters, [this](const std::string &name) {
      bool isFound = false;
      for (const SegmentDescription &segment : model.segments) {
        auto isIt = [&](const ParameterDescription &one) { return one.name == name; };
        auto parameter = std::ranges::find_if(segment.parameters, isIt);
        if (parameter == segment.parameters.end())
          continue;
        auto isOfIt = [&](const OpDescription &op) { return isProductOf(op, name); };
        if (!parameter->tiedTo.empty() || std::ranges::count_if(segment.ops, isOfIt) != 1)
          return false;
        isFound = true;
      }
      return isFound;
    });
  }

  static bool isProductOf(const OpDescription &op, const std::string &weight) {
    return (op.kind == "linear" || op.kind == "grouped_linear") && op.inputs[1] == weight;
  }

  /// Returns whether the targets select the module in all layers that have it. Reports an error if they select it in
  /// some of these layers only, because layers of one kind are one function.
  bool isSelected(const Module &module) {
    if (!module.isOfLayers())
      return config.selects(module.name(0));
    int64_t layer = 0, layers = 0, selected = 0;
    for (size_t i = 1; i + 1 < model.runs.size(); ++i) {
      const SegmentDescription &segment = model.segment(model.runs[i].kind);
      bool isHere = std::ranges::any_of(segment.parameters, [&](const ParameterDescription &parameter) {
        return parameter.name == module.parameters.front();
      });
      for (int repeat = 0; repeat < model.runs[i].count; ++repeat, ++layer) {
        layers += isHere;
        selected += isHere && config.selects(module.name(layer));
      }
    }
    if (selected > 0 && selected < layers)
      diagnostics.error(config.where, fmt::format("target_modules selects {} in {} of {} layers, wanted all or none: a "
                                                  "pattern that names no layer selects all",
                                                  module.shortName(), selected, layers));
    return selected > 0 && selected == layers;
  }

  /// Adds the module to the chosen ones, unless earlier ones have its parameters.
  void choose(const Module &module) {
    if (std::ranges::any_of(module.parameters, [this](const std::string &name) { return sharedOf.count(name) > 0; }))
      return;
    chosen.push_back(module.parameters);
    for (const std::string &name : module.parameters)
      sharedOf[name] = module.parameters.front() + "_lora_a";
  }

  void refuse(const std::vector<Module> &modules) {
    std::set<std::string> names;
    for (const Module &module : modules)
      names.insert(module.shortName());
    diagnostics.error(config.where, fmt::format("target_modules {} selects no matrix product of {}, there are {}",
                                                fmt::join(config.targets, ", "), model.name, fmt::join(names, ", ")));
  }

  /// Adds the adapters of a segment and freezes its other parameters.
  void adapt(SegmentDescription &segment) {
    ValueDims dims(segment);
    std::vector<OpDescription> ops;
    for (ParameterDescription &parameter : segment.parameters)
      parameter.frozen = true;
    std::map<std::string, std::string> inputs; // of each matrix A: the value it multiplies
    for (OpDescription &op : segment.ops) {
      bool isProduct = op.kind == "linear" || op.kind == "grouped_linear";
      auto shared = isProduct ? sharedOf.find(op.inputs[1]) : sharedOf.end();
      if (shared == sharedOf.end())
        ops.push_back(std::move(op));
      else if (auto [input, isNew] = inputs.try_emplace(shared->second, op.inputs[0]); input->second != op.inputs[0])
        diagnostics.error(config.where, fmt::format("{} is part of a module whose products have several inputs; name "
                                                    "other target_modules",
                                                    op.inputs[1]));
      else if (op.kind == "grouped_linear" && config.dropout > 0) // an expert's slots are no positions of samples
        diagnostics.error(config.where, fmt::format("{} belongs to experts, whose adapters have no dropout: set "
                                                    "lora_dropout: 0",
                                                    op.inputs[1]));
      else
        addProduct(segment, op, shared->second, isNew, dims, ops);
    }
    segment.ops = std::move(ops);
  }

  /// Writes the ops of x W + scale (dropout(x) A) B. With `isNew`, also those of scale (dropout(x) A).
  void addProduct(SegmentDescription &segment, const OpDescription &op, const std::string &a, bool isNew,
                  ValueDims &dims, std::vector<OpDescription> &ops) {
    const std::string weight = op.inputs[1], b = weight + "_lora_b", out = op.outputs[0], low = a + "_x";
    Dims in, left, x = dims.of(op.inputs[0]);
    auto add = [&](const char *kind, std::vector<std::string> inputs, std::string output) -> OpDescription & {
      return ops.emplace_back(OpDescription{kind, std::move(inputs), {std::move(output)}, {}, {}, op.location});
    };
    auto parameter = std::ranges::find(segment.parameters, weight, &ParameterDescription::name);
    Dims experts;
    for (const std::string &dim : parameter->dims)
      (op.kind == "grouped_linear" && dim == "expert" ? experts : has(x, dim) ? in : left).push_back(dim);
    parameter->adapterA = a;
    parameter->adapterB = b;
    SourceLocation where = parameter->location;
    auto declare = [&](const std::string &name, const Dims &rows, const Dims &columns, Initializer initializer) {
      ParameterDescription made;
      made.name = name;
      made.dims = experts;
      made.initializer = initializer;
      made.dims.insert(made.dims.end(), rows.begin(), rows.end());
      made.dims.insert(made.dims.end(), columns.begin(), columns.end());
      made.isAdapter = true;
      made.location = where;
      segment.parameters.push_back(std::move(made));
    };
    if (isNew) {
      double fanIn = 1;
      for (const std::string &dim : in)
        fanIn *= static_cast<double>(model.dims.at(dim));
      declare(a, in, {rankDim}, {rt::pb::Initialization::NORMAL, 1 / std::sqrt(3 * fanIn)});
      add("dropout", {op.inputs[0]}, a + "_kept").numbers["rate"] = config.dropout;
      add(op.kind.c_str(), {a + "_kept", a}, a + "_low");
      add("scale", {a + "_low"}, low).numbers["factor"] = config.alpha / static_cast<double>(config.rank);
    }
    declare(b, {rankDim}, left, {rt::pb::Initialization::ZEROS, 0});
    bool hasBias = op.inputs.size() > 2;
    add(op.kind.c_str(), {op.inputs[0], weight}, out + "_base");
    add(op.kind.c_str(), {low, b}, out + "_lora");
    add("add", {out + "_base", out + "_lora"}, hasBias ? out + "_sum" : out);
    if (hasBias)
      add("add", {out + "_sum", op.inputs[2]}, out);
  }

  /// Returns the names of the chosen parameters in peft's files, if transformers has the same modules.
  NamedParameters peftNames(const std::vector<Module> &modules) const {
    NamedParameters names;
    for (const std::vector<std::string> &parameters : chosen) {
      auto isIt = [&](const Module &module) { return module.parameters == parameters && isNamed(module); };
      auto module = std::ranges::find_if(modules, isIt);
      if (module == modules.end())
        continue;
      auto [in, out] = axesOfProduct(*module);
      std::string stem = "base_model.model." + module->pattern, holders;
      for (const std::string &parameter : parameters)
        holders += parameter + "_lora_b ";
      names.emplace_back(stem + ".lora_A.weight", fmt::format("{}_lora_a = {} {}", parameters.front(), rankDim, in));
      names.emplace_back(stem + ".lora_B.weight", fmt::format("{}= {} {}", holders, out, rankDim));
    }
    return names;
  }

  /// Returns whether transformers has the module and its weight is a matrix.
  bool isNamed(const Module &module) const {
    return module.axes.size() == 2 || (module.axes.empty() && module.parameters.size() == 1 &&
                                       parameter(module.parameters.front()).dims.size() == 2);
  }

  const ParameterDescription &parameter(const std::string &name) const {
    for (const SegmentDescription &segment : model.segments)
      for (const ParameterDescription &one : segment.parameters)
        if (one.name == name)
          return one;
    return model.segments.front().parameters.front(); // isProduct() has found the parameter
  }

  /// Returns the axes of a weight's layout: the contracted one and the other one.
  std::pair<std::string, std::string> axesOfProduct(const Module &module) const {
    const ParameterDescription &weight = parameter(module.parameters.front());
    const std::vector<std::string> &axes = module.axes.empty() ? weight.dims : module.axes;
    const Dims &in = parameter(weight.adapterA).dims;
    std::string first = axes[0];
    std::erase_if(first, [](char c) { return c == '(' || c == ')' || c == '*' || c == '|'; });
    Dims dims = wordsOf(first);
    bool isIn = std::ranges::all_of(dims, [&](const std::string &dim) { return has(in, dim); });
    return isIn ? std::pair(axes[0], axes[1]) : std::pair(axes[1], axes[0]);
  }

  const AdapterConfig &config;
  ModelDescription &model;
  Diagnostics &diagnostics;
  std::vector<std::vector<std::string>> chosen; ///< the parameters of each chosen module
  std::map<std::string, std::string> sharedOf;  ///< the matrix A of each parameter
};

} // namespace

bool AdapterConfig::selects(const std::string &module) const {
  if (pattern)
    return pattern->find(module, 0).first == 0;
  return std::ranges::any_of(targets,
                             [&](const std::string &name) { return module == name || module.ends_with("." + name); });
}

NamedParameters addAdapters(const AdapterConfig &config, const NamedParameters &weights, const NamedParameters &modules,
                            ModelDescription &model, Diagnostics &diagnostics) {
  return AdapterAdder(config, model, diagnostics).run(weights, modules);
}

} // namespace espalier
