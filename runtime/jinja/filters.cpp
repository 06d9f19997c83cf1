// Filters of sequences and dicts, and the tests.
#include "runtime/jinja/filters.h"

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/objects.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>

namespace espalier::rt::jinja {

namespace {

/// Reads an attribute of items, such as `name`, `0` or `function.name`; without one, the item itself.
class Getter {
public:
  Getter(Run &run, const Value *attribute, const Value *byDefault = nullptr, bool ignoresCase = false)
      : byDefault(byDefault ? std::optional(*byDefault) : std::nullopt), ignoresCase(ignoresCase) {
    if (!attribute || attribute->isNone())
      return;
    if (!attribute->text()) {
      keys.push_back(*attribute);
      return;
    }
    for (const std::string &part : split(attribute->text()->bytes, ".", -1, /*isFromRight=*/false)) {
      bool isIndex = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
      keys.push_back(isIndex ? Value(int64_t{std::stoll(part)}) : makeText(run, part));
    }
  }

  Value operator()(Run &run, Value item) const {
    for (const Value &key : keys) {
      item = itemOf(run, item, key);
      if (item.isUndefined() && byDefault)
        item = *byDefault;
    }
    return ignoresCase && item.text() ? makeText(run, lower(item.text()->bytes)) : item;
  }

private:
  std::vector<Value> keys;
  std::optional<Value> byDefault;
  bool ignoresCase;
};

/// Orders items by their keys, and keeps the order of equal ones.
std::vector<Value> sorted(Run &run, const std::vector<Value> &items, const std::vector<Value> &keys, bool isReverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return isReverse ? isLess(run, keys[b], keys[a]) : isLess(run, keys[a], keys[b]);
  });
  std::vector<Value> result;
  for (size_t place : order)
    result.push_back(items[place]);
  return result;
}

std::vector<Value> mapped(Run &run, const std::vector<Value> &items, const Getter &getter) {
  std::vector<Value> keys;
  for (const Value &item : items)
    keys.push_back(getter(run, item));
  return keys;
}

/// Returns the keys by which `sort` orders: those of each of the attributes between commas.
std::vector<Value> sortKeys(Run &run, const std::vector<Value> &items, const Value *attribute, bool ignoresCase) {
  std::vector<Getter> getters;
  if (attribute && attribute->text())
    for (const std::string &one : split(attribute->text()->bytes, ",", -1, /*isFromRight=*/false)) {
      Value name = makeText(run, one);
      getters.emplace_back(run, &name, nullptr, ignoresCase);
    }
  else
    getters.emplace_back(run, attribute, nullptr, ignoresCase);
  std::vector<Value> keys;
  for (const Value &item : items) {
    std::vector<Value> parts;
    for (const Getter &getter : getters)
      parts.push_back(getter(run, item));
    keys.push_back(makeList(run, std::move(parts)));
  }
  return keys;
}

Value sort(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = listOf(run, value);
  return makeList(run, sorted(run, items, sortKeys(run, items, bound.given(2), !bound.isTrue(1)), bound.isTrue(0)));
}

Value dictSort(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"case_sensitive", "by", "reverse"});
  std::string by = bound.text(1, "key");
  if (by != "key" && by != "value")
    throw Fault("You can only sort by either \"key\" or \"value\"");
  if (!value.dict())
    throw Fault(fmt::format("dictsort needs a mapping, got {}", typeOf(value)));
  std::vector<Value> items = listOf(run, makeObject<View>(run, nestingOf(value) + 1, value, View::Items));
  Value place = int64_t{by == "value"};
  std::vector<Value> keys = mapped(run, items, Getter(run, &place, nullptr, !bound.isTrue(0)));
  return makeList(run, sorted(run, items, keys, bound.isTrue(2)));
}

