#include "runtime/jinja/format.h"

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace espalier::rt::jinja {

namespace {

/// The layout of one formatted value.
struct Layout {
  std::string fill = " ";
  char align = 0; ///< '<', '>', '^' or '=', which pads behind the sign; 0: by the type
  char sign = '-';
  bool isAlternate = false, hasComma = false, hasUnderscore = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

constexpr int64_t mostWidth = 1 << 20;

/// Reads a number of a layout; returns -1 if there is none.
int64_t readCount(std::string_view text, size_t &at) {
  int64_t count = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    if ((count = std::max<int64_t>(count, 0) * 10 + text[at] - '0') > mostWidth)
      throw Fault(fmt::format("a format is wider than {} characters", mostWidth));
  return count;
}

std::string grouped(const std::string &digits, char mark, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0)
      out += mark;
    out += digits[i];
  }
  return out;
}

/// Adds sign and prefix, and pads.
std::string laidOut(bool isNegative, const std::string &prefix, std::string body, const Layout &layout) {
  std::string sign = isNegative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  char align = layout.align ? layout.align : '>';
  if (align != '=')
    return padded(sign + prefix + body, layout.width, align, layout.fill);
  auto used = static_cast<int64_t>(sign.size() + prefix.size());
  return sign + prefix + padded(body, layout.width - used, '>', layout.fill);
}

std::string formatInteger(int64_t value, const Layout &layout) {
  uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char type = layout.type ? layout.type : 'd';
  std::string digits = type == 'x'   ? fmt::format("{:x}", size)
                       : type == 'X' ? fmt::format("{:X}", size)
                       : type == 'o' ? fmt::format("{:o}", size)
                       : type == 'b' ? fmt::format("{:b}", size)
                                     : fmt::format("{}", size);
  if (layout.hasComma || layout.hasUnderscore)
    digits = grouped(digits, layout.hasComma ? ',' : '_', type == 'd' ? 3 : 4);
  return laidOut(value < 0, layout.isAlternate && type != 'd' ? std::string("0") + type : "", digits, layout);
}

std::string formatReal(double value, const Layout &layout) {
  char type = layout.type;
  double size = std::fabs(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G')
      std::ranges::transform(digits, digits.begin(), [](char c) { return static_cast<char>(c - 32); });
  } else if (type == 0 && layout.precision < 0) {
    digits = reprOfFloat(size);
  } else {
    int precision = layout.precision < 0 ? 6 : static_cast<int>(layout.precision);
    char kind = type == 0 ? 'g' : type == '%' ? 'f' : type;
    char form[] = {'%', layout.isAlternate ? '#' : '.', '.', '*', kind, 0};
    const char *used = layout.isAlternate ? form : (form[1] = '%', form + 1);
    double shown = type == '%' ? size * 100 : size;
    int length = std::snprintf(nullptr, 0, used, precision, shown);
    digits.resize(static_cast<size_t>(length) + 1);
    std::snprintf(digits.data(), digits.size(), used, precision, shown);
    digits.pop_back();
    bool isWhole = digits.find_first_of(".e") == std::string::npos;
    if (type == 0 && isWhole)
      digits += ".0";
    if (type == '%')
      digits += '%';
  }
  if (layout.hasComma || layout.hasUnderscore) {
    size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, whole), layout.hasComma ? ',' : '_', 3) + digits.substr(whole);
  }
  return laidOut(std::signbit(value) && !std::isnan(value), "", digits, layout);
}

std::string formatText(std::string text, Layout layout) {
  if (layout.precision >= 0)
    text.resize(afterCharacters(text, 0, static_cast<size_t>(layout.precision)));
  return padded(text, layout.width, layout.align ? layout.align : '<', layout.fill);
}

