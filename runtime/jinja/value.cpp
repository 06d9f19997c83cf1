#include "runtime/jinja/value.h"

#include "runtime/jinja/text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier::rt::jinja {

namespace {

size_t hashOf(Run &run, const Value &value) {
  run.step();
  if (std::optional<double> number = numberOf(value)) // equal numbers of different types have one hash
    return std::hash<double>()(*number == 0 ? 0.0 : *number);
  if (const Text *text = value.text())
    return std::hash<std::string>()(text->bytes);
  if (const Sequence *sequence = value.sequence(); sequence && sequence->isTuple) {
    size_t hash = 17;
    for (const Value &item : sequence->items)
      hash = hash * 31 + hashOf(run, item);
    return hash;
  }
  if (value.sequence() || value.dict())
    throw Fault(fmt::format("unhashable type: '{}'", typeOf(value)));
  return std::hash<const void *>()(value.object());
}

bool areEqual(Run &run, const Sequence &a, const Sequence &b) {
  return a.isTuple == b.isTuple && a.items.size() == b.items.size() &&
         std::ranges::equal(a.items, b.items,
                            [&](const Value &one, const Value &other) { return isEqual(run, one, other); });
}

bool areEqual(Run &run, const Dict &a, const Dict &b) {
  return a.items.size() == b.items.size() && std::ranges::all_of(a.items, [&](const auto &item) {
           const Value *other = b.find(run, item.first);
           return other && isEqual(run, item.second, *other);
         });
}

/// Iterates over a value that holds its items.
template <typename Next> class NextIterator : public Iterator {
public:
  explicit NextIterator(Next step) : step(std::move(step)) {}
  bool next(Run &run, Value &value) override {
    run.step();
    return step(run, value);
  }

private:
  Next step;
};
template <typename Next> std::unique_ptr<Iterator> iteratorOf(Next step) {
  return std::make_unique<NextIterator<Next>>(std::move(step));
}

std::string join(Run &run, const std::vector<Value> &items) {
  std::string all;
  for (const Value &item : items)
    all += (all.empty() ? "" : ", ") + repr(run, item);
  return all;
}

} // namespace

const Value *Dict::find(Run &run, const Value &key) const {
  auto [first, last] = places.equal_range(hashOf(run, key));
  for (; first != last; ++first)
    if (isEqual(run, items[first->second].first, key))
      return &items[first->second].second;
  return nullptr;
}

void Dict::set(Run &run, Value key, Value value) {
  nesting = checkedNesting(std::max({nesting, nestingOf(key) + 1, nestingOf(value) + 1}));
  if (const Value *found = find(run, key)) {
    const_cast<Value &>(*found) = std::move(value);
    return;
  }
  places.emplace(hashOf(run, key), items.size());
  items.emplace_back(std::move(key), std::move(value));
}

Value Object::call(Run &, const Arguments &) { throw Fault(fmt::format("'{}' object is not callable", type())); }

std::string Object::repr(Run &) const {
  throw Fault(fmt::format("a {} is printed, which would print an address; print its items", type()));
}

int checkedNesting(int nesting) {
  if (nesting > mostNesting)
    throw Fault(fmt::format("a value nests more than {} levels deep", mostNesting));
  return nesting;
}

int nestingOf(const Value &value) {
  if (const Sequence *sequence = value.sequence())
    return sequence->nesting;
  if (const Dict *dict = value.dict())
    return dict->nesting;
  return value.object() ? value.object()->nesting : 0;
}

Value makeText(Run &run, std::string bytes, bool isMarked) {
  run.take(sizeof(Text) + bytes.size());
  return std::make_shared<const Text>(Text{std::move(bytes), isMarked});
}

Value makeList(Run &run, std::vector<Value> items, bool isTuple) {
  run.take(sizeof(Sequence) + items.size() * sizeof(Value));
  int nesting = 0;
  for (const Value &item : items)
    nesting = std::max(nesting, nestingOf(item));
  return std::make_shared<const Sequence>(Sequence{std::move(items), isTuple, checkedNesting(nesting + 1)});
}

