// Renders the chat templates of Hugging Face's tokenizers: Jinja as transformers sets it up, with trim_blocks and
// lstrip_blocks, break and continue, generation blocks, tojson(), raise_exception() and strftime_now(). The text is the
// same, byte by byte. A template cannot read files or other templates, change its values, or take more than its bounds.
#pragma once

#include "runtime/jinja/run.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace espalier::rt::jinja {

struct Tree;

/// A template that cannot be parsed or rendered. what() is the line and the reason.
class TemplateError : public std::runtime_error {
public:
  TemplateError(int line, const std::string &reason)
      : std::runtime_error("line " + std::to_string(line) + ": " + reason), line(line), reason(reason) {}
  const int line;
  const std::string reason; ///< or the message of raise_exception()
};

/// A rendered template.
struct Rendered {
  std::string text;
  /// The positions of the `generation` blocks in the text, first and last byte + 1, as transformers computes them.
  std::vector<std::pair<size_t, size_t>> generated;
};

/// A parsed template. Any thread may render it.
class Template {
public:
  /// Parses a template of at most 1 MiB. Throws TemplateError.
  explicit Template(std::string_view source);

  /// Renders with the keys of an object as variables. Throws TemplateError. `now` is the time for strftime_now().
  Rendered render(const nlohmann::ordered_json &variables, std::time_t now = 0, const Bounds &bounds = {}) const;

  /// Returns whether the template has this name or this key after a dot.
  bool names(const std::string &name) const;
  bool hasGeneration() const { return marksAnswers; }

private:
  std::shared_ptr<const Tree> tree;
  bool marksAnswers = false;
};

} // namespace espalier::rt::jinja
