// Expands rules to tensors by substituting layers and counted dimensions.
#include "runtime/checkpoint/convert/names.h"

#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace espalier::rt {
namespace {

constexpr size_t mostSpellings = 64;
constexpr int64_t mostRows = int64_t(1) << 40; // multiplied by the number of ranks it does not overflow

/// Returns all spellings of a pattern: "(a|b)c" is "ac" and "bc".
std::vector<std::string> spellings(const std::string &pattern, const std::string &place) {
  size_t open = pattern.find('(');
  if (open == std::string::npos)
    return {pattern};
  size_t close = pattern.find(')', open);
  if (close == std::string::npos)
    throw PlanError(fmt::format("{}: '{}' opens a bracket and does not close it", place, pattern));
  std::vector<std::string> found, rests = spellings(pattern.substr(close + 1), place);
  std::string choices = pattern.substr(open + 1, close - open - 1) + "|";
  for (size_t begin = 0; begin < choices.size();) {
    size_t end = choices.find('|', begin);
    for (const std::string &rest : rests)
      found.push_back(pattern.substr(0, open) + choices.substr(begin, end - begin) + rest);
    begin = end + 1;
  }
  if (found.size() > mostSpellings)
    throw PlanError(fmt::format("{}: '{}' has more than {} spellings", place, pattern, mostSpellings));
  return found;
}

std::vector<std::string> words(const std::string &text) {
  std::vector<std::string> found;
  for (size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
    size_t end = std::min(text.find(' ', begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

std::string filledIn(std::string text, const std::string &name, int64_t value) {
  std::string variable = "{" + name + "}";
  for (size_t at; (at = text.find(variable)) != std::string::npos;)
    text.replace(at, variable.size(), std::to_string(value));
  return text;
}

/// Returns the names in braces except {i}.
std::vector<std::string> countedDims(const std::string &pattern) {
  std::vector<std::string> found;
  for (size_t open = 0; (open = pattern.find('{', open)) != std::string::npos; ++open) {
    std::string name = pattern.substr(open + 1, pattern.find('}', open) - open - 1);
    if (name != "i" && std::ranges::find(found, name) == found.end())
      found.push_back(name);
  }
  return found;
}

size_t vocabAxis(const WeightParameter &parameter) {
  return static_cast<size_t>(std::ranges::find(parameter.dims, "vocab") - parameter.dims.begin());
}

} // namespace

NameMap::NameMap(const WeightModel &model, std::span<const NameRule> given, const std::string &place)
    : theModel(model) {
  for (const NameRule &rule : given)
    parse(rule, place);
  requireEach(place);
}

void NameMap::parse(const NameRule &given, const std::string &place) {
  Rule rule;
  rule.place = fmt::format("{}: '{}'", place, given.first);
  rule.patterns = spellings(given.first, place);
  rule.counted = countedDims(given.first);
  rule.isOfLayers = given.first.find("{i}") != std::string::npos;
  size_t equals = given.second.find('=');
  rule.locals = words(given.second.substr(0, equals));
  rule.isDerived = rule.locals == std::vector<std::string>{"derived"};
  if (!rule.locals.empty() && rule.locals.front() == "tied") {
    rule.isTied = true;
    rule.locals.erase(rule.locals.begin());
  }
  if (rule.locals.empty() || (rule.isDerived && equals != std::string::npos))
    throw PlanError(fmt::format("{} holds nothing: PARAMETER ... = LAYOUT, tied PARAMETER or derived", rule.place));
  try {
    if (equals != std::string::npos)
      rule.layout.emplace(std::string_view(given.second).substr(equals + 1));
  } catch (const PlanError &error) {
    throw PlanError(fmt::format("{}: {}", rule.place, error.what()));
  }
  if (rule.isDerived) {
    rules.push_back(std::move(rule));
    return;
  }
  resolveTies(rule);
  if (rule.isTied && !isShared(rule.locals.front()))
    return; // the model ties no parameter to this one
  std::set<std::string> own(rule.locals.begin(), rule.locals.end());
  for (const Rule &earlier : rules)
    if (rule.isTied == earlier.isTied && !earlier.isDerived &&
        std::ranges::any_of(earlier.locals, [&](const std::string &local) { return own.contains(local); }))
      rule.isWritten = false;
  auto isNamed = [&](const WeightParameter &parameter) {
    return std::ranges::any_of(own, [&](const std::string &word) { return parameter.isNamed(word); });
  };
  bool isKnown = false;
  for (const WeightParameter &parameter : theModel.parameters)
    if (isNamed(parameter)) {
      isKnown = true;
      if ((parameter.layer >= 0) != rule.isOfLayers)
        throw PlanError(fmt::format("{}: '{}' is {} the layers", rule.place, parameter.local,
                                    rule.isOfLayers ? "none of" : "one of"));
      if (!rule.layout && rule.locals.size() == 1)
        rule.layout.emplace(parameter.dims);
    }
  if (!isKnown || !rule.layout)
    throw PlanError(fmt::format("{}: {} has no parameter '{}'", rule.place, theModel.name, fmt::join(own, "', '")));
  if (!rule.isOfLayers) {
    // Parameters that the model lists after its layers belong to the last share.
    auto firstOfLayers = std::ranges::find_if(theModel.parameters, [](auto &each) { return each.layer >= 0; });
    auto position = std::ranges::find_if(theModel.parameters, isNamed);
    rule.isOfLast = position > firstOfLayers;
  }
  rules.push_back(std::move(rule));
}

/// A parameter that this model ties to another one is marked as tied instead of owned.
void NameMap::resolveTies(Rule &rule) const {
  for (std::string &local : rule.locals) {
    bool isOwn = std::ranges::any_of(theModel.parameters, [&](auto &each) { return each.local == local; });
    if (auto tie = theModel.ties.find(local); !isOwn && tie != theModel.ties.end()) {
      rule.isTied = true;
      local = tie->second.substr(tie->second.rfind('.') + 1);
    }
  }
}

/// Returns whether another parameter is tied to this one.
bool NameMap::isShared(const std::string &local) const {
  return std::ranges::any_of(theModel.ties, [&](auto &tie) { return tie.second.ends_with("." + local); });
}

void NameMap::requireEach(const std::string &place) const {
  std::set<std::string> held;
  for (const Rule &rule : rules)
    if (!rule.isTied)
      held.insert(rule.locals.begin(), rule.locals.end());
  for (const WeightParameter &parameter : theModel.parameters)
    if (std::ranges::none_of(held, [&](const std::string &word) { return parameter.isNamed(word); }))
      throw PlanError(fmt::format("{}: no tensor holds '{}'", place, parameter.local));
}

/// Returns the indices of the rule's parameters, or nothing if this layer has another kind of block.
std::optional<std::vector<size_t>> NameMap::parametersOf(const Rule &rule, int64_t layer) const {
  std::vector<size_t> found;
  for (const std::string &local : rule.locals) {
    const WeightParameter *parameter = theModel.find(local, layer);
    if (!parameter)
      return std::nullopt;
    found.push_back(static_cast<size_t>(parameter - theModel.parameters.data()));
  }
  return found;
}

/// Computes shape and parts of a tensor whose shape in the file is `listed`.
void NameMap::place(const Rule &rule, std::span<const size_t> parameters,
                    const std::optional<std::vector<int64_t>> &listed, const std::map<std::string, int64_t> &bound,
                    int64_t vocab, const LayoutSplit &split, ForeignTensor &tensor) const {
  Layout::Extents extents{&theModel.dims, vocab};
  bool hasRows = rule.layout->isAxis(0, "vocab");
  if (hasRows && listed && !listed->empty() && listed->front() <= mostRows)
    extents.vocab =
        std::max(listed->front() * (rule.layout->splitAxis() == 0 ? split.tp : 1), theModel.dims.at("vocab"));
  try {
    Layout::Placed placed = rule.layout->place(theModel, parameters, extents, split, bound);
    tensor.shape = placed.shape;
    tensor.parts = placed.parts;
  } catch (const PlanError &error) {
    throw PlanError(fmt::format("{}: {}", rule.place, error.what()));
  }
  if (hasRows) // such a layout has one parameter
    tensor.realRows = tensor.parts.front().sizes[vocabAxis(theModel.parameters[parameters.front()])];
}

void NameMap::add(const Rule &rule, int64_t layer, const ForeignShare &share, int64_t vocab, const ShapeOf &shapeOf,
                  std::vector<ForeignTensor> &tensors) const {
  std::optional<std::vector<size_t>> parameters = rule.isDerived ? std::vector<size_t>() : parametersOf(rule, layer);
  if (!parameters)
    return;
  ForeignTensor each;
  each.isTied = rule.isTied;
  each.isDerived = rule.isDerived;
  each.isWritten = rule.isWritten;
  std::map<std::string, int64_t> bound;
  for (const std::string &dim : rule.counted)
    bound[dim] = 0;
  for (;;) {
    each.names = rule.patterns;
    for (std::string &name : each.names) {
      name = filledIn(name, "i", layer - share.firstLayer);
      for (auto [dim, index] : bound)
        name = filledIn(name, dim, index);
    }
    bool isThere = true;
    if (!rule.isDerived) {
      std::optional<std::vector<int64_t>> shape;
      for (const std::string &name : each.names)
        if (shapeOf && !shape)
          shape = shapeOf(name);
      isThere = shape || !shapeOf; // tensors missing in the file are not checked against the model
      if (isThere)
        place(rule, *parameters, shape, bound, vocab, share.split, each);
    }
    if (isThere)
      tensors.push_back(each);
    auto dim = bound.begin(); // the next combination of counted dimensions
    for (; dim != bound.end() && ++dim->second == Layout::Extents{&theModel.dims}.of(dim->first); ++dim)
      dim->second = 0;
    if (dim == bound.end())
      return;
  }
}

std::vector<ForeignTensor> NameMap::tensors(const ForeignShare &share, int64_t vocab, const ShapeOf &shapeOf) const {
  std::vector<ForeignTensor> tensors;
  for (const Rule &rule : rules)
    if (!rule.isOfLayers && !rule.isOfLast && !rule.isTied && share.hasFirst)
      add(rule, -1, share, vocab, shapeOf, tensors);
  for (int64_t layer = share.firstLayer; layer < share.firstLayer + share.layers; ++layer)
    for (const Rule &rule : rules)
      if (rule.isOfLayers)
        add(rule, layer, share, vocab, shapeOf, tensors);
  for (const Rule &rule : rules)
    if (!rule.isOfLayers && (rule.isOfLast || rule.isTied) && share.hasLast)
      add(rule, -1, share, vocab, shapeOf, tensors);
  return tensors;
}

} // namespace espalier::rt
