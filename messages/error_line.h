// The output of errors: text for people, or JSON for programs. Part of the shared library of plans, so that the command
// and the compiler library have one setting.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

/// Text prints PLACE: error: MESSAGE. Json prints one object per line with file, line, column, severity, message and
/// hint.
enum class ErrorFormat { Text, Json };

/// Returns the format of this process. --error-format sets it.
ErrorFormat &errorFormat();

/// A message about a place.
struct ErrorLine {
  std::string file = {}; ///< empty: no file is at fault
  int line = 0, column = 0;
  std::string severity = "error";
  std::string message = {};
};

/// Splits FILE: error: MESSAGE, FILE:LINE: error: MESSAGE or FILE:LINE:COLUMN: error: MESSAGE. The name of this command
/// or of a verb is no file. Another text is the message as a whole.
ErrorLine parseErrorLine(std::string_view text);

/// Returns a line of JSON, without line break. `hint` is the part of the message that says what to do, or empty.
std::string jsonOf(const ErrorLine &error);

/// Prints PLACE: error: MESSAGE to standard error, in the format of this process. `place` is a file, FILE:LINE, or
/// `espalier`, which stands for no file.
void printError(std::string_view place, std::string_view message);

/// Prints a text that includes its place to standard error, in the format of this process.
void printErrorText(std::string_view text);

} // namespace espalier
