// Operators, attributes and items of values.
#pragma once

#include "runtime/jinja/value.h"

namespace espalier::rt::jinja {

/// Returns a + b, a - b, and so on. Throws Fault for types that have no such operator, and beyond 64 bits.
Value binary(Run &run, std::string_view symbol, const Value &a, const Value &b);
/// Returns -a or +a.
Value negative(const Value &a);
Value positive(const Value &a);
/// Returns the result of ==, !=, <, <=, >, >=, in or not in.
bool compare(Run &run, std::string_view symbol, const Value &a, const Value &b);
/// Returns whether `value in container`.
bool contains(Run &run, const Value &container, const Value &value);
/// Returns object.name: the attribute, or else the item of a dict. Undefined if there is neither.
Value attributeOf(Run &run, const Value &object, const std::string &name);
/// Returns object[key]: the item, or else the attribute. Undefined if there is neither.
Value itemOf(Run &run, const Value &object, const Value &key);
/// Returns object[start:stop:step]; null pointers are None.
Value sliceOf(Run &run, const Value &object, const Value &start, const Value &stop, const Value &step);
/// Calls a function. Throws Fault if the value is none.
Value callValue(Run &run, const Value &function, const Arguments &arguments);

/// Returns the method of a text, a list or a dict; nothing if it has none of this name. A method that would change its
/// object is undefined.
std::optional<Value> methodOf(Run &run, const Value &object, const std::string &name);

} // namespace espalier::rt::jinja
