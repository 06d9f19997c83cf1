// Filters of texts and numbers.
#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/format.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace espalier::rt::jinja {

namespace {

/// Calls a method of the text of a value.
Value viaMethod(Run &run, const Value &value, const char *method, const Arguments &all) {
  return callValue(run, *methodOf(run, softText(run, value), method), all);
}

template <std::string (*convert)(std::string_view)>
Value converted(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  Value text = softText(run, value);
  return makeText(run, convert(text.text()->bytes), text.text()->isMarked);
}

/// Returns jinja2's title(): the first letter of each word in upper case, the others in lower case.
std::string titleOfWords(std::string_view text) {
  std::string out;
  std::u32string word;
  auto flush = [&] {
    if (!word.empty())
      out += upper(encoded(word.substr(0, 1))) + lower(encoded(word.substr(1)));
    word.clear();
  };
  for (char32_t c : decoded(text))
    if (isSpace(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos) {
      flush();
      out += encoded({&c, 1});
    } else
      word += c;
  flush();
  return out;
}

Value trim(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"chars"});
  Arguments given;
  if (bound.given(0))
    given.positional.push_back(bound.at(0));
  return viaMethod(run, value, "strip", given);
}

Value center(Run &run, const Value &value, const Arguments &all) {
  return viaMethod(run, value, "center", {{Bound(run, all, {"width"}).value(0, int64_t{80})}, {}});
}

Value replace(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"old", "new", "count"}, 2);
  Arguments texts{{makeText(run, str(run, bound.at(0))), makeText(run, str(run, bound.at(1)))}, {}};
  if (bound.given(2))
    texts.positional.push_back(bound.at(2));
  return callValue(run, *methodOf(run, makeText(run, str(run, value)), "replace"), texts);
}

Value indent(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"width", "first", "blank"});
  if (!value.text())
    failUndefined(value.isUndefined() ? value : undefined(fmt::format("indent needs a text, got {}", typeOf(value))));
  bool isText = bound.find(0) && bound.at(0).text();
  std::string by = isText ? bound.text(0) : padded("", std::min<int64_t>(bound.integer(0, 4), 1 << 20), '<');
  std::vector<std::string> lines = splitLines(value.text()->bytes + "\n", /*keepsEnds=*/false);
  run.take(lines.size() * by.size() + value.text()->bytes.size());
  std::string out = bound.isTrue(1) ? by : "";
  for (size_t i = 0; i < lines.size(); ++i)
    out += (i > 0 ? "\n" : "") + (i > 0 && (bound.isTrue(2) || !lines[i].empty()) ? by : "") + lines[i];
  return makeText(run, std::move(out), value.text()->isMarked);
}

Value truncate(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"length", "killwords", "end", "leeway"});
  int64_t length = bound.integer(0, 255), leeway = bound.given(3) ? bound.integer(3, 0) : 5;
  std::string end = bound.text(2, "...");
  int64_t kept = length - static_cast<int64_t>(charactersIn(end));
  if (kept < 0 || leeway < 0)
    throw Fault(fmt::format("truncate needs a length of at least {} and a leeway of at least 0", length - kept));
  if (lengthOf(run, value) <= length + leeway)
    return value;
  Value head = sliceOf(run, value, {}, kept, {});
  if (!head.text())
    throw Fault(fmt::format("truncate needs a text, got {}", typeOf(value)));
  std::string text = head.text()->bytes;
  if (!bound.isTrue(1))
    text = split(text, " ", 1, /*isFromRight=*/true).front();
  return makeText(run, text + end);
}

Value wordCount(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  int64_t words = 0;
  bool isInside = false;
  for (char32_t c : decoded(str(run, value))) {
    bool isWord = isLetter(c) || isDigit(c) || c == '_';
    words += isWord && !isInside;
    isInside = isWord;
  }
  return words;
}

