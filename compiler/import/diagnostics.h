// Faults of the files a person writes, collected as data so that all of them are shown at once.
// Printed as FILE:LINE:COL: error: ... with the source line and a caret.
#pragma once

#include "compiler/import/model_description.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The file name in places of values that --set gives.
inline constexpr std::string_view kSetSource = "--set";

/// A refusal is an error to whoever compiles and a warning to whoever only asks: the file wishes for what is not built,
/// and to compile past it would make something else.
enum class Severity { Error, Refusal, Warning };

/// One finding with its place.
struct Diagnostic {
  SourceLocation where;
  Severity severity = Severity::Error;
  std::string message;
};

/// A list of findings and the texts they point into. Copyable plain data.
class Diagnostics {
public:
  /// Makes the lines of `text` available for the caret view of findings in `file`.
  void addSource(const std::string &file, std::string_view text);
  void error(const SourceLocation &where, std::string message);
  void refusal(const SourceLocation &where, std::string message);
  void warning(const SourceLocation &where, std::string message);

  /// From here on refusals are errors.
  void refuse();
  bool hasErrors() const;
  /// Findings sorted by file, line and column; equal ones are kept once (an aliased map is read
  /// twice).
  std::vector<Diagnostic> sorted() const;
  /// The findings as text, one block each; of each file the first 20 errors and the first 20 warnings, and how many
  /// more there are. Empty when there are none.
  std::string render() const;

private:
  std::string renderOne(const Diagnostic &finding) const;
  std::vector<Diagnostic> findings;
  std::map<std::string, std::vector<std::string>> sources; ///< file -> lines
};

/// The shortest candidate that begins with `name`, of at least 3 letters; else that with the least edit distance to
/// it, or empty when none is near (more than a third of its letters differ).
std::string nearestName(const std::string &name, const std::vector<std::string> &candidates);

/// ", did you mean 'x'?" or empty.
std::string didYouMean(const std::string &name, const std::vector<std::string> &candidates);

/// Whether a text still has the mark that a person was to replace, such as `<Specify path>` or `<path>_text_document`.
bool isPlaceholder(std::string_view text);

} // namespace espalier
