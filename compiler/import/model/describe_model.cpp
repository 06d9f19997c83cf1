// Builds a ModelDescription from an architecture and its sizes: dimensions, parameters, ops, runs. Checks every name,
// so that readers of the description need no checks.
#include "compiler/import/model/architecture.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/model/op_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace espalier {
namespace {

class ModelDescriber {
public:
  ModelDescriber(const Architecture &architecture, const SizeTable &sizes, Diagnostics &diagnostics)
      : architecture(architecture), sizes(sizes), diagnostics(diagnostics) {}

  ModelDescription run() {
    model.name = architecture.name;
    readDims(*architecture.root->find("dims"));
    for (const YamlEntry &entry : architecture.root->find("segments")->entries)
      readSegment(entry);
    for (SegmentDescription &segment : model.segments)
      checkTies(segment);
    readRuns(*architecture.root->find("model"));
    checkParameterCount();
    return std::move(model);
  }

private:
  std::optional<double> lookup(const std::string &name, bool &known) const {
    auto size = sizes.find(name);
    known = size != sizes.end();
    return known ? size->second.number : std::nullopt;
  }
  ExpressionValue evaluate(const std::string &text) const {
    return evaluateExpression(text, [this](const std::string &name, bool &known) { return lookup(name, known); });
  }
  /// Returns the location of the run-file value that caused an invalid derived value, or `fallback` if there is none.
  SourceLocation blame(const ExpressionValue &value, const SourceLocation &fallback) const {
    for (const std::string &name : value.names)
      if (auto size = sizes.find(name); size != sizes.end() && size->second.given)
        return size->second.where;
    return fallback;
  }
  bool isFaulty(const ExpressionValue &value) const {
    return std::ranges::any_of(value.names, [this](const std::string &name) {
      auto size = sizes.find(name);
      return size != sizes.end() && size->second.isFaulty;
    });
  }
  double number(const YamlNode &node) {
    if (std::optional<bool> flag = yamlBool(node))
      return *flag;
    ExpressionValue value = evaluate(node.text);
    if (!value.value && !isFaulty(value))
      diagnostics.error(node.where,
                        value.fault.empty() ? fmt::format("'{}' has no value here", node.text) : value.fault);
    return value.value.value_or(0);
  }

  void readDims(const YamlNode &dims) {
    for (const YamlEntry &entry : dims.entries) {
      const std::string &text = entry.value->text;
      ExpressionValue value = evaluate(text);
      model.dims[entry.key] = 0; // unknown; replaced below unless there is an error
      if (isFaulty(value))
        continue;
      if (!value.value) {
        diagnostics.error(entry.value->where,
                          value.fault.empty() ? fmt::format("dim '{}' has no value", entry.key) : value.fault);
      } else if (*value.value != std::floor(*value.value)) {
        diagnostics.error(blame(value, entry.value->where), notAMultiple(entry.key, text, *value.value));
      } else if (*value.value < 1 || *value.value > 1e12) {
        diagnostics.error(blame(value, entry.value->where),
                          fmt::format("{} is {:.10g}, must be between 1 and 1e12", entry.key, *value.value));
      } else {
        model.dims[entry.key] = static_cast<int64_t>(*value.value);
        if (entry.key == "head_dim")
          headDimPlace = blame(value, entry.value->where);
      }
    }
  }
  /// Returns "hidden_size (128) is not a multiple of num_heads (3)" if the expression is a quotient of two names or
  /// contains one, as in first_of(head_dim, hidden_size / num_heads).
  std::string notAMultiple(const std::string &dim, const std::string &text, double value) const {
    constexpr const char *delimiters = " ,()";
    size_t slash = text.find(" / ");
    if (slash != std::string::npos) {
      size_t begin = text.find_last_of(delimiters, slash - 1) + 1, end = text.find_first_of(delimiters, slash + 3);
      std::string over = text.substr(begin, slash - begin), under = text.substr(slash + 3, end - slash - 3);
      if (sizes.count(over) && sizes.count(under))
        return fmt::format("{} ({:.10g}) is not a multiple of {} ({:.10g})", over, sizes.at(over).number.value_or(0),
                           under, sizes.at(under).number.value_or(0));
    }
    return fmt::format("{} must be a whole number, {} gives {:.10g}", dim, text, value);
  }

