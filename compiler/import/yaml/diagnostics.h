// Collects the errors in user-written files as data, so that all of them can be shown at once. They are printed as
// FILE:LINE:COL: error: ... with the source line and a caret.
#pragma once

#include "compiler/import/yaml/source_location.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The file name in locations of values that --set gives.
inline constexpr std::string_view kSetSource = "--set";

/// A refusal is an error when compiling and a warning otherwise. The file asks for a feature that is not implemented,
/// and compiling without it would give a different model.
enum class Severity { Error, Refusal, Warning };

/// A message with its location.
struct Diagnostic {
  SourceLocation where;
  Severity severity = Severity::Error;
  std::string message;
};

/// A list of diagnostics and the source texts that they refer to. Copyable plain data.
class Diagnostics {
public:
  /// Stores the lines of `text` for the caret view of diagnostics in `file`.
  void addSource(const std::string &file, std::string_view text);
  /// Add a diagnostic of the given severity.
  void error(const SourceLocation &where, std::string message);
  void refusal(const SourceLocation &where, std::string message);
  void warning(const SourceLocation &where, std::string message);

  /// Adds the diagnostics of another file with its source text. No severity is above `worst`.
  void add(const Diagnostics &other, Severity worst = Severity::Error);

  /// Turns the refusals reported so far into errors.
  void refuse();
  /// Returns the number of diagnostics reported so far.
  size_t count() const { return findings.size(); }
  /// Returns whether there is an error.
  bool hasErrors() const;
  /// Returns the diagnostics sorted by file, line and column. Equal diagnostics are kept once, because an aliased map
  /// is read twice.
  std::vector<Diagnostic> sorted() const;
  /// Returns the diagnostics as text, one block each. For each file, shows the first 20 errors and the first 20
  /// warnings, and the number of further ones. Empty if there are none.
  std::string render() const;

private:
  std::string renderOne(const Diagnostic &finding) const;
  std::vector<Diagnostic> findings;
  std::map<std::string, std::vector<std::string>> sources; ///< file -> lines
};

/// Returns the shortest candidate that begins with `name`, if `name` has at least 3 letters. Else returns the candidate
/// with the smallest edit distance. Returns an empty string if the distance is above 2, or more than a third of the
/// letters differ.
std::string nearestName(const std::string &name, const std::vector<std::string> &candidates);

/// Returns ", did you mean 'x'?", or an empty string.
std::string didYouMean(const std::string &name, const std::vector<std::string> &candidates);

/// Returns whether a text still contains a placeholder that the user must replace, such as `<Specify path>` or
/// `<path>_text_document`.
bool isPlaceholder(std::string_view text);

} // namespace espalier
