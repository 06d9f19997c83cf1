// The methods of str, list and dict that do not change their object.
#include "runtime/jinja/arguments.h"
#include "runtime/jinja/format.h"
#include "runtime/jinja/objects.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace espalier::rt::jinja {

namespace {

using Method = Value (*)(Run &, const Value &, const Arguments &);

const std::string &bytesOf(const Value &self) { return self.text()->bytes; }

/// Returns the text of an argument. A method of marked text escapes it.
std::string argument(const Value &self, const Bound &bound, size_t parameter, const std::string &otherwise = "") {
  std::string text = bound.text(parameter, otherwise);
  bool escapes = self.text()->isMarked && bound.find(parameter) && !bound.at(parameter).text()->isMarked;
  return escapes ? escaped(text) : text;
}

/// Makes a text that is marked if the object is.
Value like(Run &run, const Value &self, std::string text) {
  return makeText(run, std::move(text), self.text()->isMarked);
}

Value listLike(Run &run, const Value &self, const std::vector<std::string> &parts, bool isTuple = false) {
  std::vector<Value> items;
  for (const std::string &part : parts)
    items.push_back(like(run, self, part));
  return makeList(run, std::move(items), isTuple);
}

template <Side side> Value strip(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"chars"});
  if (!bound.given(0))
    return like(run, self, std::string(stripped(bytesOf(self), side)));
  return like(run, self, std::string(stripped(bytesOf(self), side, argument(self, bound, 0))));
}

template <bool isFromRight> Value splitText(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"sep", "maxsplit"});
  std::optional<std::string> separator;
  if (bound.given(0)) {
    separator = argument(self, bound, 0);
    if (separator->empty())
      throw Fault("empty separator");
  }
  return listLike(run, self, split(bytesOf(self), separator, bound.integer(1, -1), isFromRight));
}

template <bool isFromRight> Value partition(Run &run, const Value &self, const Arguments &all) {
  std::string separator = argument(self, Bound(run, all, {"sep"}, 1), 0);
  if (separator.empty())
    throw Fault("empty separator");
  std::vector<std::string> parts = split(bytesOf(self), separator, 1, isFromRight);
  if (parts.size() == 1)
    parts = isFromRight ? std::vector<std::string>{"", "", parts[0]} : std::vector<std::string>{parts[0], "", ""};
  else
    parts.insert(parts.begin() + 1, separator);
  return listLike(run, self, parts, /*isTuple=*/true);
}

/// Returns the part of a text between the characters of the optional arguments `start` and `end`, and where it begins.
std::pair<std::string_view, int64_t> partOf(Run &run, const Value &self, const Bound &bound) {
  int64_t length = lengthOf(run, self);
  auto within = [&](size_t parameter, int64_t otherwise) {
    int64_t at = bound.given(parameter) ? bound.integer(parameter, 0) : otherwise;
    return std::max<int64_t>(at < 0 ? at + length : at, 0);
  };
  int64_t first = within(1, 0), last = std::min(within(2, length), length);
  if (first > last)
    return {{}, -1};
  std::string_view text = bytesOf(self);
  size_t begin = afterCharacters(text, 0, static_cast<size_t>(first));
  return {text.substr(begin, afterCharacters(text, begin, static_cast<size_t>(last - first)) - begin), first};
}

template <bool isFromRight, bool mayFail> Value find(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"sub", "start", "end"}, 1);
  auto [part, begin] = partOf(run, self, bound);
  std::string sought = bound.text(0);
  size_t at = begin < 0 ? std::string::npos : isFromRight ? part.rfind(sought) : part.find(sought);
  run.step(static_cast<int64_t>(part.size() / 64));
  if (at != std::string::npos)
    return begin + static_cast<int64_t>(charactersIn(part.substr(0, at)));
  if (mayFail)
    throw Fault("substring not found");
  return int64_t{-1};
}

template <bool atStart> Value hasEnd(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"affix", "start", "end"}, 1);
  auto [part, begin] = partOf(run, self, bound);
  const Sequence *tuple = bound.at(0).sequence();
  if (!bound.at(0).text() && !(tuple && tuple->isTuple))
    throw Fault(fmt::format("{} first arg must be str or a tuple of str, not {}", atStart ? "startswith" : "endswith",
                            typeOf(bound.at(0))));
  for (const Value &one : tuple ? tuple->items : std::vector{bound.at(0)}) {
    if (!one.text())
      throw Fault(fmt::format("tuple for startswith must only contain str, not {}", typeOf(one)));
    const std::string &affix = one.text()->bytes;
    if (begin >= 0 && (atStart ? part.starts_with(affix) : part.ends_with(affix)))
      return true;
  }
  return false;
}