Value makeDict(Run &run, Dict dict) {
  run.take(sizeof(Dict) + dict.items.size() * 4 * sizeof(Value));
  return std::make_shared<const Dict>(std::move(dict));
}

Value undefined(std::string reason) { return Undefined{std::make_shared<const std::string>(std::move(reason))}; }

void failUndefined(const Value &value) { throw Fault(*std::get<Undefined>(value.data).reason); }

Value fromJson(Run &run, const nlohmann::ordered_json &json) {
  Run::Level level(run);
  if (json.is_object()) {
    Dict dict;
    for (const auto &[key, value] : json.items())
      dict.set(run, makeText(run, key), fromJson(run, value));
    return makeDict(run, std::move(dict));
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto &item : json)
      items.push_back(fromJson(run, item));
    return makeList(run, std::move(items));
  }
  if (json.is_string())
    return makeText(run, json.get<std::string>());
  if (json.is_boolean())
    return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    throw Fault("an integer does not fit into 64 bits");
  if (json.is_number_integer())
    return json.get<int64_t>();
  return json.is_number() ? Value(json.get<double>()) : Value();
}

std::string typeOf(const Value &value) {
  if (const Text *text = value.text())
    return text->isMarked ? "Markup" : "str";
  if (const Sequence *sequence = value.sequence())
    return sequence->isTuple ? "tuple" : "list";
  if (value.object())
    return value.object()->type();
  constexpr const char *names[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "dict"};
  return names[value.data.index()];
}

bool isTrue(Run &run, const Value &value) {
  if (std::optional<double> number = numberOf(value))
    return *number != 0;
  if (const Text *text = value.text())
    return !text->bytes.empty();
  if (const Sequence *sequence = value.sequence())
    return !sequence->items.empty();
  if (const Dict *dict = value.dict())
    return !dict->items.empty();
  return value.object() && value.object()->length(run).value_or(1) != 0;
}

bool isSame(const Value &a, const Value &b) {
  if (a.data.index() != b.data.index())
    return false;
  return std::visit(
      [&](const auto &one) {
        using Kind = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Kind, Undefined>)
          return one.reason == std::get<Undefined>(b.data).reason;
        else
          return one == std::get<Kind>(b.data);
      },
      a.data);
}

bool isEqual(Run &run, const Value &a, const Value &b) {
  run.step();
  std::optional<double> x = numberOf(a), y = numberOf(b);
  if (x && y) {
    std::optional<int64_t> i = integerOf(a), j = integerOf(b);
    return i && j ? *i == *j : *x == *y;
  }
  if (a.text() && b.text()) {
    run.step(static_cast<int64_t>(std::min(a.text()->bytes.size(), b.text()->bytes.size()) / 64));
    return a.text()->bytes == b.text()->bytes;
  }
  if (a.isUndefined() && b.isUndefined())
    return true;
  if (isSame(a, b))
    return true;
  if (a.sequence() && b.sequence())
    return areEqual(run, *a.sequence(), *b.sequence());
  return a.dict() && b.dict() && areEqual(run, *a.dict(), *b.dict());
}

bool isLess(Run &run, const Value &a, const Value &b, const char *symbol) {
  run.step();
  if (a.isUndefined() || b.isUndefined())
    failUndefined(a.isUndefined() ? a : b);
  if (std::optional<int64_t> i = integerOf(a), j = integerOf(b); i && j)
    return *i < *j;
  if (std::optional<double> x = numberOf(a), y = numberOf(b); x && y)
    return *x < *y;
  if (a.text() && b.text())
    return a.text()->bytes < b.text()->bytes; // bytes of UTF-8 have the order of code points
  const Sequence *one = a.sequence(), *other = b.sequence();
  if (!one || !other || one->isTuple != other->isTuple)
    throw Fault(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol, typeOf(a), typeOf(b)));
  for (size_t i = 0; i < std::min(one->items.size(), other->items.size()); ++i)
    if (!isEqual(run, one->items[i], other->items[i]))
      return isLess(run, one->items[i], other->items[i], symbol);
  return one->items.size() < other->items.size();
}

