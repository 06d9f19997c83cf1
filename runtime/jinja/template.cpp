#include "runtime/jinja/template.h"

#include "runtime/jinja/interpreter.h"

#include <fmt/format.h>

namespace espalier::rt::jinja {

namespace {

constexpr size_t mostSource = 1 << 20;

} // namespace

Template::Template(std::string_view source) {
  int line = 1;
  try {
    if (source.size() > mostSource)
      throw Fault(fmt::format("the template has {} bytes, at most {} are read", source.size(), mostSource));
    tree = std::make_shared<const Tree>(parse(source, line));
    marksAnswers = tree->hasGeneration;
  } catch (const Fault &fault) {
    throw TemplateError(line, fault.what());
  }
}

bool Template::names(const std::string &name) const { return tree->symbols.contains(name); }

Rendered Template::render(const nlohmann::ordered_json &variables, std::time_t now, const Bounds &bounds) const {
  Run run(bounds, now);
  Interpreter interpreter(run, *tree);
  try {
    std::vector<std::pair<std::string, Value>> values;
    for (const auto &[name, value] : variables.items())
      values.emplace_back(name, fromJson(run, value));
    std::string text = interpreter.render(values);
    return {std::move(text), std::move(interpreter.generated)};
  } catch (const Fault &fault) {
    throw TemplateError(interpreter.line, fault.what());
  }
}

} // namespace espalier::rt::jinja
