// The form in which findings in files are printed: text for people, or JSON for programs.
#pragma once

namespace espalier {

/// Text: FILE:LINE:COL: error: ... with the source line. Json: one object per line with file, line, column, severity,
/// message and hint.
enum class ErrorFormat { Text, Json };

/// The form of Diagnostics::render() in this process; --error-format sets it.
ErrorFormat &errorFormat();

} // namespace espalier