/// Formats one field of `%`.
std::string formatOne(Run &run, const Value &value, Layout layout) {
  layout.align = layout.align ? layout.align : '>';
  switch (layout.type) {
  case 's':
  case 'r':
  case 'a':
    layout.align = layout.align == '=' ? '>' : layout.align;
    layout.fill = " ";
    return formatText(layout.type == 's' ? str(run, value) : repr(run, value), layout);
  case 'c':
    if (value.text() && charactersIn(value.text()->bytes) == 1)
      return formatText(value.text()->bytes, layout);
    throw Fault("%c requires a character");
  case 'd':
  case 'i':
  case 'u':
  case 'x':
  case 'X':
  case 'o': {
    bool isDecimal = layout.type == 'd' || layout.type == 'i' || layout.type == 'u';
    std::optional<int64_t> integer = integerOf(value);
    if (!integer && isDecimal && value.real() && std::fabs(*value.real()) < 9e18)
      integer = static_cast<int64_t>(*value.real());
    if (!integer)
      throw Fault(fmt::format("%{} format: a number is required, not {}", layout.type, typeOf(value)));
    layout.type = isDecimal ? 'd' : layout.type;
    return formatInteger(*integer, layout);
  }
  default: {
    if (std::string_view("eEfFgG").find(layout.type) == std::string_view::npos)
      throw Fault(fmt::format("unsupported format character '{}'", layout.type));
    std::optional<double> number = numberOf(value);
    if (!number)
      throw Fault(fmt::format("must be real number, not {}", typeOf(value)));
    return formatReal(*number, layout);
  }
  }
}

/// Reads the format of a field of str.format(), as in `{:>8.3f}`.
Layout readLayout(const std::string &spec) {
  Layout layout;
  size_t at = afterCharacters(spec, 0, 1);
  constexpr std::string_view aligns = "<>^=";
  auto isAlign = [&](size_t k) { return k < spec.size() && aligns.find(spec[k]) != std::string_view::npos; };
  if (isAlign(at)) {
    layout.fill = spec.substr(0, at);
    layout.align = spec[at++];
  } else {
    at = 0;
    if (isAlign(0))
      layout.align = spec[at++];
  }
  if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' '))
    layout.sign = spec[at++];
  if (at < spec.size() && spec[at] == '#')
    layout.isAlternate = ++at > 0;
  if (at < spec.size() && spec[at] == '0') {
    layout.fill = layout.align ? layout.fill : "0";
    layout.align = layout.align ? layout.align : '=';
    ++at;
  }
  layout.width = std::max<int64_t>(readCount(spec, at), 0);
  if (at < spec.size() && (spec[at] == ',' || spec[at] == '_'))
    (spec[at++] == ',' ? layout.hasComma : layout.hasUnderscore) = true;
  if (at < spec.size() && spec[at] == '.') {
    layout.precision = readCount(spec, ++at);
    if (layout.precision < 0)
      throw Fault("Format specifier missing precision");
  }
  if (at < spec.size())
    layout.type = spec[at++];
  if (at < spec.size())
    throw Fault(fmt::format("Invalid format specifier '{}'", spec));
  return layout;
}

std::string formatValue(Run &run, const Value &value, const std::string &spec) {
  if (spec.empty())
    return str(run, value);
  Layout layout = readLayout(spec);
  bool isReal = std::string_view("eEfFgG%").find(layout.type) != std::string_view::npos && layout.type != 0;
  if ((value.integer() || value.boolean()) && !isReal) {
    if (layout.type != 0 && std::string_view("bdoxXn").find(layout.type) == std::string_view::npos)
      throw Fault(fmt::format("Unknown format code '{}' for object of type 'int'", layout.type));
    return formatInteger(*integerOf(value), layout);
  }
  if (std::optional<double> number = numberOf(value); number && (isReal || layout.type == 0))
    return formatReal(*number, layout);
  if (!value.text() || (layout.type != 0 && layout.type != 's') || layout.align == '=')
    throw Fault(fmt::format("unsupported format string '{}' for {}", spec, typeOf(value)));
  return formatText(value.text()->bytes, layout);
}

/// Returns the value of a field such as `0`, `name`, `name.attribute` or `name[key]`. `count`: the fields without a
/// number until now; -1 if they have numbers.
Value fieldValue(Run &run, std::string_view name, const Arguments &arguments, int64_t &count) {
  size_t end = std::min(name.find_first_of(".["), name.size());
  std::string first(name.substr(0, end));
  Value value;
  bool isNumber = first.find_first_not_of("0123456789") == std::string::npos;
  if (isNumber) {
    size_t at = 0;
    bool isCounted = first.empty();
    if (count != 0 && isCounted != (count > 0))
      throw Fault("a format counts its fields and numbers them");
    int64_t place = isCounted ? count++ : readCount(first, at);
    count = isCounted ? count : -1;
    if (place >= std::ssize(arguments.positional))
      throw Fault(fmt::format("Replacement index {} out of range for positional args tuple", place));
    value = arguments.positional[static_cast<size_t>(place)];
  } else {
    auto found = std::ranges::find(arguments.named, first, [](const auto &one) { return one.first; });
    if (found == arguments.named.end())
      throw Fault(fmt::format("'{}' is no argument of the format", first));
    value = found->second;
  }
  for (name.remove_prefix(end); !name.empty();) {
    bool isItem = name.front() == '[';
    size_t stop = isItem ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
    if (stop == std::string_view::npos)
      throw Fault("Missing ']' in format string");
    std::string key(name.substr(1, stop - 1));
    size_t at = 0;
    bool isIndex = isItem && !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
    value = !isItem   ? attributeOf(run, value, key)
            : isIndex ? itemOf(run, value, readCount(key, at))
                      : itemOf(run, value, makeText(run, key));
    name.remove_prefix(stop + isItem);
  }
  return value;
}

