// Reads the arguments of functions, filters and methods by the names of their parameters.
#pragma once

#include "runtime/jinja/value.h"

#include <initializer_list>

namespace espalier::rt::jinja {

/// The arguments of one call in the order of the parameters.
class Bound {
public:
  /// Throws Fault for an argument without a parameter, one that is given twice, or less than `required` arguments.
  Bound(Run &run, const Arguments &arguments, std::initializer_list<std::string_view> parameters, size_t required = 0);

  /// Returns null if the argument is not given.
  const Value *find(size_t parameter) const { return values[parameter]; }
  /// Returns null if the argument is not given, or None.
  const Value *given(size_t parameter) const;
  const Value &at(size_t parameter) const { return *values[parameter]; }
  Value value(size_t parameter, Value otherwise = {}) const;
  bool isTrue(size_t parameter, bool otherwise = false) const;
  /// Throw Fault for another type.
  int64_t integer(size_t parameter, int64_t otherwise) const;
  std::string text(size_t parameter, const std::string &otherwise = "") const;

private:
  Run &run;
  std::vector<const Value *> values;
};

} // namespace espalier::rt::jinja