  void checkKeys(const YamlNode &map, const std::vector<std::string> &known, const std::string &place) {
    for (const YamlEntry &entry : map.entries)
      if (std::find(known.begin(), known.end(), entry.key) == known.end())
        diagnostics.error(entry.keyWhere,
                          fmt::format("unknown key '{}' in {}{}", entry.key, place, didYouMean(entry.key, known)));
  }

  void readSegment(const YamlEntry &entry);
  void readParameter(SegmentDescription &segment, const YamlEntry &entry);
  Initializer readInitializer(const YamlNode &node);
  void readOp(SegmentDescription &segment, const YamlNode &node, std::set<std::string> &values);
  void readAttributes(OpDescription &op, const OpSignature &signature, const YamlNode &node);
  void checkTies(SegmentDescription &segment);
  void checkAllUsed(const SegmentDescription &segment);
  void readRuns(const YamlNode &runs);
  void checkParameterCount();

  const Architecture &architecture;
  const SizeTable &sizes;
  Diagnostics &diagnostics;
  ModelDescription model;
  SourceLocation headDimPlace; ///< location of the value that head_dim comes from
};

void ModelDescriber::readSegment(const YamlEntry &entry) {
  SegmentDescription segment;
  segment.kind = entry.key;
  segment.location = entry.keyWhere;
  checkKeys(*entry.value, {"stream", "parameters", "ops"}, "a segment");
  std::set<std::string> values(modelInputs().begin(), modelInputs().end());
  if (const YamlNode *stream = entry.value->find("stream")) {
    checkKeys(*stream, {"in", "out"}, "stream");
    if (const YamlNode *in = stream->find("in"))
      values.insert(segment.streamIn = in->text);
    if (const YamlNode *out = stream->find("out"))
      segment.streamOut = out->text;
  }
  if (const YamlNode *parameters = entry.value->find("parameters"))
    for (const YamlEntry &parameter : parameters->entries) {
      readParameter(segment, parameter);
      if (!values.insert(parameter.key).second)
        diagnostics.error(parameter.keyWhere, fmt::format("'{}' names a value already", parameter.key));
    }
  if (const YamlNode *ops = entry.value->find("ops"))
    for (const YamlPtr &op : ops->items)
      readOp(segment, *op, values);
  checkAllUsed(segment);
  if (segment.streamOut.empty() || !values.count(segment.streamOut))
    diagnostics.error(segment.location, fmt::format("segment '{}' needs stream: {{out: NAME}} with the "
                                                    "name of one of its values",
                                                    segment.kind));
  model.segments.push_back(std::move(segment));
}

void ModelDescriber::readParameter(SegmentDescription &segment, const YamlEntry &entry) {
  ParameterDescription parameter;
  parameter.name = entry.key;
  parameter.location = entry.keyWhere;
  checkKeys(*entry.value, {"dims", "init", "decay", "frozen", "tied", "when"}, "a parameter");
  const YamlNode *when = entry.value->find("when"); // a size of the run that decides whether the parameter is tied
  if (const YamlNode *tied = entry.value->find("tied"); tied && (!when || number(*when) != 0)) {
    parameter.tiedTo = tied->text;
    segment.parameters.push_back(std::move(parameter));
    return;
  }
  parameter.dims = yamlTexts(entry.value->find("dims"));
  if (parameter.dims.empty())
    diagnostics.error(entry.keyWhere, fmt::format("parameter '{}' has no dims", entry.key));
  std::vector<std::string> known;
  for (const auto &[name, size] : model.dims)
    known.push_back(name);
  for (const std::string &dim : parameter.dims)
    if (!model.dims.count(dim))
      diagnostics.error(entry.keyWhere,
                        fmt::format("parameter '{}' has unknown dim '{}'{}", entry.key, dim, didYouMean(dim, known)));
  const YamlNode *init = entry.value->find("init");
  if (init)
    parameter.initializer = readInitializer(*init);
  else
    diagnostics.error(entry.keyWhere, fmt::format("parameter '{}' has no init", entry.key));
  parameter.decay = parameter.dims.size() > 1;
  if (const YamlNode *decay = entry.value->find("decay"))
    parameter.decay = number(*decay) != 0;
  if (const YamlNode *frozen = entry.value->find("frozen"))
    parameter.frozen = number(*frozen) != 0;
  segment.parameters.push_back(std::move(parameter));
}

Initializer ModelDescriber::readInitializer(const YamlNode &node) {
  if (node.text == "ones")
    return {Initializer::Kind::Ones, 0};
  if (node.text == "zeros")
    return {Initializer::Kind::Zeros, 0};
  if (const YamlNode *normal = node.find("normal"))
    return {Initializer::Kind::Normal, number(*normal)};
  diagnostics.error(node.where, fmt::format("init must be zeros, ones or {{normal: STDDEV}}, got {}", flowText(node)));
  return {};
}

void ModelDescriber::readOp(SegmentDescription &segment, const YamlNode &node, std::set<std::string> &values) {
  OpDescription op;
  op.location = node.where;
  const YamlNode *kind = node.find("op");
  op.kind = kind ? kind->text : "";
  op.inputs = yamlTexts(node.find("in"));
  op.outputs = yamlTexts(node.find("out"));
  const OpSignature *signature = opSignature(op.kind);
  if (!signature) {
    std::vector<std::string> kinds;
    for (const OpSignature &known : opVocabulary())
      kinds.emplace_back(known.kind);
    diagnostics.error(node.where, fmt::format("no op '{}', there are {}{}", op.kind, fmt::join(kinds, ", "),
                                              didYouMean(op.kind, kinds)));
  } else {
    int inputs = static_cast<int>(op.inputs.size());
    if (inputs < signature->leastInputs || inputs > signature->mostInputs)
      diagnostics.error(node.where, fmt::format("{} takes {} to {} inputs, got {}", op.kind, signature->leastInputs,
                                                signature->mostInputs, inputs));
    readAttributes(op, *signature, node);
  }
  if (int outputs = signature ? signature->outputs : 1; static_cast<int>(op.outputs.size()) != outputs)
    diagnostics.error(node.where, fmt::format("{} has {} output{}, got {}", op.kind, outputs == 1 ? "one" : "two",
                                              outputs == 1 ? "" : "s", op.outputs.size()));
  for (const std::string &input : op.inputs)
    if (!values.count(input))
      diagnostics.error(node.where, fmt::format("value '{}' is not known before this op{}", input,
                                                didYouMean(input, {values.begin(), values.end()})));
  for (const std::string &output : op.outputs)
    if (!values.insert(output).second)
      diagnostics.error(node.where, fmt::format("'{}' names a value already", output));
  segment.ops.push_back(std::move(op));
}

void ModelDescriber::readAttributes(OpDescription &op, const OpSignature &signature, const YamlNode &node) {
  std::vector<std::string> known = {"op", "in", "out"};
  for (const OpAttribute &attribute : signature.attributes) {
    std::string name(attribute.name);
    known.push_back(name);
    const YamlNode *value = node.find(name);
    if (!value && !attribute.defaultNumber)
      diagnostics.error(node.where, fmt::format("{} needs the attribute '{}'", op.kind, name));
    else if (!value)
      op.numbers[name] = *attribute.defaultNumber;
    else if (!attribute.isString)
      op.numbers[name] = number(*value);
    else if (auto size = sizes.find(value->text); size != sizes.end())
      op.strings[name] = size->second.text;
    else
      op.strings[name] = value->text;
  }
  checkKeys(node, known, op.kind);
  const std::vector<std::string> activations = {"fast_gelu", "gelu", "gelu_tanh", "relu", "silu"};
  if (op.kind == "activation" && !op.strings["kind"].empty() && // else an error has been reported
      std::find(activations.begin(), activations.end(), op.strings["kind"]) == activations.end())
    diagnostics.error(
        node.where, fmt::format("no activation '{}', there are {}", op.strings["kind"], fmt::join(activations, ", ")));
  auto headDim = model.dims.find("head_dim");
  if (op.kind == "rope" && headDim != model.dims.end() && headDim->second % 2 != 0)
    diagnostics.error(headDimPlace,
                      fmt::format("rotary positions turn pairs of a head's values, wanted an even head_dim, got {}; "
                                  "choose hidden_size and num_heads so",
                                  headDim->second));
  if (op.kind == "attention" && op.numbers["scale"] == 0 && headDim != model.dims.end())
    op.numbers["scale"] = 1 / std::sqrt(static_cast<double>(headDim->second));
}

/// Reports parameters that no op reads, because one of the two names must be wrong. Skips the check if an input is
/// unknown, because that may be the same mistake.
void ModelDescriber::checkAllUsed(const SegmentDescription &segment) {
  std::set<std::string> read, known(modelInputs().begin(), modelInputs().end());
  known.insert(segment.streamIn);
  for (const ParameterDescription &parameter : segment.parameters)
    known.insert(parameter.name);
  for (const OpDescription &op : segment.ops) {
    read.insert(op.inputs.begin(), op.inputs.end());
    known.insert(op.outputs.begin(), op.outputs.end());
  }
  if (!std::ranges::includes(known, read))
    return;
  for (const ParameterDescription &parameter : segment.parameters)
    if (!read.count(parameter.name))
      diagnostics.error(parameter.location,
                        fmt::format("no op of '{}' reads the parameter '{}'; name it among the inputs of one, or "
                                    "remove it",
                                    segment.kind, parameter.name));
}

void ModelDescriber::checkTies(SegmentDescription &segment) {
  for (ParameterDescription &parameter : segment.parameters) {
    if (parameter.tiedTo.empty())
      continue;
    const ParameterDescription *owner = nullptr;
    for (const SegmentDescription &other : model.segments)
      for (const ParameterDescription &candidate : other.parameters)
        if (other.kind + "." + candidate.name == parameter.tiedTo && candidate.tiedTo.empty())
          owner = &candidate;
    if (!owner) {
      diagnostics.error(parameter.location, fmt::format("tied to '{}', which is no parameter with "
                                                        "storage of its own",
                                                        parameter.tiedTo));
      continue;
    }
    parameter.dims = owner->dims;
    parameter.initializer = owner->initializer;
    parameter.decay = owner->decay;
    parameter.frozen = owner->frozen;
  }
}

void ModelDescriber::readRuns(const YamlNode &runs) {
  std::vector<std::string> kinds;
  for (const SegmentDescription &segment : model.segments)
    kinds.push_back(segment.kind);
  for (const YamlPtr &item : runs.items) {
    SegmentRun run;
    run.kind = item->isMap() && !item->entries.empty() ? item->entries.front().key : item->text;
    if (item->isMap() && item->entries.size() == 1) {
      ExpressionValue value = evaluate(item->entries.front().value->text);
      double count = number(*item->entries.front().value);
      bool isUsable = count >= 1 && count <= 100000 && count == std::floor(count);
      run.count = isUsable ? static_cast<int>(count) : 0;
      if (!isUsable && !isFaulty(value))
        diagnostics.error(blame(value, item->where), fmt::format("count of '{}' is {:.10g}, must be a whole number "
                                                                 "between 1 and 100000",
                                                                 run.kind, count));
    }
    if (std::find(kinds.begin(), kinds.end(), run.kind) == kinds.end())
      diagnostics.error(item->where, fmt::format("no segment '{}'{}", run.kind, didYouMean(run.kind, kinds)));
    model.runs.push_back(std::move(run));
  }
  if (model.runs.size() < 3 || model.runs.front().count != 1 || model.runs.back().count != 1)
    diagnostics.error(runs.where, "model needs a first segment, at least one layer and a last segment");
}

void ModelDescriber::checkParameterCount() {
  if (diagnostics.hasErrors())
    return;
  // Uses floating point so that the check itself cannot overflow.
  double total = 0;
  for (const SegmentRun &run : model.runs)
    for (const ParameterDescription &parameter : model.segment(run.kind).parameters) {
      double elements = run.count;
      for (const std::string &dim : parameter.dims)
        elements *= static_cast<double>(model.dims.at(dim));
      total += elements;
    }
  if (total > 1e16)
    diagnostics.error({architecture.file, 0, 0},
                      fmt::format("model has {:.3g} parameters, at most 1e16 are supported", total));
}

} // namespace

ModelDescription describeModel(const Architecture &architecture, const SizeTable &sizes, Diagnostics &diagnostics) {
  return ModelDescriber(architecture, sizes, diagnostics).run();
}

} // namespace espalier
