// The form in which findings in files are printed: text for people, or JSON for programs.
#pragma once

namespace espalier {

/// Text: FILE:LINE:COL: error: ... with the source line. Json: one object per line with file, line, column, severity,
/// message and hint.
enum class ErrorFormat { Text, Json };

/// Sets the form of Diagnostics::render() for the whole process; the command does so for --error-format.
void setErrorFormat(ErrorFormat format);

} // namespace espalier
