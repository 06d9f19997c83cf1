#include "runtime/http/admission.h"

#include <algorithm>

namespace espalier::rt::http {

namespace {

constexpr size_t mostFields = 100;
/// Digits of a length, which fits 64 bits.
constexpr size_t mostDigits = 18;

bool isDigit(char one) { return one >= '0' && one <= '9'; }

/// A character of a token: method names and field names.
bool isTokenCharacter(char one) {
  bool isLetter = (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z');
  return isLetter || isDigit(one) ||
         (one != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(one) != std::string::npos);
}

bool isToken(std::string_view text) { return !text.empty() && std::ranges::all_of(text, isTokenCharacter); }

/// A printable character, or a byte above ASCII.
bool isVisible(char one) { return static_cast<unsigned char>(one) > 0x20 && one != 0x7f; }

/// Removes spaces and tabs from both ends.
std::string_view trimmed(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// Removes the next line and its CR LF from the text, and returns the line.
std::string_view takeLine(std::string_view &text) {
  size_t end = text.find("\r\n");
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), line.size() + 2));
  return line;
}

/// Counts of the fields of one head: all, and those that state its host, its length and its coding.
struct Framing {
  size_t fields = 0, hosts = 0, lengths = 0, codings = 0;
};

Refusal malformed(const char *what) { return {400, what}; }

std::optional<Refusal> checkRequestLine(std::string_view line, bool &isOld) {
  size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !isToken(line.substr(0, first)))
    return malformed("the request line is not METHOD PATH HTTP/1.1");
  std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  bool isVersion = version.size() == 8 && version.starts_with("HTTP/") && isDigit(version[5]) && version[6] == '.' &&
                   isDigit(version[7]);
  if (!isVersion)
    return malformed("the request line is not METHOD PATH HTTP/1.1");
  isOld = version == "HTTP/1.0";
  if (!isOld && version != "HTTP/1.1")
    return Refusal{505, "the server speaks HTTP/1.1"};
  bool isPath = target.starts_with('/') || target == "*";
  if (!isPath || !std::ranges::all_of(target, [](char one) { return isVisible(one) && (one & 0x80) == 0; }))
    return malformed("the target of the request is not a path");
  return std::nullopt;
}

std::optional<Refusal> checkField(std::string_view line, bool isOld, Framing &seen) {
  if (line.starts_with(' ') || line.starts_with('\t'))
    return malformed("a header field is folded over two lines");
  size_t colon = line.find(':');
  std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || !isToken(name))
    return malformed("a header line is not NAME: VALUE");
  std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::ranges::all_of(value, [](char one) { return isVisible(one) || one == ' ' || one == '\t'; }))
    return malformed("the value of a header field has a control character");
  if (++seen.fields > mostFields)
    return Refusal{431, "the request has more than 100 header fields"};
  if (equalsIgnoringCase(name, "Host") && ++seen.hosts > 1)
    return malformed("the request has more than one Host");
  if (equalsIgnoringCase(name, "Content-Length")) {
    bool isNumber = !value.empty() && value.size() <= mostDigits && std::ranges::all_of(value, isDigit);
    if (++seen.lengths > 1 || !isNumber)
      return malformed("Content-Length is not one number");
  }
  if (equalsIgnoringCase(name, "Transfer-Encoding") &&
      (++seen.codings > 1 || isOld || !equalsIgnoringCase(value, "chunked")))
    return malformed("Transfer-Encoding is not chunked alone, or the request is HTTP/1.0");
  if (equalsIgnoringCase(name, "Expect") && !equalsIgnoringCase(value, "100-continue"))
    return Refusal{417, "Expect is not 100-continue"};
  if (seen.lengths > 0 && seen.codings > 0)
    return malformed("the request has both Content-Length and Transfer-Encoding");
  return std::nullopt;
}

} // namespace

bool equalsIgnoringCase(std::string_view a, std::string_view b) {
  auto lower = [](char one) { return one >= 'A' && one <= 'Z' ? static_cast<char>(one + ('a' - 'A')) : one; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

bool hasBadLineEnd(std::string_view bytes, size_t from) {
  for (size_t i = from; i < bytes.size(); ++i) {
    bool isBareFeed = bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r');
    bool isBareReturn = bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] != '\n';
    if (isBareFeed || isBareReturn || bytes[i] == '\0')
      return true;
  }
  return false;
}

std::optional<Refusal> whyNotAdmitted(std::string_view head) {
  if (hasBadLineEnd(head, 0))
    return malformed("a line of the head does not end by CR LF");
  bool isOld = false;
  if (std::optional<Refusal> refusal = checkRequestLine(takeLine(head), isOld))
    return refusal;
  Framing seen;
  for (std::string_view line = takeLine(head); !line.empty(); line = takeLine(head))
    if (std::optional<Refusal> refusal = checkField(line, isOld, seen))
      return refusal;
  if (seen.hosts == 0 && !isOld)
    return malformed("the request has no Host");
  return std::nullopt;
}

} // namespace espalier::rt::http