std::optional<double> numberOf(const Value &value) {
  if (value.real())
    return *value.real();
  std::optional<int64_t> integer = integerOf(value);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

std::optional<int64_t> integerOf(const Value &value) {
  if (value.integer())
    return *value.integer();
  return value.boolean() ? std::optional<int64_t>(*value.boolean()) : std::nullopt;
}

int64_t lengthOf(Run &run, const Value &value) {
  if (value.isUndefined())
    return 0;
  if (const Text *text = value.text()) {
    run.step(static_cast<int64_t>(text->bytes.size() / 64));
    return static_cast<int64_t>(charactersIn(text->bytes));
  }
  if (const Sequence *sequence = value.sequence())
    return std::ssize(sequence->items);
  if (const Dict *dict = value.dict())
    return std::ssize(dict->items);
  if (std::optional<int64_t> length = value.object() ? value.object()->length(run) : std::nullopt)
    return *length;
  throw Fault(fmt::format("object of type '{}' has no len()", typeOf(value)));
}

std::unique_ptr<Iterator> iterate(Run &run, const Value &value, bool mayFail) {
  size_t at = 0;
  if (value.isUndefined())
    return iteratorOf([](Run &, Value &) { return false; });
  if (value.text())
    return iteratorOf([value, at](Run &run, Value &out) mutable {
      const std::string &bytes = value.text()->bytes;
      if (at >= bytes.size())
        return false;
      size_t begin = at;
      at = afterCharacters(bytes, begin, 1);
      out = makeText(run, bytes.substr(begin, at - begin), value.text()->isMarked);
      return true;
    });
  if (value.sequence())
    return iteratorOf([value, at](Run &, Value &out) mutable {
      if (at >= value.sequence()->items.size())
        return false;
      out = value.sequence()->items[at++];
      return true;
    });
  if (value.dict())
    return iteratorOf([value, at](Run &, Value &out) mutable {
      if (at >= value.dict()->items.size())
        return false;
      out = value.dict()->items[at++].first;
      return true;
    });
  std::unique_ptr<Iterator> iterator = value.object() ? value.object()->iterate(run) : nullptr;
  if (!iterator && mayFail)
    throw Fault(fmt::format("'{}' object is not iterable", typeOf(value)));
  return iterator;
}

std::vector<Value> listOf(Run &run, const Value &value) {
  if (value.sequence())
    return value.sequence()->items;
  std::vector<Value> items;
  std::unique_ptr<Iterator> iterator = iterate(run, value);
  for (Value item; iterator->next(run, item);) {
    run.take(sizeof(Value));
    items.push_back(item);
  }
  return items;
}

std::string reprOfFloat(double value) {
  std::string text = fmt::format("{}", value);
  bool isWhole = text.find_first_not_of("-0123456789") == std::string::npos;
  return isWhole ? text + ".0" : text;
}

std::string str(Run &run, const Value &value) {
  if (value.text())
    return value.text()->bytes;
  return value.isUndefined() ? "" : repr(run, value);
}

std::string repr(Run &run, const Value &value) {
  run.step();
  if (const Text *text = value.text()) {
    run.step(static_cast<int64_t>(text->bytes.size() / 64));
    std::string quoted = reprOfText(text->bytes);
    return text->isMarked ? fmt::format("Markup({})", quoted) : quoted;
  }
  if (const Sequence *sequence = value.sequence()) {
    std::string items = join(run, sequence->items);
    run.take(items.size());
    if (!sequence->isTuple)
      return "[" + items + "]";
    return "(" + items + (sequence->items.size() == 1 ? ",)" : ")");
  }
  if (const Dict *dict = value.dict()) {
    std::string items;
    for (const auto &[key, item] : dict->items)
      items += (items.empty() ? "" : ", ") + repr(run, key) + ": " + repr(run, item);
    run.take(items.size());
    return "{" + items + "}";
  }
  if (value.boolean())
    return *value.boolean() ? "True" : "False";
  if (value.integer())
    return std::to_string(*value.integer());
  if (value.real())
    return reprOfFloat(*value.real());
  if (value.object())
    return value.object()->repr(run);
  return value.isNone() ? "None" : "Undefined";
}

Value softText(Run &run, const Value &value) { return value.text() ? value : makeText(run, str(run, value)); }

} // namespace espalier::rt::jinja
