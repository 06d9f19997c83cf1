// Builds a ModelDescription from an architecture and its sizes: dimensions, parameters, ops, runs. Checks every name,
// so that readers of the description need no checks.
#include "compiler/import/model/architecture.h"
#include "compiler/import/model/check_ops.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/model/op_vocabulary.h"
#include "format/model_inputs.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace espalier {
namespace {

std::set<std::string> inputNames() {
  std::set<std::string> names;
  for (const rt::ModelInput &input : rt::modelInputs)
    names.emplace(input.name);
  return names;
}

class ModelDescriber {
public:
  ModelDescriber(const Architecture &architecture, const SizeTable &sizes, Diagnostics &diagnostics)
      : architecture(architecture), sizes(sizes), diagnostics(diagnostics) {}

  ModelDescription run() {
    model.name = architecture.name;
    readDims(*architecture.root->find("dims"));
    checkAttributes(architecture.root->find("attributes"));
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

  void checkAttributes(const YamlNode *attributes);
  const YamlNode *bodyOf(const YamlEntry &segment);
  void readSegment(const YamlEntry &entry);
  bool isWanted(const YamlNode &node);
  std::vector<std::string> inputsOf(const YamlNode &op) const;
  void readParameter(SegmentDescription &segment, const YamlEntry &entry);
  Initializer readInitializer(const YamlNode &node);
  void readOp(SegmentDescription &segment, const YamlNode &node, std::set<std::string> &values);
  const YamlNode *attributeOf(const YamlNode &op, const std::string &kind, const std::string &name) const;
  void readAttributes(OpDescription &op, const OpSignature &signature, const YamlNode &node);
  void checkTies(SegmentDescription &segment);
  void checkAllUsed(const SegmentDescription &segment);
  SegmentRun readRun(const YamlNode &item);
  SegmentRun replaced(const SegmentRun &layer, const YamlNode &kind);
  std::vector<std::string> itemsOf(const YamlEntry &entry);
  void readKinds(const YamlEntry &by, std::vector<SegmentRun> &layers);
  void readExceptions(const YamlEntry &except, std::vector<SegmentRun> &layers);
  void readPattern(const YamlNode &item, const YamlNode &pattern);
  int readCount(const YamlNode &node, const std::string &of);
  void readRuns(const YamlNode &runs);
  void removeUnused();
  void checkParameterCount();

  const Architecture &architecture;
  const SizeTable &sizes;
  Diagnostics &diagnostics;
  ModelDescription model;
  SourceLocation headDimPlace;                 ///< location of the value that head_dim comes from
  const YamlNode *segmentAttributes = nullptr; ///< `attributes:` of the current segment
  std::set<std::string> absent;                ///< parameters that the current segment does not have in this run
  std::map<std::string, std::string> standIns; ///< output of an absent op -> the input of the same number
};

/// Checks `attributes:`, a map from op kinds to attributes that their ops have unless they say otherwise.
void ModelDescriber::checkAttributes(const YamlNode *attributes) {
  for (size_t i = 0; attributes && i < attributes->entries.size(); ++i) {
    const YamlEntry &entry = attributes->entries[i];
    const OpSignature *signature = opSignature(entry.key);
    if (!signature) {
      diagnostics.error(entry.keyWhere, fmt::format("attributes names no op: '{}'", entry.key));
      continue;
    }
    std::vector<std::string> known;
    for (const OpAttribute &attribute : signature->attributes)
      known.emplace_back(attribute.name);
    checkKeys(*entry.value, known, "attributes of " + entry.key);
  }
}

/// Returns the map with the stream, parameters and ops of a segment: its own, or those of the segment that it is like.
const YamlNode *ModelDescriber::bodyOf(const YamlEntry &segment) {
  const YamlNode *like = segment.value->find("like");
  if (!like) {
    checkKeys(*segment.value, {"attributes", "stream", "parameters", "ops"}, "a segment");
    return segment.value.get();
  }
  checkKeys(*segment.value, {"attributes", "like"}, "a segment that is like another one");
  const YamlNode *body = architecture.root->find("segments")->find(like->text);
  if (body && !body->find("like"))
    return body;
  diagnostics.error(like->where, fmt::format("'{}' is no segment with ops of its own", like->text));
  return segment.value.get();
}

void ModelDescriber::readSegment(const YamlEntry &entry) {
  SegmentDescription segment;
  segment.kind = entry.key;
  segment.location = entry.keyWhere;
  const YamlNode *body = bodyOf(entry);
  segmentAttributes = entry.value->find("attributes");
  checkAttributes(segmentAttributes);
  absent.clear();
  standIns.clear();
  std::set<std::string> values = inputNames();
  if (const YamlNode *stream = body->find("stream")) {
    checkKeys(*stream, {"in", "out"}, "stream");
    if (const YamlNode *in = stream->find("in"))
      values.insert(segment.streamIn = in->text);
    if (const YamlNode *out = stream->find("out"))
      segment.streamOut = out->text;
  }
  if (const YamlNode *parameters = body->find("parameters"))
    for (const YamlEntry &parameter : parameters->entries) {
      bool isRemoved = parameter.value->kind == YamlNode::Kind::Null; // null takes a parameter of the base file away
      bool isOptional = !isRemoved && !parameter.value->find("tied");
      if (isRemoved || (isOptional && !isWanted(*parameter.value))) {
        absent.insert(parameter.key);
        continue;
      }
      readParameter(segment, parameter);
      if (!values.insert(parameter.key).second)
        diagnostics.error(parameter.keyWhere, fmt::format("'{}' names a value already", parameter.key));
    }
  if (const YamlNode *ops = body->find("ops"))
    for (const YamlPtr &op : ops->items)
      readOp(segment, *op, values);
  if (auto standIn = standIns.find(segment.streamOut); standIn != standIns.end())
    segment.streamOut = standIn->second;
  checkAllUsed(segment);
  if (segment.streamOut.empty() || !values.count(segment.streamOut))
    diagnostics.error(segment.location, fmt::format("segment '{}' needs stream: {{out: NAME}} with the "
                                                    "name of one of its values",
                                                    segment.kind));
  model.segments.push_back(std::move(segment));
}

/// Returns whether the run has a parameter or op, which `when:` decides.
bool ModelDescriber::isWanted(const YamlNode &node) {
  const YamlNode *when = node.find("when");
  return !when || number(*when) != 0;
}

/// Returns the inputs of an op without absent parameters, and with the input of an absent op in place of its output.
std::vector<std::string> ModelDescriber::inputsOf(const YamlNode &op) const {
  std::vector<std::string> inputs = yamlTexts(op.find("in"));
  std::erase_if(inputs, [&](const std::string &input) { return absent.contains(input); });
  for (std::string &input : inputs)
    if (auto standIn = standIns.find(input); standIn != standIns.end())
      input = standIn->second;
  return inputs;
}

void ModelDescriber::readParameter(SegmentDescription &segment, const YamlEntry &entry) {
  ParameterDescription parameter;
  parameter.name = entry.key;
  parameter.location = entry.keyWhere;
  checkKeys(*entry.value, {"dims", "init", "decay", "frozen", "tied", "when", "type", "sign_rate"}, "a parameter");
  if (const YamlNode *tied = entry.value->find("tied"); tied && isWanted(*entry.value)) {
    parameter.tiedTo = tied->text;
    segment.parameters.push_back(std::move(parameter));
    return;
  }
  parameter.dims = yamlTexts(entry.value->find("dims"));
  if (!entry.value->find("dims"))
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
  if (const YamlNode *rate = entry.value->find("sign_rate")) {
    parameter.signRate = number(*rate);
    parameter.frozen |= parameter.signRate <= 0;
  }
  if (const YamlNode *type = entry.value->find("type")) {
    parameter.isF32 = type->text == "float32";
    if (!parameter.isF32)
      diagnostics.error(type->where, fmt::format("a parameter has the run's param_init_type or type: float32, got {}",
                                                 flowText(*type)));
  }
  segment.parameters.push_back(std::move(parameter));
}

Initializer ModelDescriber::readInitializer(const YamlNode &node) {
  if (node.text == "ones")
    return {rt::pb::Initialization::ONES, 0};
  if (node.text == "zeros")
    return {rt::pb::Initialization::ZEROS, 0};
  if (const YamlNode *normal = node.find("normal"))
    return {rt::pb::Initialization::NORMAL, number(*normal)};
  if (const YamlNode *constant = node.find("constant")) {
    double value = number(*constant);
    if (value == 0 || value == 1)
      return {value == 0 ? rt::pb::Initialization::ZEROS : rt::pb::Initialization::ONES, 0};
    return {rt::pb::Initialization::ONES, value};
  }
  diagnostics.error(
      node.where,
      fmt::format("init must be zeros, ones, {{constant: VALUE}} or {{normal: STDDEV}}, got {}", flowText(node)));
  return {};
}

void ModelDescriber::readOp(SegmentDescription &segment, const YamlNode &node, std::set<std::string> &values) {
  OpDescription op;
  op.location = node.where;
  const YamlNode *kind = node.find("op");
  op.kind = kind ? kind->text : "";
  if (auto choice = sizes.find(op.kind); choice != sizes.end())
    op.kind = choice->second.text;
  op.inputs = inputsOf(node);
  op.outputs = yamlTexts(node.find("out"));
  const OpSignature *signature = opSignature(op.kind);
  bool lacksWeight = signature && static_cast<int>(op.inputs.size()) < signature->leastInputs &&
                     op.inputs.size() < yamlTexts(node.find("in")).size();
  bool isAlias = op.kind == "alias"; // another name of a value
  if (isAlias)
    checkKeys(node, {"op", "in", "out", "when"}, op.kind);
  if (isAlias && !isWanted(node))
    return;
  if (isAlias || lacksWeight || !isWanted(node)) {
    for (size_t i = 0; i < op.outputs.size() && !op.inputs.empty(); ++i)
      standIns[op.outputs[i]] = op.inputs[std::min(i, op.inputs.size() - 1)];
    return;
  }
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
  // A z-loss without weight is left out, so that plans of models without it stay the same.
  if (op.kind != "z_loss" || op.numbers["factor"] != 0)
    segment.ops.push_back(std::move(op));
}

/// Returns the value of an op's attribute: its own, that of its segment, or that of the model file.
const YamlNode *ModelDescriber::attributeOf(const YamlNode &op, const std::string &kind,
                                            const std::string &name) const {
  for (const YamlNode *attributes : {segmentAttributes, architecture.root->find("attributes")})
    if (const YamlNode *own = op.find(name))
      return own;
    else if (const YamlNode *ofKind = attributes ? attributes->find(kind) : nullptr; ofKind && ofKind->find(name))
      return ofKind->find(name);
  return nullptr;
}

void ModelDescriber::readAttributes(OpDescription &op, const OpSignature &signature, const YamlNode &node) {
  std::vector<std::string> known = {"op", "in", "out", "when"};
  for (const OpAttribute &attribute : signature.attributes) {
    std::string name(attribute.name);
    known.push_back(name);
    const YamlNode *value = attributeOf(node, op.kind, name);
    if (!value && !attribute.defaultNumber)
      diagnostics.error(node.where, fmt::format("{} needs the attribute '{}'", op.kind, name));
    else if (!value && !attribute.isOption)
      op.numbers[name] = *attribute.defaultNumber;
    else if (!value)
      continue;
    else if (!attribute.isString)
      op.numbers[name] = number(*value);
    else if (auto size = sizes.find(value->text); size != sizes.end())
      op.strings[name] = size->second.text;
    else
      op.strings[name] = value->text;
    if (attribute.isOption &&
        (attribute.isString ? op.strings[name].empty() : op.numbers[name] == *attribute.defaultNumber)) {
      op.numbers.erase(name);
      op.strings.erase(name);
    }
  }
  checkKeys(node, known, op.kind);
  if (op.kind == "rope" && !op.strings.contains("scaling")) // the numbers of a scaling have no meaning
    std::erase_if(op.numbers, [](const auto &number) {
      return number.first != "theta" && number.first != "fraction" && number.first != "last" &&
             number.first != "interleaved" && number.first != "inverse";
    });
  checkOp(op, model, sizes, headDimPlace, diagnostics);
  if (op.numbers.contains("scale") && op.numbers["scale"] == 0 && model.dims.contains("head_dim"))
    op.numbers["scale"] = 1 / std::sqrt(static_cast<double>(model.dims.at("head_dim")));
}

/// Reports parameters that no op reads, because one of the two names must be wrong. Frozen ones may be there only for
/// files of weights. Skips the check if an input is unknown, because that may be the same mistake.
void ModelDescriber::checkAllUsed(const SegmentDescription &segment) {
  std::set<std::string> read, known = inputNames();
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
    if (!read.count(parameter.name) && !parameter.frozen)
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
    parameter.isF32 = owner->isF32;
    parameter.signRate = owner->signRate;
  }
}

/// Reads a number of layers; 0 after an error.
int ModelDescriber::readCount(const YamlNode &node, const std::string &of) {
  ExpressionValue value = evaluate(node.text);
  double count = number(node);
  if (count >= 0 && count <= 100000 && count == std::floor(count))
    return static_cast<int>(count);
  if (!isFaulty(value))
    diagnostics.error(blame(value, node.where),
                      fmt::format("count of '{}' is {:.10g}, must be a whole number between 0 and 100000", of, count));
  return 0;
}

/// Reads `kind` or `{kind: COUNT}`.
SegmentRun ModelDescriber::readRun(const YamlNode &item) {
  SegmentRun run;
  run.kind = item.isMap() && !item.entries.empty() ? item.entries.front().key : item.text;
  if (item.isMap() && item.entries.size() == 1)
    run.count = readCount(*item.entries.front().value, run.kind);
  std::vector<std::string> kinds;
  for (const SegmentDescription &segment : model.segments)
    kinds.push_back(segment.kind);
  if (std::find(kinds.begin(), kinds.end(), run.kind) == kinds.end())
    diagnostics.error(item.where, fmt::format("no segment '{}'{}", run.kind, didYouMean(run.kind, kinds)));
  return run;
}

/// Returns the layer with another kind: `kind`, or the one that it names for the layer's own, if it is a map.
SegmentRun ModelDescriber::replaced(const SegmentRun &layer, const YamlNode &kind) {
  const YamlNode *other = kind.isMap() ? kind.find(layer.kind) : &kind;
  return other ? readRun(*other) : layer;
}

/// Removes the kinds of segments that have no layer.
void ModelDescriber::removeUnused() {
  if (!diagnostics.hasErrors())
    std::erase_if(model.segments, [&](const SegmentDescription &segment) {
      return std::ranges::none_of(model.runs, [&](const SegmentRun &run) { return run.kind == segment.kind; });
    });
}

/// Returns the items of a size of type list, which a pattern names; none after an error.
std::vector<std::string> ModelDescriber::itemsOf(const YamlEntry &entry) {
  auto size = sizes.find(entry.key);
  if (size != sizes.end())
    return size->second.items;
  diagnostics.error(entry.keyWhere, fmt::format("a pattern needs a size of type list, got '{}'", entry.key));
  return {};
}

/// Reads `by: {SIZE: {WORD: KIND}}`: the list names each layer's kind, if it has items.
void ModelDescriber::readKinds(const YamlEntry &by, std::vector<SegmentRun> &layers) {
  std::vector<std::string> items = itemsOf(by), known;
  for (const YamlEntry &word : by.value->entries)
    known.push_back(word.key);
  if (!items.empty() && items.size() != layers.size())
    return diagnostics.error(sizes.at(by.key).where, fmt::format("{} has {} items, wanted one for each of {} layers",
                                                                 by.key, items.size(), layers.size()));
  for (size_t i = 0; i < items.size(); ++i)
    if (const YamlNode *kind = by.value->find(items[i]))
      layers[i] = replaced(layers[i], *kind);
    else
      return diagnostics.error(sizes.at(by.key).where,
                               fmt::format("{} has no word '{}', there are {}{}", by.key, items[i],
                                           fmt::join(known, ", "), didYouMean(items[i], known)));
}

/// Reads `except: {SIZE: KIND}`: the layers that the list numbers, counted from 0, are of the kind.
void ModelDescriber::readExceptions(const YamlEntry &except, std::vector<SegmentRun> &layers) {
  for (const std::string &item : itemsOf(except)) {
    char *end = nullptr;
    long layer = std::strtol(item.c_str(), &end, 10);
    if (item.empty() || *end != '\0' || layer < 0 || layer >= std::ssize(layers))
      return diagnostics.error(sizes.at(except.key).where, fmt::format("{} has the layer {}, wanted 0 to {}",
                                                                       except.key, item, std::ssize(layers) - 1));
    layers[layer] = replaced(layers[layer], *except.value);
  }
}

/// Reads `{repeat: COUNT, of: [..]}`: the runs of the list in turn, until there are COUNT layers. `first`, `by` and
/// `except` replace kinds of layers.
void ModelDescriber::readPattern(const YamlNode &item, const YamlNode &pattern) {
  checkKeys(item, {"repeat", "of", "first", "by", "except"}, "a pattern");
  size_t count = readCount(*item.find("repeat"), "repeat");
  std::vector<SegmentRun> turn, layers;
  for (const YamlPtr &part : pattern.items)
    turn.push_back(readRun(*part));
  if (turn.empty())
    diagnostics.error(item.where, "a pattern needs `of: [KIND, ..]`");
  bool hasLayers = std::ranges::any_of(turn, [](const SegmentRun &run) { return run.count > 0; });
  for (size_t i = 0; hasLayers && layers.size() < count && !diagnostics.hasErrors(); i = (i + 1) % turn.size())
    layers.insert(layers.end(), std::min<size_t>(turn[i].count, count - layers.size()), {turn[i].kind, 1});
  if (const YamlNode *first = item.find("first"))
    for (const YamlEntry &kind : first->entries) {
      auto size = sizes.find(kind.key);
      if (size == sizes.end() || !size->second.number)
        diagnostics.error(kind.keyWhere, fmt::format("a pattern needs a number of first layers, got '{}'", kind.key));
      for (size_t i = 0; size != sizes.end() && i < layers.size() && i < size->second.number.value_or(0); ++i)
        layers[i] = replaced(layers[i], *kind.value);
    }
  if (const YamlNode *by = item.find("by"))
    for (const YamlEntry &list : by->entries)
      readKinds(list, layers);
  if (const YamlNode *except = item.find("except"))
    for (const YamlEntry &list : except->entries)
      readExceptions(list, layers);
  for (const SegmentRun &layer : layers)
    if (model.runs.size() > 1 && model.runs.back().kind == layer.kind)
      ++model.runs.back().count;
    else
      model.runs.push_back(layer);
}

void ModelDescriber::readRuns(const YamlNode &runs) {
  for (const YamlPtr &item : runs.items)
    if (const YamlNode *pattern = item->find("of"))
      readPattern(*item, *pattern);
    else if (SegmentRun run = readRun(*item); run.count > 0 || diagnostics.hasErrors())
      model.runs.push_back(run);
  removeUnused();
  bool hasPattern = std::ranges::any_of(runs.items, [](const YamlPtr &item) { return item->find("of") != nullptr; });
  if (hasPattern && diagnostics.hasErrors())
    return; // layers of a pattern are counted only without errors
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