/// The options of json.dumps().
struct JsonStyle {
  bool isAscii = false, isSorted = false;
  std::optional<std::string> indent;
  std::string betweenItems = ", ", afterKey = ": ";
};

std::string jsonKey(const Value &key) {
  if (key.text())
    return key.text()->bytes;
  if (key.isNone())
    return "null";
  if (key.boolean())
    return *key.boolean() ? "true" : "false";
  if (key.integer())
    return std::to_string(*key.integer());
  if (key.real())
    return reprOfFloat(*key.real());
  throw Fault(fmt::format("keys must be str, int, float, bool or None, not {}", typeOf(key)));
}

void addJson(Run &run, const Value &value, const JsonStyle &style, const std::string &newLine, std::string &out);

/// Adds the items of a list or an object between brackets.
template <typename Add>
void addItems(Run &run, char open, char close, size_t count, const JsonStyle &style, const std::string &newLine,
              std::string &out, Add add) {
  std::string inner = style.indent ? newLine + *style.indent : "";
  run.take(count * (inner.size() + 2));
  out += open;
  for (size_t i = 0; i < count; ++i) {
    out += i > 0 ? style.betweenItems : "";
    out += inner;
    add(i, inner);
  }
  if (count > 0 && style.indent)
    out += newLine;
  out += close;
}

void addJson(Run &run, const Value &value, const JsonStyle &style, const std::string &newLine, std::string &out) {
  run.step();
  if (const Text *text = value.text()) {
    run.take(text->bytes.size());
    out += jsonString(text->bytes, style.isAscii);
  } else if (const Sequence *sequence = value.sequence()) {
    addItems(run, '[', ']', sequence->items.size(), style, newLine, out,
             [&](size_t i, const std::string &inner) { addJson(run, sequence->items[i], style, inner, out); });
  } else if (const Dict *dict = value.dict()) {
    std::vector<size_t> order(dict->items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (style.isSorted)
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return isLess(run, dict->items[a].first, dict->items[b].first); });
    addItems(run, '{', '}', order.size(), style, newLine, out, [&](size_t i, const std::string &inner) {
      const auto &[key, item] = dict->items[order[i]];
      run.take(jsonKey(key).size());
      out += jsonString(jsonKey(key), style.isAscii) + style.afterKey;
      addJson(run, item, style, inner, out);
    });
  } else if (value.real()) {
    double number = *value.real();
    out += std::isfinite(number) ? reprOfFloat(number)
           : std::isnan(number)  ? "NaN"
           : number > 0          ? "Infinity"
                                 : "-Infinity";
  } else if (value.isUndefined() || value.object()) {
    throw Fault(fmt::format("Object of type {} is not JSON serializable", typeOf(value)));
  } else {
    out += jsonKey(value);
  }
}

} // namespace