Value groupBy(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"attribute", "default", "case_sensitive"}, 1);
  Getter ofGroups(run, &bound.at(0), bound.given(1), !bound.isTrue(2)), shown(run, &bound.at(0), bound.given(1));
  std::vector<Value> items = listOf(run, value);
  items = sorted(run, items, mapped(run, items, ofGroups), /*isReverse=*/false);
  std::vector<Value> groups, group;
  for (size_t i = 0; i < items.size(); ++i) {
    group.push_back(items[i]);
    if (i + 1 < items.size() && isEqual(run, ofGroups(run, items[i]), ofGroups(run, items[i + 1])))
      continue;
    Value name = shown(run, group.front());
    groups.push_back(makeList(run, {name, makeList(run, std::exchange(group, {}))}, /*isTuple=*/true));
  }
  return makeList(run, std::move(groups));
}

template <bool wantsLargest> Value extreme(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"case_sensitive", "attribute"});
  Getter getter(run, bound.given(1), nullptr, !bound.isTrue(0));
  std::optional<Value> best, bestKey;
  std::unique_ptr<Iterator> iterator = iterate(run, value);
  for (Value item; iterator->next(run, item);) {
    Value key = getter(run, item);
    if (best && !(wantsLargest ? isLess(run, *bestKey, key) : isLess(run, key, *bestKey)))
      continue;
    best = item;
    bestKey = key;
  }
  return best ? *best : undefined("No aggregated item, sequence was empty.");
}

Value sum(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"attribute", "start"});
  Getter getter(run, bound.given(0));
  Value total = bound.value(1, int64_t{0});
  if (total.text())
    throw Fault("sum() can't sum strings [use ''.join(seq) instead]");
  std::unique_ptr<Iterator> iterator = iterate(run, value);
  for (Value item; iterator->next(run, item);)
    total = binary(run, "+", total, getter(run, item));
  return total;
}

Value unique(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"case_sensitive", "attribute"});
  Getter getter(run, bound.given(1), nullptr, !bound.isTrue(0));
  return filtered(run, value, [getter, seen = Dict()](Run &run, Value &item) mutable {
    Value key = getter(run, item);
    if (seen.find(run, key))
      return false;
    seen.set(run, key, true);
    return true;
  });
}

Value join(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"d", "attribute"});
  Getter getter(run, bound.given(1));
  std::string separator = bound.find(0) ? str(run, bound.at(0)) : "", text;
  bool isFirst = true;
  std::unique_ptr<Iterator> iterator = iterate(run, value);
  for (Value item; iterator->next(run, item); isFirst = false) {
    std::string one = str(run, getter(run, item));
    run.take(one.size() + separator.size());
    text += (isFirst ? "" : separator) + one;
  }
  return makeText(run, std::move(text));
}

Value first(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  Value item;
  return iterate(run, value)->next(run, item) ? item : undefined("No first item, sequence was empty.");
}

Value reverse(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  if (value.text()) {
    std::u32string characters = decoded(value.text()->bytes);
    std::ranges::reverse(characters);
    return makeText(run, encoded(characters), value.text()->isMarked);
  }
  bool isGenerator = value.as<Generator>();
  std::vector<Value> items = listOf(run, value);
  std::ranges::reverse(items);
  Value list = makeList(run, std::move(items));
  return isGenerator ? list : filtered(run, list, [](Run &, Value &) { return true; });
}

Value last(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  if (value.as<Generator>())
    throw Fault("'generator' object is not reversible");
  std::vector<Value> items = listOf(run, value);
  return items.empty() ? undefined("No last item, sequence was empty.") : items.back();
}

Value list(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  return makeList(run, listOf(run, value));
}

Value items(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  return filtered(run, value.dict() ? makeObject<View>(run, nestingOf(value) + 1, value, View::Items) : value,
                  [isMapping = value.dict() || value.isUndefined()](Run &, Value &) {
                    if (!isMapping)
                      throw Fault("Can only get item pairs from a mapping.");
                    return true;
                  });
}

