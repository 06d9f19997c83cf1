// The output format of diagnostics: text for people, or JSON for programs.
#pragma once

namespace espalier {

/// Text prints FILE:LINE:COL: error: ... with the source line. Json prints one object per line with file, line, column,
/// severity, message and hint.
enum class ErrorFormat { Text, Json };

/// Returns the format that Diagnostics::render() uses in this process. --error-format sets it.
ErrorFormat &errorFormat();

} // namespace espalier