template <bool atStart> Value removeEnd(Run &run, const Value &self, const Arguments &all) {
  std::string affix = argument(self, Bound(run, all, {"affix"}, 1), 0);
  std::string_view text = bytesOf(self);
  if (atStart && text.starts_with(affix))
    text.remove_prefix(affix.size());
  else if (!atStart && text.ends_with(affix))
    text.remove_suffix(affix.size());
  return like(run, self, std::string(text));
}

Value replace(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"old", "new", "count"}, 2);
  std::string old = argument(self, bound, 0), with = argument(self, bound, 1);
  // The result is counted before it is made.
  run.take(static_cast<size_t>(occurrences(bytesOf(self), old)) * with.size());
  return like(run, self, replaced(bytesOf(self), old, with, bound.integer(2, -1)));
}

Value join(Run &run, const Value &self, const Arguments &all) {
  std::string text;
  bool isFirst = true;
  std::unique_ptr<Iterator> iterator = iterate(run, Bound(run, all, {"iterable"}, 1).at(0));
  for (Value item; iterator->next(run, item); isFirst = false) {
    if (!item.text())
      throw Fault(fmt::format("sequence item: expected str instance, {} found", typeOf(item)));
    bool escapes = self.text()->isMarked && !item.text()->isMarked;
    run.take(item.text()->bytes.size() + bytesOf(self).size());
    text += (isFirst ? "" : bytesOf(self)) + (escapes ? escaped(item.text()->bytes) : item.text()->bytes);
  }
  return like(run, self, std::move(text));
}

template <char place> Value pad(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"width", "fillchar"}, 1);
  std::string fill = bound.text(1, " ");
  if (charactersIn(fill) != 1)
    throw Fault("The fill character must be exactly one character long");
  int64_t width = bound.integer(0, 0);
  run.take(static_cast<size_t>(std::clamp<int64_t>(width, 0, int64_t{1} << 40)) * fill.size());
  return like(run, self, padded(bytesOf(self), width, place, fill));
}

Value zeroFill(Run &run, const Value &self, const Arguments &all) {
  int64_t width = Bound(run, all, {"width"}, 1).integer(0, 0);
  run.take(static_cast<size_t>(std::max<int64_t>(width, 0)));
  const std::string &text = bytesOf(self);
  size_t sign = text.starts_with('+') || text.starts_with('-');
  return like(run, self,
              text.substr(0, sign) + padded(text.substr(sign), width - static_cast<int64_t>(sign), '>', "0"));
}

Value expandTabs(Run &run, const Value &self, const Arguments &all) {
  int64_t size = std::min<int64_t>(Bound(run, all, {"tabsize"}).integer(0, 8), 1024), column = 0;
  std::u32string out;
  for (char32_t c : decoded(bytesOf(self)))
    if (c != '\t') {
      out += c;
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    } else if (size > 0) {
      int64_t blanks = size - column % size;
      out.append(static_cast<size_t>(blanks), U' ');
      column += blanks;
      run.step(blanks);
    }
  return like(run, self, encoded(out));
}

template <std::string (*convert)(std::string_view)> Value converted(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  run.take(bytesOf(self).size() * sizeof(char32_t));
  return like(run, self, convert(bytesOf(self)));
}

template <bool (*isOne)(char32_t)> Value allAre(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  return !bytesOf(self).empty() && std::ranges::all_of(decoded(bytesOf(self)), isOne);
}

/// Whether there are letters with a case, all of them of the one.
template <bool (*isOne)(char32_t), bool (*isOther)(char32_t)>
Value haveCase(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  std::u32string characters = decoded(bytesOf(self));
  return std::ranges::any_of(characters, isOne) && std::ranges::none_of(characters, isOther);
}

bool isAlphanumeric(char32_t c) { return isLetter(c) || isDigit(c); }
bool isAscii(char32_t c) { return c < 0x80; }

Value isTitle(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  bool hasLetter = std::ranges::any_of(decoded(bytesOf(self)), [](char32_t c) { return isUpper(c) || isLower(c); });
  return hasLetter && titled(bytesOf(self)) == bytesOf(self);
}

Value count(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"sub", "start", "end"}, 1);
  if (self.text()) {
    auto [part, begin] = partOf(run, self, bound);
    return begin < 0 ? int64_t{0} : occurrences(part, bound.text(0));
  }
  int64_t count = 0;
  for (const Value &item : self.sequence()->items)
    count += isEqual(run, item, bound.at(0));
  return count;
}

Value indexInList(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"value", "start", "stop"}, 1);
  const std::vector<Value> &items = self.sequence()->items;
  int64_t length = std::ssize(items);
  auto within = [&](size_t parameter, int64_t otherwise) {
    int64_t at = bound.integer(parameter, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length);
  };
  for (int64_t at = within(1, 0), end = within(2, length); at < end; ++at)
    if (isEqual(run, items[static_cast<size_t>(at)], bound.at(0)))
      return at;
  throw Fault("the value is not in the list");
}