/// Splits a list into `slices` lists, the first ones with one item more.
Value slice(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"slices", "fill_with"}, 1);
  std::vector<Value> items = listOf(run, value), lists;
  int64_t slices = bound.integer(0, 0), length = std::ssize(items);
  if (slices == 0)
    throw Fault("integer division or modulo by zero");
  auto next = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    bool isLonger = i < length % slices;
    auto end = next + length / slices + isLonger;
    std::vector<Value> one(next, end);
    if (bound.given(1) && !isLonger)
      one.push_back(bound.at(1));
    lists.push_back(makeList(run, std::move(one)));
    next = end;
  }
  return filtered(run, makeList(run, std::move(lists)), [](Run &, Value &) { return true; });
}

Value batch(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"linecount", "fill_with"}, 1);
  int64_t size = bound.integer(0, 0);
  std::vector<Value> lists, one;
  for (const Value &item : listOf(run, value)) {
    if (std::ssize(one) == size)
      lists.push_back(makeList(run, std::exchange(one, {})));
    one.push_back(item);
  }
  if (!one.empty() && bound.given(1) && size > std::ssize(one)) {
    run.take(static_cast<size_t>(std::min(size, int64_t{1} << 40)) * sizeof(Value));
    one.resize(static_cast<size_t>(size), bound.at(1));
  }
  if (!one.empty())
    lists.push_back(makeList(run, std::move(one)));
  return filtered(run, makeList(run, std::move(lists)), [](Run &, Value &) { return true; });
}

Value map(Run &run, const Value &value, const Arguments &all) {
  if (!isTrue(run, value))
    return filtered(run, makeList(run, {}), [](Run &, Value &) { return true; });
  return filtered(run, value, [all, getter = std::optional<Getter>()](Run &run, Value &item) mutable {
    if (all.positional.empty()) {
      if (!getter) {
        Bound bound(run, all, {"attribute", "default"});
        if (!bound.find(0))
          throw Fault("map requires a filter argument");
        getter.emplace(run, &bound.at(0), bound.given(1));
      }
      item = (*getter)(run, item);
      return true;
    }
    std::string name = str(run, all.positional[0]);
    Filter filter = findFilter(name);
    if (!filter)
      throw Fault(fmt::format("No filter named '{}'.", name));
    item = filter(run, item, {{all.positional.begin() + 1, all.positional.end()}, all.named});
    return true;
  });
}

/// Keeps the items that pass a test, or those that do not; with `byAttribute`, whose attribute does.
template <bool wanted, bool byAttribute> Value select(Run &run, const Value &value, const Arguments &all) {
  if (!isTrue(run, value))
    return filtered(run, makeList(run, {}), [](Run &, Value &) { return true; });
  return filtered(run, value, [all](Run &run, Value &item) {
    const std::vector<Value> &given = all.positional;
    if (byAttribute && given.empty())
      throw Fault("Missing parameter for attribute name");
    Value tested = byAttribute ? Getter(run, given.data())(run, item) : item;
    if (given.size() <= byAttribute)
      return isTrue(run, tested) == wanted;
    std::string name = str(run, given[byAttribute]);
    Test test = findTest(name);
    if (!test)
      throw Fault(fmt::format("No test named '{}'.", name));
    return test(run, tested, {{given.begin() + 1 + byAttribute, given.end()}, all.named}) == wanted;
  });
}

Value attribute(Run &run, const Value &value, const Arguments &all) {
  std::string name = Bound(run, all, {"name"}, 1).text(0);
  if (!value.dict())
    return attributeOf(run, value, name);
  std::optional<Value> own = methodOf(run, value, name); // not an item
  return own ? *own : undefined(fmt::format("'dict' object has no attribute '{}'", name));
}

Value length(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  return lengthOf(run, value);
}

Value byDefault(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"default_value", "boolean"});
  bool isReplaced = value.isUndefined() || (bound.isTrue(1) && !isTrue(run, value));
  return isReplaced ? bound.value(0, Value::constant("")) : value;
}

template <typename Passes> bool simple(Run &run, const Arguments &all, Passes passes) {
  Bound(run, all, {});
  return passes();
}

/// Returns value % divisor == remainder.
bool hasRemainder(Run &run, const Value &value, const Value &divisor, int64_t remainder) {
  return isEqual(run, binary(run, "%", value, divisor), remainder);
}

