#include "runtime/jinja/operators.h"

#include "runtime/jinja/format.h"
#include "runtime/jinja/objects.h"
#include "runtime/jinja/text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier::rt::jinja {

namespace {

[[noreturn]] void failOperands(std::string_view symbol, const Value &a, const Value &b) {
  if (a.isUndefined() || b.isUndefined())
    failUndefined(a.isUndefined() ? a : b);
  throw Fault(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol, typeOf(a), typeOf(b)));
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0)
      throw Fault("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  bool isWithin = true;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1)
      isWithin &= !__builtin_mul_overflow(result, base, &result);
    if (exponent > 1)
      isWithin &= !__builtin_mul_overflow(base, base, &base);
    if (!isWithin)
      throw Fault("an integer does not fit into 64 bits");
  }
  return result;
}

Value ofIntegers(std::string_view symbol, int64_t a, int64_t b) {
  int64_t result = 0;
  bool isOver = false;
  if (symbol == "+")
    isOver = __builtin_add_overflow(a, b, &result);
  else if (symbol == "-")
    isOver = __builtin_sub_overflow(a, b, &result);
  else if (symbol == "*")
    isOver = __builtin_mul_overflow(a, b, &result);
  else if (symbol == "**")
    return power(a, b);
  else if (b == 0)
    throw Fault(symbol == "/" ? "division by zero" : "integer division or modulo by zero");
  else if (symbol == "/")
    return static_cast<double>(a) / static_cast<double>(b);
  else if (b == -1) // the smallest integer has no negative
    isOver = symbol == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
  else if (symbol == "//")
    result = a / b - (a % b != 0 && (a < 0) != (b < 0));
  else
    result = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
  if (isOver)
    throw Fault("an integer does not fit into 64 bits");
  return result;
}