Value splitIntoLines(Run &run, const Value &self, const Arguments &all) {
  return listLike(run, self, splitLines(bytesOf(self), Bound(run, all, {"keepends"}).isTrue(0)));
}

Value format(Run &run, const Value &self, const Arguments &all) {
  return like(run, self, formatFields(run, bytesOf(self), all));
}

Value formatMap(Run &run, const Value &self, const Arguments &all) {
  Arguments named;
  const Value mapping = Bound(run, all, {"mapping"}, 1).at(0);
  if (mapping.dict())
    for (const auto &[key, value] : mapping.dict()->items)
      named.named.emplace_back(str(run, key), value);
  return like(run, self, formatFields(run, bytesOf(self), named));
}

template <View::Kind kind> Value view(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  return makeObject<View>(run, nestingOf(self) + 1, self, kind);
}

Value get(Run &run, const Value &self, const Arguments &all) {
  Bound bound(run, all, {"key", "default"}, 1);
  if (!all.named.empty())
    throw Fault("dict.get() takes no keyword arguments");
  const Value *found = self.dict()->find(run, bound.at(0));
  return found ? *found : bound.value(1);
}

Value copy(Run &run, const Value &self, const Arguments &all) {
  Bound(run, all, {});
  return self;
}

const std::map<std::string_view, Method> textMethods = {
    {"capitalize", converted<capitalized>},
    {"casefold", converted<lower>},
    {"center", pad<'^'>},
    {"count", count},
    {"endswith", hasEnd<false>},
    {"expandtabs", expandTabs},
    {"find", find<false, false>},
    {"format", format},
    {"format_map", formatMap},
    {"index", find<false, true>},
    {"isalnum", allAre<isAlphanumeric>},
    {"isalpha", allAre<isLetter>},
    {"isascii",
     [](Run &run, const Value &self, const Arguments &all) -> Value {
       Bound(run, all, {});
       return std::ranges::all_of(decoded(bytesOf(self)), isAscii);
     }},
    {"isdecimal", allAre<isDigit>},
    {"isdigit", allAre<isDigit>},
    {"islower", haveCase<isLower, isUpper>},
    {"isnumeric", allAre<isDigit>},
    {"isspace", allAre<isSpace>},
    {"istitle", isTitle},
    {"isupper", haveCase<isUpper, isLower>},
    {"join", join},
    {"ljust", pad<'<'>},
    {"lower", converted<lower>},
    {"lstrip", strip<Side::Left>},
    {"partition", partition<false>},
    {"removeprefix", removeEnd<true>},
    {"removesuffix", removeEnd<false>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", pad<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", splitText<true>},
    {"rstrip", strip<Side::Right>},
    {"split", splitText<false>},
    {"splitlines", splitIntoLines},
    {"startswith", hasEnd<true>},
    {"strip", strip<Side::Both>},
    {"swapcase", converted<swappedCase>},
    {"title", converted<titled>},
    {"upper", converted<upper>},
    {"zfill", zeroFill},
};

const std::map<std::string_view, Method> listMethods = {{"copy", copy}, {"count", count}, {"index", indexInList}};

const std::map<std::string_view, Method> dictMethods = {{"copy", copy},
                                                        {"get", get},
                                                        {"items", view<View::Items>},
                                                        {"keys", view<View::Keys>},
                                                        {"values", view<View::Values>}};

} // namespace

std::optional<Value> methodOf(Run &run, const Value &object, const std::string &name) {
  static const std::set<std::string_view> listChanges = {"append", "clear",  "extend",  "insert",
                                                         "pop",    "remove", "reverse", "sort"};
  static const std::set<std::string_view> dictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
  const Sequence *sequence = object.sequence();
  bool isList = sequence && !sequence->isTuple;
  if ((isList && listChanges.contains(name)) || (object.dict() && dictChanges.contains(name)))
    return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, typeOf(object)));
  if (!object.text() && !sequence && !object.dict())
    return std::nullopt;
  const auto &methods = object.text() ? textMethods : sequence ? listMethods : dictMethods;
  auto found = methods.find(name);
  if (found == methods.end() || (sequence && sequence->isTuple && name == "copy"))
    return std::nullopt;
  return makeObject<Function>(run, nestingOf(object) + 1,
                              [object, method = found->second](Run &run, const Arguments &all) {
                                run.step(object.text() ? static_cast<int64_t>(object.text()->bytes.size() / 64) : 1);
                                return method(run, object, all);
                              });
}

} // namespace espalier::rt::jinja