/// Returns the number that Python's int() or float() reads in a text.
std::optional<int64_t> readInteger(std::string_view text, int64_t base) {
  std::string digits(stripped(text, Side::Both));
  bool isNegative = digits.starts_with('-');
  if (isNegative || digits.starts_with('+'))
    digits.erase(0, 1);
  std::string prefix = lower(digits.substr(0, 2));
  int64_t marked = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
  if (marked > 0 && (base == marked || base == 0))
    digits.erase(0, digits.size() > 2 && digits[2] == '_' ? 3 : 2);
  if (base == 0)
    base = marked > 0 ? marked : 10;
  if (base < 2 || base > 36 || digits.empty() || digits.front() == '_' || digits.back() == '_' ||
      digits.front() == '-' || digits.find("__") != std::string::npos)
    return std::nullopt;
  std::erase(digits, '_');
  if (isNegative)
    digits.insert(digits.begin(), '-');
  int64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  if (error != std::errc())
    throw Fault("an integer does not fit into 64 bits");
  return number;
}

std::optional<double> readReal(std::string_view text) {
  std::string number = lower(stripped(text, Side::Both));
  bool hasSign = number.starts_with('-') || number.starts_with('+');
  std::string_view size = std::string_view(number).substr(hasSign);
  bool isName = size == "inf" || size == "infinity" || size == "nan";
  if (size.empty() || (!isName && size.find_first_not_of("0123456789.e+-_") != std::string_view::npos))
    return std::nullopt;
  for (size_t i = 0; i < number.size(); ++i) // an underscore stands between digits
    if (number[i] == '_' &&
        (i == 0 || i + 1 == number.size() || !std::isdigit(number[i - 1]) || !std::isdigit(number[i + 1])))
      return std::nullopt;
  std::erase(number, '_');
  char *end = nullptr;
  double value = std::strtod(number.c_str(), &end);
  return *end == 0 ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> wholeOf(std::optional<double> value) {
  if (!value || !std::isfinite(*value))
    return std::nullopt;
  if (std::fabs(*value) >= 0x1p63)
    throw Fault("an integer does not fit into 64 bits");
  return static_cast<int64_t>(*value);
}

Value toInteger(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"default", "base"});
  if (value.isUndefined())
    failUndefined(value);
  std::optional<int64_t> integer = integerOf(value);
  if (value.text()) {
    integer = readInteger(value.text()->bytes, bound.integer(1, 10));
    integer = integer ? integer : wholeOf(readReal(value.text()->bytes));
  } else if (value.real()) {
    if (std::isinf(*value.real()))
      throw Fault("cannot convert float infinity to integer");
    integer = wholeOf(*value.real());
  }
  return integer ? Value(*integer) : bound.value(0, int64_t{0});
}

Value toReal(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"default"});
  if (value.isUndefined())
    failUndefined(value);
  std::optional<double> number = value.text() ? readReal(value.text()->bytes) : numberOf(value);
  return number ? Value(*number) : bound.value(0, 0.0);
}

Value absolute(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  bool isNegative = value.real() ? std::signbit(*value.real()) : integerOf(value).value_or(0) < 0;
  return isNegative ? negative(value) : positive(value);
}

