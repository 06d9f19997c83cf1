// The filters and tests of jinja2, in a table of their names.
#pragma once

#include "runtime/jinja/value.h"

namespace espalier::rt::jinja {

/// Returns the filtered value.
using Filter = Value (*)(Run &run, const Value &value, const Arguments &arguments);
/// Returns whether the value passes.
using Test = bool (*)(Run &run, const Value &value, const Arguments &arguments);

/// Returns null for an unknown name.
Filter findFilter(std::string_view name);
Test findTest(std::string_view name);
/// Returns the filter of texts and numbers, or null.
Filter findScalarFilter(std::string_view name);

} // namespace espalier::rt::jinja
