// Python's ways to format: `%`, str.format(), json.dumps() and strftime().
#pragma once

#include "runtime/jinja/value.h"

namespace espalier::rt::jinja {

/// Returns `format % value`. A tuple has the values of all fields, a dict those of named fields.
std::string formatPercent(Run &run, const std::string &format, const Value &value);
/// Returns format.format(*arguments).
std::string formatFields(Run &run, const std::string &format, const Arguments &arguments);
/// Returns json.dumps(value, ...) of the filter `tojson`, with its arguments.
std::string toJson(Run &run, const Value &value, const Arguments &arguments);
/// Returns the local time in a format of strftime().
std::string formatTime(std::time_t time, const std::string &format);

} // namespace espalier::rt::jinja