/// Rounds half to even, on the decimal digits of the exact value, as Python does.
double roundedTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300)
    return value;
  if (digits < 0) {
    double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

Value rounded(Run &run, const Value &value, const Arguments &all) {
  Bound bound(run, all, {"precision", "method"});
  std::string method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor")
    throw Fault("method must be common, ceil or floor");
  int64_t digits = bound.integer(0, 0);
  std::optional<double> number = numberOf(value);
  if (!number)
    throw Fault(fmt::format("type {} cannot be rounded", typeOf(value)));
  if (method == "common") {
    if (!value.real() && digits >= 0)
      return *integerOf(value);
    double result = roundedTo(*number, digits);
    return value.real() ? Value(result) : Value(static_cast<int64_t>(result));
  }
  double unit = std::pow(10.0, static_cast<double>(digits)), scaled = *number * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

Value format(Run &run, const Value &value, const Arguments &all) {
  if (!all.positional.empty() && !all.named.empty())
    throw Fault("can't handle positional and keyword arguments at the same time");
  if (all.named.empty())
    return binary(run, "%", softText(run, value), makeList(run, all.positional, /*isTuple=*/true));
  Dict dict;
  for (const auto &[name, item] : all.named)
    dict.set(run, makeText(run, name), item);
  return binary(run, "%", softText(run, value), makeDict(run, std::move(dict)));
}

Value json(Run &run, const Value &value, const Arguments &all) { return makeText(run, toJson(run, value, all)); }

template <bool isForced> Value escape(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  if (!isForced && value.text() && value.text()->isMarked)
    return value;
  return makeText(run, escaped(str(run, value)), /*isMarked=*/true);
}

Value safe(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  return makeText(run, str(run, value), /*isMarked=*/true);
}

Value toText(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  return softText(run, value);
}

std::string urlQuoted(std::string_view text, std::string_view kept) {
  std::string out;
  for (char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || kept.find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
}

Value urlEncode(Run &run, const Value &value, const Arguments &all) {
  Bound(run, all, {});
  if (value.text() || !iterate(run, value, /*mayFail=*/false))
    return makeText(run, urlQuoted(str(run, value), "_.-~/"));
  std::string out;
  Value pairs = value.dict() ? callValue(run, *methodOf(run, value, "items"), {}) : value;
  for (const Value &pair : listOf(run, pairs)) {
    std::vector<Value> both = listOf(run, pair);
    if (both.size() != 2)
      throw Fault("urlencode needs pairs");
    out +=
        (out.empty() ? "" : "&") + urlQuoted(str(run, both[0]), "_.-~ ") + "=" + urlQuoted(str(run, both[1]), "_.-~ ");
  }
  std::ranges::replace(out, ' ', '+');
  return makeText(run, std::move(out));
}

Value fileSize(Run &run, const Value &value, const Arguments &all) {
  bool isBinary = Bound(run, all, {"binary"}).isTrue(0);
  std::optional<double> bytes = value.text() ? readReal(value.text()->bytes) : numberOf(value);
  if (!bytes)
    throw Fault(fmt::format("filesizeformat needs a number, got {}", typeOf(value)));
  double base = isBinary ? 1024 : 1000, unit = base;
  if (*bytes == 1)
    return makeText(run, "1 Byte");
  if (*bytes < base)
    return makeText(run, fmt::format("{} Bytes", static_cast<int64_t>(*bytes)));
  constexpr std::string_view letters = "KMGTPEZY";
  size_t place = 0;
  for (; place + 1 < letters.size() && *bytes >= unit * base; ++place)
    unit *= base;
  char letter = letters[place] == 'K' && !isBinary ? 'k' : letters[place];
  return makeText(run, fmt::format("{:.1f} {}{}B", *bytes / unit, letter, isBinary ? "i" : ""));
}

} // namespace

Filter findScalarFilter(std::string_view name) {
  static const std::map<std::string_view, Filter> filters = {
      {"abs", absolute},
      {"capitalize", converted<capitalized>},
      {"center", center},
      {"e", escape<false>},
      {"escape", escape<false>},
      {"filesizeformat", fileSize},
      {"float", toReal},
      {"forceescape", escape<true>},
      {"format", format},
      {"indent", indent},
      {"int", toInteger},
      {"lower", converted<lower>},
      {"replace", replace},
      {"round", rounded},
      {"safe", safe},
      {"string", toText},
      {"title", converted<titleOfWords>},
      {"tojson", json},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", converted<upper>},
      {"urlencode", urlEncode},
      {"wordcount", wordCount},
  };
  auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

} // namespace espalier::rt::jinja