Value ofReals(std::string_view symbol, double a, double b) {
  if (symbol == "+")
    return a + b;
  if (symbol == "-")
    return a - b;
  if (symbol == "*")
    return a * b;
  if (symbol == "**") {
    double result = std::pow(a, b);
    if ((a == 0 && b < 0) || (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) ||
        (std::isinf(result) && std::isfinite(a) && std::isfinite(b)))
      throw Fault("the power is no number");
    return result;
  }
  if (b == 0)
    throw Fault("float division by zero");
  if (symbol == "/")
    return a / b;
  double modulo = std::fmod(a, b);
  if (modulo != 0 && (modulo < 0) != (b < 0))
    modulo += b;
  if (symbol == "%")
    return modulo == 0 ? std::copysign(0.0, b) : modulo;
  double quotient = (a - modulo) / b, whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/// Returns the text of an operand that is added to marked text.
std::string escapedOperand(const Text &text) { return text.isMarked ? text.bytes : escaped(text.bytes); }

Value repeated(Run &run, const Value &value, int64_t count) {
  if (const Text *text = value.text()) {
    std::string all;
    if (count > 0 && !text->bytes.empty()) {
      if (count > static_cast<int64_t>((size_t{1} << 40) / text->bytes.size()))
        run.take(size_t{1} << 40);
      run.take(text->bytes.size() * static_cast<size_t>(count)); // before it is made
      for (int64_t i = 0; i < count; ++i)
        all += text->bytes;
    }
    return makeText(run, std::move(all), text->isMarked);
  }
  std::vector<Value> items;
  const Sequence &sequence = *value.sequence();
  for (int64_t i = 0; i < count && !sequence.items.empty(); ++i) {
    run.take(sequence.items.size() * sizeof(Value));
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return makeList(run, std::move(items), sequence.isTuple);
}

/// Returns the position of an index, which counts from the end if it is negative; nothing outside of `length`.
std::optional<size_t> placeOf(int64_t index, int64_t length) {
  index += index < 0 ? length : 0;
  return index >= 0 && index < length ? std::optional(static_cast<size_t>(index)) : std::nullopt;
}

std::optional<Value> itemAt(Run &run, const Value &object, int64_t index) {
  std::optional<size_t> place;
  if (const Sequence *sequence = object.sequence()) {
    place = placeOf(index, std::ssize(sequence->items));
    return place ? std::optional(sequence->items[*place]) : std::nullopt;
  }
  if (const Text *text = object.text()) {
    place = placeOf(index, lengthOf(run, object));
    if (!place)
      return std::nullopt;
    size_t begin = afterCharacters(text->bytes, 0, *place);
    run.step(static_cast<int64_t>(begin / 64));
    return makeText(run, text->bytes.substr(begin, afterCharacters(text->bytes, begin, 1) - begin), text->isMarked);
  }
  if (auto *range = object.as<Range>()) {
    place = placeOf(index, range->count());
    return place ? std::optional<Value>(range->at(static_cast<int64_t>(*place))) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Value> ownAttribute(Run &run, const Value &object, const std::string &name) {
  if (name.starts_with("__") && name.ends_with("__"))
    return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, typeOf(object)));
  return object.object() ? object.object()->attribute(run, name) : methodOf(run, object, name);
}

Value missing(Run &run, const Value &object, const std::string &key) {
  return undefined(fmt::format("'{}' object has no {} {}", typeOf(object), object.sequence() ? "element" : "attribute",
                               key.size() > 200 ? "of this name" : key));
}

} // namespace

Value binary(Run &run, std::string_view symbol, const Value &a, const Value &b) {
  if (std::optional<int64_t> i = integerOf(a), j = integerOf(b); i && j)
    return ofIntegers(symbol, *i, *j);
  if (std::optional<double> x = numberOf(a), y = numberOf(b); x && y)
    return ofReals(symbol, *x, *y);
  const Text *one = a.text(), *other = b.text();
  if (symbol == "%" && one) {
    run.take(one->bytes.size());
    return makeText(run, formatPercent(run, one->bytes, b), one->isMarked);
  }
  if (symbol == "+" && one && other) {
    bool isMarked = one->isMarked || other->isMarked;
    run.step(static_cast<int64_t>(one->bytes.size() / 64));
    return makeText(run, isMarked ? escapedOperand(*one) + escapedOperand(*other) : one->bytes + other->bytes,
                    isMarked);
  }
  const Sequence *first = a.sequence(), *second = b.sequence();
  if (symbol == "+" && first && second && first->isTuple == second->isTuple) {
    std::vector<Value> items = first->items;
    items.insert(items.end(), second->items.begin(), second->items.end());
    return makeList(run, std::move(items), first->isTuple);
  }
  if (symbol == "*" && (one || first) && integerOf(b))
    return repeated(run, a, *integerOf(b));
  if (symbol == "*" && (other || second) && integerOf(a))
    return repeated(run, b, *integerOf(a));
  failOperands(symbol, a, b);
}

Value negative(const Value &a) {
  if (a.real())
    return -*a.real();
  if (std::optional<int64_t> integer = integerOf(a))
    return ofIntegers("-", 0, *integer);
  failOperands("unary -", a, a);
}

Value positive(const Value &a) {
  if (a.real())
    return a;
  if (std::optional<int64_t> integer = integerOf(a))
    return *integer;
  failOperands("unary +", a, a);
}

bool contains(Run &run, const Value &container, const Value &value) {
  if (const Text *text = container.text()) {
    if (!value.text())
      throw Fault(fmt::format("'in <string>' requires string as left operand, not {}", typeOf(value)));
    run.step(static_cast<int64_t>(text->bytes.size() / 64));
    return text->bytes.find(value.text()->bytes) != std::string::npos;
  }
  if (const Dict *dict = container.dict())
    return dict->find(run, value) != nullptr;
  std::unique_ptr<Iterator> iterator = iterate(run, container, /*mayFail=*/false);
  if (!iterator)
    throw Fault(fmt::format("argument of type '{}' is not iterable", typeOf(container)));
  for (Value one; iterator->next(run, one);)
    if (isEqual(run, one, value))
      return true;
  return false;
}

bool compare(Run &run, std::string_view symbol, const Value &a, const Value &b) {
  if (symbol == "==")
    return isEqual(run, a, b);
  if (symbol == "!=")
    return !isEqual(run, a, b);
  if (symbol == "in" || symbol == "not in")
    return contains(run, b, a) == (symbol == "in");
  bool isSwapped = symbol.front() == '>';
  const Value &left = isSwapped ? b : a, &right = isSwapped ? a : b;
  if (isLess(run, left, right, std::string(symbol).c_str()))
    return true;
  return symbol.ends_with('=') && isEqual(run, a, b);
}

Value attributeOf(Run &run, const Value &object, const std::string &name) {
  run.step();
  if (object.isUndefined())
    failUndefined(object);
  if (std::optional<Value> own = ownAttribute(run, object, name)) {
    if (object.as<Namespace>() && name.starts_with('_'))
      return undefined(fmt::format("access to attribute '{}' is unsafe.", name));
    return *own;
  }
  if (const Dict *dict = object.dict())
    if (const Value *item = dict->find(run, Value::constant(name)))
      return *item;
  return missing(run, object, reprOfText(name));
}

Value itemOf(Run &run, const Value &object, const Value &key) {
  run.step();
  if (object.isUndefined())
    failUndefined(object);
  if (const Dict *dict = object.dict(); dict && !key.sequence() && !key.dict())
    if (const Value *item = dict->find(run, key))
      return *item;
  if (std::optional<int64_t> index = integerOf(key))
    if (std::optional<Value> item = itemAt(run, object, *index))
      return *item;
  if (key.text())
    if (std::optional<Value> own = ownAttribute(run, object, key.text()->bytes))
      return *own;
  return missing(run, object, key.text() ? reprOfText(key.text()->bytes) : "of this key");
}

Value sliceOf(Run &run, const Value &object, const Value &start, const Value &stop, const Value &step) {
  if (object.isUndefined())
    failUndefined(object);
  if (!object.text() && !object.sequence())
    throw Fault(fmt::format("'{}' object is not subscriptable by a slice", typeOf(object)));
  auto bound = [&](const Value &value, int64_t otherwise) {
    if (value.isNone())
      return otherwise;
    if (std::optional<int64_t> integer = integerOf(value))
      return *integer;
    throw Fault("slice indices must be integers or None or have an __index__ method");
  };
  constexpr int64_t mostStride = int64_t{1} << 40; // beyond any length
  int64_t length = lengthOf(run, object), stride = std::clamp(bound(step, 1), -mostStride, mostStride);
  if (stride == 0)
    throw Fault("slice step cannot be zero");
  bool isBackward = stride < 0;
  int64_t least = isBackward ? -1 : 0, most = isBackward ? length - 1 : length;
  auto within = [&](int64_t at) { return std::clamp(at < 0 ? at + length : at, least, most); };
  int64_t first = start.isNone() ? (isBackward ? length - 1 : 0) : within(bound(start, 0));
  int64_t last = stop.isNone() ? (isBackward ? -1 : length) : within(bound(stop, 0));
  if (const Text *text = object.text(); text && stride == 1) {
    size_t begin = afterCharacters(text->bytes, 0, static_cast<size_t>(first));
    size_t end = last > first ? afterCharacters(text->bytes, begin, static_cast<size_t>(last - first)) : begin;
    run.step(static_cast<int64_t>(end / 64));
    return makeText(run, text->bytes.substr(begin, end - begin), text->isMarked);
  }
  std::u32string characters = object.text() ? decoded(object.text()->bytes) : U"", kept;
  std::vector<Value> items;
  run.take(characters.size() * sizeof(char32_t));
  for (int64_t at = first; isBackward ? at > last : at < last; at += stride) {
    if (object.text())
      kept += characters[static_cast<size_t>(at)];
    else
      items.push_back(object.sequence()->items[static_cast<size_t>(at)]);
  }
  return object.text() ? makeText(run, encoded(kept), object.text()->isMarked)
                       : makeList(run, std::move(items), object.sequence()->isTuple);
}

Value callValue(Run &run, const Value &function, const Arguments &arguments) {
  if (function.isUndefined())
    failUndefined(function);
  if (!function.object() || !function.object()->isCallable())
    throw Fault(fmt::format("'{}' object is not callable", typeOf(function)));
  Run::Level level(run);
  return function.object()->call(run, arguments);
}

} // namespace espalier::rt::jinja
