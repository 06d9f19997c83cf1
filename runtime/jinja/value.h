// Values of templates. They behave as the Python objects that jinja2 gives to a template: lists, tuples and dicts are
// constant, because the sandbox of transformers refuses their methods that change them.
#pragma once

#include "runtime/jinja/run.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace espalier::rt::jinja {

class Value;
struct Dict;
class Object;

/// A value that is missing. It prints nothing, and most operations on it are faults.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {
  bool operator==(const None &) const = default;
};
/// A string in UTF-8. Marked text is safe for HTML: adding other text to it escapes the other text.
struct Text {
  std::string bytes;
  bool isMarked = false;
};
/// A list or a tuple.
struct Sequence {
  std::vector<Value> items;
  bool isTuple = false;
  int nesting = 1;
};

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Value {
public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>;

  Value() : data(None()) {}
  Value(bool value) : data(value) {}
  Value(int64_t value) : data(value) {}
  Value(double value) : data(value) {}
  Value(Undefined value) : data(std::move(value)) {}
  Value(std::shared_ptr<Object> value) : data(std::move(value)) {}
  Value(std::shared_ptr<const Dict> value) : data(std::move(value)) {}
  Value(std::shared_ptr<const Sequence> value) : data(std::move(value)) {}
  Value(std::shared_ptr<const Text> value) : data(std::move(value)) {}
  /// A text that the template itself holds, so that no rendering counts it.
  static Value constant(std::string text) { return std::make_shared<const Text>(Text{std::move(text), false}); }

  bool isUndefined() const { return std::holds_alternative<Undefined>(data); }
  bool isNone() const { return std::holds_alternative<None>(data); }
  const bool *boolean() const { return std::get_if<bool>(&data); }
  const int64_t *integer() const { return std::get_if<int64_t>(&data); }
  const double *real() const { return std::get_if<double>(&data); }
  const Text *text() const { return pointed<const Text>(); }
  const Sequence *sequence() const { return pointed<const Sequence>(); }
  const Dict *dict() const { return pointed<const Dict>(); }
  Object *object() const { return pointed<Object>(); }
  template <typename Kind> Kind *as() const { return dynamic_cast<Kind *>(object()); }

  Data data;

private:
  template <typename Kind> Kind *pointed() const {
    const auto *found = std::get_if<std::shared_ptr<Kind>>(&data);
    return found ? found->get() : nullptr;
  }
};

/// A dict, which keeps the order of its items.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int nesting = 1;
  std::unordered_multimap<size_t, size_t> places; ///< hash of a key: place in `items`

  /// Returns null if there is no such key. Throws Fault if the key cannot be hashed.
  const Value *find(Run &run, const Value &key) const;
  /// Adds an item or replaces the value of an equal key.
  void set(Run &run, Value key, Value value);
};

/// Gives values one by one.
class Iterator {
public:
  virtual ~Iterator() = default;
  /// Returns false at the end.
  virtual bool next(Run &run, Value &value) = 0;
};

/// A value with behavior: a function, a macro, a generator, a loop, a namespace, a range, or a view of a dict.
class Object : public std::enable_shared_from_this<Object> {
public:
  virtual ~Object() = default;
  virtual const char *type() const = 0;
  /// Returns nothing if there is no such attribute.
  virtual std::optional<Value> attribute(Run &, const std::string &) { return std::nullopt; }
  virtual bool isCallable() const { return false; }
  virtual Value call(Run &run, const Arguments &arguments);
  /// Returns null if the object cannot be iterated.
  virtual std::unique_ptr<Iterator> iterate(Run &) { return nullptr; }
  /// Returns nothing if the object has no length.
  virtual std::optional<int64_t> length(Run &) { return std::nullopt; }
  /// Returns Python's repr(). The default is a fault, because it would contain an address.
  virtual std::string repr(Run &run) const;

  int nesting = 1;
};

/// Make values and count them.
Value makeText(Run &run, std::string bytes, bool isMarked = false);
Value makeList(Run &run, std::vector<Value> items, bool isTuple = false);
Value makeDict(Run &run, Dict dict);
Value undefined(std::string reason);
/// Makes an object of `nesting` levels. Throws Fault if they are too many.
template <typename Kind, typename... Parts> Value makeObject(Run &run, int nesting, Parts &&...parts);
/// Throws Fault if a value would have too many levels.
int checkedNesting(int nesting);
int nestingOf(const Value &value);

/// Returns the value of a JSON value.
Value fromJson(Run &run, const nlohmann::ordered_json &json);

/// Returns Python's name of the type.
std::string typeOf(const Value &value);
/// Returns Python's bool().
bool isTrue(Run &run, const Value &value);
/// Returns Python's ==.
bool isEqual(Run &run, const Value &a, const Value &b);
/// Returns Python's `is`.
bool isSame(const Value &a, const Value &b);
/// Returns whether a < b. Throws Fault if the values have no order.
bool isLess(Run &run, const Value &a, const Value &b, const char *symbol = "<");
/// Returns a number of bool, int or float; nothing for others.
std::optional<double> numberOf(const Value &value);
/// Returns the integer of a bool or an int; nothing for others.
std::optional<int64_t> integerOf(const Value &value);
/// Returns len(). Throws Fault.
int64_t lengthOf(Run &run, const Value &value);
/// Returns iter(). Throws Fault if the value cannot be iterated; a null pointer if it must not throw.
std::unique_ptr<Iterator> iterate(Run &run, const Value &value, bool mayFail = true);
/// Returns list(value).
std::vector<Value> listOf(Run &run, const Value &value);
/// Returns Python's str() and repr().
std::string str(Run &run, const Value &value);
std::string repr(Run &run, const Value &value);
std::string reprOfFloat(double value);
/// Returns str(), but the text itself of a text, so that marked text stays marked.
Value softText(Run &run, const Value &value);
/// Throws the fault of an undefined value.
[[noreturn]] void failUndefined(const Value &value);

template <typename Kind, typename... Parts> Value makeObject(Run &run, int nesting, Parts &&...parts) {
  run.take(sizeof(Kind));
  auto made = std::make_shared<Kind>(std::forward<Parts>(parts)...);
  made->nesting = checkedNesting(nesting);
  return Value(std::shared_ptr<Object>(std::move(made)));
}

} // namespace espalier::rt::jinja