template <int symbol> bool compared(Run &run, const Value &value, const Arguments &all) {
  constexpr const char *symbols[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  return compare(run, symbols[symbol], value, Bound(run, all, {"other"}, 1).at(0));
}

template <bool wantsUpper> bool hasCase(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  std::u32string characters = decoded(str(run, value));
  return std::ranges::any_of(characters, wantsUpper ? isUpper : isLower) &&
         std::ranges::none_of(characters, wantsUpper ? isLower : isUpper);
}

#define ESPALIER_TEST(passes)                                                                                          \
  [](Run &run, const Value &value, const Arguments &all) { return simple(run, all, [&]() -> bool { return passes; }); }

} // namespace

Filter findFilter(std::string_view name) {
  static const std::map<std::string_view, Filter> filters = {
      {"attr", attribute},
      {"batch", batch},
      {"count", length},
      {"d", byDefault},
      {"default", byDefault},
      {"dictsort", dictSort},
      {"first", first},
      {"groupby", groupBy},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  auto found = filters.find(name);
  return found != filters.end() ? found->second : findScalarFilter(name);
}

Test findTest(std::string_view name) {
  static const std::map<std::string_view, Test> tests = {
      {"odd", ESPALIER_TEST(hasRemainder(run, value, int64_t{2}, 1))},
      {"even", ESPALIER_TEST(hasRemainder(run, value, int64_t{2}, 0))},
      {"divisibleby",
       [](Run &run, const Value &value, const Arguments &all) {
         return hasRemainder(run, value, Bound(run, all, {"num"}, 1).at(0), 0);
       }},
      {"defined", ESPALIER_TEST(!value.isUndefined())},
      {"undefined", ESPALIER_TEST(value.isUndefined())},
      {"filter", ESPALIER_TEST(value.text() && findFilter(value.text()->bytes))},
      {"test", ESPALIER_TEST(value.text() && findTest(value.text()->bytes))},
      {"none", ESPALIER_TEST(value.isNone())},
      {"boolean", ESPALIER_TEST(value.boolean())},
      {"false", ESPALIER_TEST(value.boolean() && !*value.boolean())},
      {"true", ESPALIER_TEST(value.boolean() && *value.boolean())},
      {"integer", ESPALIER_TEST(value.integer())},
      {"float", ESPALIER_TEST(value.real())},
      {"lower", hasCase<false>},
      {"upper", hasCase<true>},
      {"string", ESPALIER_TEST(value.text())},
      {"mapping", ESPALIER_TEST(value.dict())},
      {"number", ESPALIER_TEST(numberOf(value).has_value())},
      {"sequence",
       ESPALIER_TEST(value.text() || value.sequence() || value.dict() || value.isUndefined() || value.as<Range>())},
      {"iterable", ESPALIER_TEST(iterate(run, value, /*mayFail=*/false) != nullptr)},
      {"callable", ESPALIER_TEST(value.isUndefined() || (value.object() && value.object()->isCallable()))},
      {"sameas",
       [](Run &run, const Value &value, const Arguments &all) {
         return isSame(value, Bound(run, all, {"other"}, 1).at(0)) ||
                (value.text() && isEqual(run, value, Bound(run, all, {"other"}, 1).at(0)));
       }},
      {"escaped", ESPALIER_TEST(value.text() && value.text()->isMarked)},
      {"in", compared<6>},
      {"==", compared<0>},
      {"eq", compared<0>},
      {"equalto", compared<0>},
      {"!=", compared<1>},
      {"ne", compared<1>},
      {"<", compared<2>},
      {"lt", compared<2>},
      {"lessthan", compared<2>},
      {"<=", compared<3>},
      {"le", compared<3>},
      {">", compared<4>},
      {"gt", compared<4>},
      {"greaterthan", compared<4>},
      {">=", compared<5>},
      {"ge", compared<5>},
  };
  auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

} // namespace espalier::rt::jinja
