// Replaces escapes one by one: inside a set by ranges, outside by a set.
#include "runtime/tokenizer/hf_pattern.h"

#include "messages/data_error.h"

#include <fmt/format.h>
#include <string_view>

namespace espalier::rt {

namespace {

constexpr std::string_view spaces = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f})"
                                    R"(\x{205f}\x{3000})";
constexpr std::string_view nonSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

/// Characters below U+0100 that Oniguruma's \w includes, although it includes no other characters of their category.
constexpr std::string_view superscripts = R"(\x{b2}-\x{b3}\x{b9}\x{bc}-\x{be})";

/// The characters that each general category gained between Unicode 14, the version of PCRE2 10.42, and Unicode 16.
struct Gain {
  std::string_view category, ranges;
};
constexpr Gain gains[] = {
    {"Lu", R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})"},
    {"Ll", R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})"},
    {"Lm", R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})"},
    {"Lo", R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389})"
           R"(\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02})"
           R"(\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
           R"(\x{16d43}-\x{16d6a}\x{18cff}\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739})"
           R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"M", R"(\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2}\x{113c5})"
          R"(\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f03})"
          R"(\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f})"
          R"(\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})"},
    {"Nd", R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
           R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})"},
    {"No", R"(\x{1d2c0}-\x{1d2d3})"},
    {"P", R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1})"
          R"(\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})"},
    {"S", R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{10d8e}-\x{10d8f}\x{1cc00}-\x{1ccef})"
          R"(\x{1cd00}-\x{1ceb3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb})"
          R"(\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf})"
          R"(\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8})"
          R"(\x{1fbcb}-\x{1fbef})"}};

/// Returns the members of a category as the content of a set. A one-letter name includes all categories that begin with
/// the letter.
std::string categorySet(std::string_view name) {
  std::string set = fmt::format("\\p{{{}}}", name);
  for (const Gain &gain : gains)
    if (gain.category.starts_with(name))
      set += gain.ranges;
  return set;
}

class Translator {
public:
  Translator(const std::string &file, std::string_view pattern) : file(file), pattern(pattern) {}

  std::string run() {
    while (at < pattern.size()) {
      if (pattern[at] == '\\')
        escape();
      else if (isInSet)
        setCharacter();
      else
        outsideCharacter();
    }
    return out;
  }

private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw DataError(file, fmt::format("pattern at character {}: {} is not read", at, what));
  }
  void copy(size_t count) {
    out += pattern.substr(at, count);
    at += count;
  }
  void outsideCharacter() {
    if (pattern.substr(at).starts_with("(?m") || pattern.substr(at).starts_with("(?im"))
      refuse("the option m");
    isInSet = pattern[at] == '[';
    copy(1);
    if (!isInSet)
      return;
    if (pattern.substr(at).starts_with('^'))
      copy(1);
    if (pattern.substr(at).starts_with(']')) // a leading ] is a member
      copy(1);
  }
  void setCharacter() {
    if (pattern.substr(at).starts_with("[:")) {
      size_t end = pattern.find(":]", at);
      copy(end == std::string_view::npos ? 1 : end + 2 - at);
      return;
    }
    if (pattern[at] == '[')
      refuse("a set inside a set");
    if (pattern.substr(at).starts_with("&&"))
      refuse("an intersection of sets");
    isInSet = pattern[at] != ']';
    copy(1);
  }
  /// Writes the meaning of an escape. `set` is the content of a set, and `others` that of its complement if it can be
  /// written.
  void write(std::string_view escaped, bool isNegated, std::string_view set, std::string_view others = {}) {
    at += escaped.size();
    if (!isInSet)
      out += fmt::format("[{}{}]", isNegated ? "^" : "", set);
    else if (!isNegated)
      out += set;
    else
      out += others.empty() ? escaped : others;
  }
  void escape() {
    std::string_view two = pattern.substr(at, 2);
    if (two == "\\s" || two == "\\S") {
      write(two, two == "\\S", spaces, nonSpaces);
    } else if (two == "\\d" || two == "\\D") {
      write(two, two == "\\D", categorySet("Nd"));
    } else if (two == "\\w" || two == "\\W") {
      write(two, two == "\\W",
            std::string(superscripts) + "\\p{Alphabetic}\\p{Pc}" + categorySet("L") + categorySet("M") +
                categorySet("Nd"));
    } else if (two == "\\h" || two == "\\H") {
      write(two, two == "\\H", "0-9a-fA-F");
    } else if (pattern.substr(at + 1).starts_with("p{") || pattern.substr(at + 1).starts_with("P{")) {
      property(two == "\\P");
    } else if (two == "\\p" || two == "\\P") {
      ++at; // without a brace, \p means the letter
      copy(1);
    } else {
      copy(two.size());
    }
  }
  /// Translates \p{L}, \p{^L} and \P{L}.
  void property(bool isNegated) {
    size_t end = pattern.find('}', at);
    if (end == std::string_view::npos)
      refuse("a property without its brace");
    std::string_view name = pattern.substr(at + 3, end - at - 3);
    if (name.starts_with('^')) {
      isNegated = !isNegated;
      name.remove_prefix(1);
    }
    write(pattern.substr(at, end + 1 - at), isNegated, categorySet(name));
  }

  const std::string &file;
  std::string_view pattern;
  std::string out;
  size_t at = 0;
  bool isInSet = false;
};

} // namespace

std::string publishedPattern(const std::string &file, const std::string &pattern) {
  return Translator(file, pattern).run();
}

} // namespace espalier::rt