std::string formatPercent(Run &run, const std::string &format, const Value &value) {
  const Sequence *tuple = value.sequence() && value.sequence()->isTuple ? value.sequence() : nullptr;
  std::string out;
  size_t used = 0;
  bool usesNames = false;
  auto nextValue = [&]() -> Value {
    if (tuple ? used >= tuple->items.size() : used > 0)
      throw Fault("not enough arguments for format string");
    return tuple ? tuple->items[used++] : (++used, value);
  };
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    Layout layout;
    std::optional<Value> named;
    if (++at < format.size() && format[at] == '(') {
      size_t end = format.find(')', at);
      if (end == std::string::npos || !value.dict())
        throw Fault("format requires a mapping");
      const Value *found = value.dict()->find(run, makeText(run, format.substr(at + 1, end - at - 1)));
      if (!found)
        throw Fault(fmt::format("the mapping has no '{}'", format.substr(at + 1, end - at - 1)));
      named = *found;
      usesNames = true;
      at = end + 1;
    }
    for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos; ++at)
      if (format[at] == '-')
        layout.align = '<';
      else if (format[at] == '0')
        layout.fill = "0";
      else if (format[at] == '#')
        layout.isAlternate = true;
      else
        layout.sign = layout.sign == '+' ? '+' : format[at];
    auto count = [&]() -> int64_t {
      if (at >= format.size() || format[at] != '*')
        return readCount(format, at);
      ++at;
      std::optional<int64_t> given = integerOf(nextValue());
      if (!given || std::abs(*given) > mostWidth)
        throw Fault("* wants int");
      return *given;
    };
    layout.width = std::max<int64_t>(count(), 0);
    if (at < format.size() && format[at] == '.') {
      ++at;
      layout.precision = std::max<int64_t>(count(), 0);
    }
    while (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L'))
      ++at;
    if (at >= format.size())
      throw Fault("incomplete format");
    layout.type = format[at];
    if (layout.align == 0 && layout.fill == "0")
      layout.align = '=';
    if (layout.align == '<')
      layout.fill = " ";
    out += layout.type == '%' ? "%" : formatOne(run, named ? *named : nextValue(), layout);
    run.take(static_cast<size_t>(layout.width));
  }
  if (tuple ? used < tuple->items.size() : used == 0 && !usesNames && !value.dict() && !value.sequence())
    throw Fault("not all arguments converted during string formatting");
  return out;
}

std::string formatFields(Run &run, const std::string &format, const Arguments &arguments) {
  std::string out;
  int64_t count = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    char c = format[at];
    bool isDouble = (c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c;
    if (isDouble || (c != '{' && c != '}')) {
      out += c;
      at += isDouble;
      continue;
    }
    size_t end = at + 1;
    for (int open = 1; end < format.size(); ++end)
      if (format[end] == '{')
        ++open;
      else if (format[end] == '}' && --open == 0)
        break;
    if (c == '}' || end >= format.size())
      throw Fault("a format has a brace without its other one");
    std::string field = format.substr(at + 1, end - at - 1), spec;
    if (size_t colon = field.find(':'); colon != std::string::npos) {
      spec = field.substr(colon + 1);
      field.resize(colon);
      if (spec.find('{') != std::string::npos) { // a width that is an argument
        Run::Level level(run);
        size_t first = spec.find('{'), last = spec.find('}');
        spec = spec.substr(0, first) +
               str(run, fieldValue(run, spec.substr(first + 1, last - first - 1), arguments, count)) +
               spec.substr(last + 1);
      }
    }
    char conversion = 0;
    if (size_t mark = field.find('!'); mark != std::string::npos && mark + 2 == field.size()) {
      conversion = field.back();
      field.resize(mark);
    }
    Value value = fieldValue(run, field, arguments, count);
    if (conversion)
      value = makeText(run, conversion == 's' ? str(run, value) : repr(run, value));
    out += formatValue(run, value, spec);
    run.take(out.size() / 8);
    at = end;
  }
  return out;
}

std::string toJson(Run &run, const Value &value, const Arguments &arguments) {
  Bound bound(run, arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{bound.isTrue(0), bound.isTrue(3), std::nullopt};
  if (const Value *indent = bound.given(1)) {
    if (indent->text())
      style.indent = indent->text()->bytes;
    else
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(bound.integer(1, 0), 0, 1024)), ' ');
    style.betweenItems = ",";
  }
  if (const Value *separators = bound.given(2)) {
    std::vector<Value> both = listOf(run, *separators);
    if (both.size() != 2 || !both[0].text() || !both[1].text())
      throw Fault("separators are two texts");
    style.betweenItems = both[0].text()->bytes;
    style.afterKey = both[1].text()->bytes;
  }
  std::string out;
  addJson(run, value, style, "\n", out);
  return out;
}

std::string formatTime(std::time_t time, const std::string &format) {
  std::string known; // without what datetime writes in its own way
  for (size_t i = 0; i < format.size(); ++i)
    if (format[i] != '%' || i + 1 >= format.size())
      known += format[i];
    else if (char letter = format[++i]; letter == 'f')
      known += "000000";
    else if (letter != 'z' && letter != 'Z') // a local time has no name of its zone
      known += {'%', letter};
  std::tm local{};
  localtime_r(&time, &local);
  std::string text(known.size() * 64 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), known.c_str(), &local));
  return text;
}

} // namespace espalier::rt::jinja
