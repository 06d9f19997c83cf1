// Values with behavior: functions, generators, ranges, views of dicts, and namespaces.
#pragma once

#include "runtime/jinja/value.h"

#include <functional>

namespace espalier::rt::jinja {

/// A function of C++, or a method with its object.
class Function : public Object {
public:
  using Body = std::function<Value(Run &, const Arguments &)>;
  explicit Function(Body body) : body(std::move(body)) {}
  const char *type() const override { return "function"; }
  bool isCallable() const override { return true; }
  Value call(Run &run, const Arguments &arguments) override { return body(run, arguments); }

private:
  const Body body;
};

/// Gives its values once, each when it is asked for, as the filters map, select and others do in jinja2.
class Generator : public Object {
public:
  using Next = std::function<bool(Run &, Value &)>;
  explicit Generator(Next next) : giveNext(std::move(next)) {}
  const char *type() const override { return "generator"; }
  std::unique_ptr<Iterator> iterate(Run &run) override;
  bool next(Run &run, Value &value);

private:
  Next giveNext;
  bool isOver = false;
};

class Range : public Object {
public:
  Range(int64_t start, int64_t stop, int64_t step) : start(start), stop(stop), step(step) {}
  const char *type() const override { return "range"; }
  std::unique_ptr<Iterator> iterate(Run &run) override;
  std::optional<int64_t> length(Run &) override { return count(); }
  std::string repr(Run &run) const override;
  int64_t count() const;
  int64_t at(int64_t index) const { return start + index * step; }

private:
  const int64_t start, stop, step;
};

/// The keys, values or items of a dict.
class View : public Object {
public:
  enum Kind { Keys, Values, Items };
  View(Value dict, Kind kind) : dict(std::move(dict)), kind(kind) {}
  const char *type() const override;
  std::unique_ptr<Iterator> iterate(Run &run) override;
  std::optional<int64_t> length(Run &) override { return std::ssize(dict.dict()->items); }
  std::string repr(Run &run) const override;
  Value at(Run &run, size_t place) const;

private:
  const Value dict;
  const Kind kind;
};

/// The only values that a template can change.
class Namespace : public Object {
public:
  const char *type() const override { return "Namespace"; }
  std::optional<Value> attribute(Run &run, const std::string &name) override;
  std::string repr(Run &run) const override;
  /// Throws Fault for a name that begins with `_`.
  void set(Run &run, const std::string &name, Value value);
  void clear() { attributes.clear(); }

private:
  std::vector<std::pair<std::string, Value>> attributes;
};

/// Makes a generator over the values of `source`.
Value makeGenerator(Run &run, const Value &source, Generator::Next next);
/// Makes a generator that passes each value of `source` to `step`, which may replace it. `step` returns whether to keep
/// the value.
Value filtered(Run &run, const Value &source, std::function<bool(Run &, Value &)> step);
/// Returns the functions that every template has, except namespace().
std::vector<std::pair<std::string, Value>> globalFunctions(Run &run);
/// Returns dict(mapping or pairs, name=value...).
Dict dictOf(Run &run, const Arguments &arguments);

} // namespace espalier::rt::jinja
