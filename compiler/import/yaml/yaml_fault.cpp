// Looks at the lines around the place where the parser stopped.
#include "compiler/import/yaml/yaml_fault.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace espalier {
namespace {

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t indentOf(std::string_view line) { return std::min(line.find_first_not_of(" \t"), line.size()); }

bool isBlank(std::string_view line) {
  size_t begin = line.find_first_not_of(" \t\r");
  return begin == std::string_view::npos || line[begin] == '#';
}

/// Returns whether a line is `key: value`, `key:`, or an item of a list.
bool isEntry(std::string_view line) {
  std::string_view rest = line.substr(indentOf(line));
  size_t colon = rest.find(':');
  return rest.starts_with("- ") || rest == "-" ||
         (colon != std::string_view::npos &&
          (colon + 1 == rest.size() || rest[colon + 1] == ' ' || rest[colon + 1] == '\r'));
}

/// Returns the first line up to `last` (from 1) that a tab indents, or 0.
size_t lineWithTab(const std::vector<std::string_view> &lines, size_t last) {
  for (size_t i = 0; i < std::min(last, lines.size()); ++i)
    if (!isBlank(lines[i]) && lines[i].substr(0, indentOf(lines[i])).find('\t') != std::string_view::npos)
      return i + 1;
  return 0;
}

/// Returns what is wrong with the indentation of a line (from 1), or an empty text: it lies between those of the lines
/// above.
std::string indentationFault(const std::vector<std::string_view> &lines, size_t line) {
  if (line == 0 || line > lines.size() || isBlank(lines[line - 1]))
    return "";
  size_t own = indentOf(lines[line - 1]), above = line - 1;
  std::vector<std::string> open; // the indentations that a line here may have
  size_t least = std::string::npos, previous = 0;
  for (; above > 0; --above)
    if (!isBlank(lines[above - 1])) {
      size_t indent = indentOf(lines[above - 1]);
      previous = previous == 0 ? above : previous;
      if (indent < least) {
        open.push_back(fmt::format("{}", indent));
        least = indent;
      }
    }
  std::ranges::reverse(open);
  if (open.empty() || std::ranges::find(open, fmt::format("{}", own)) != open.end())
    return "";
  std::string wanted = open.front();
  for (size_t i = 1; i < open.size(); ++i)
    wanted += (i + 1 == open.size() ? " or " : ", ") + open[i];
  bool isDeeper = previous > 0 && own > indentOf(lines[previous - 1]);
  if (isDeeper && lines[previous - 1].find(':') != std::string_view::npos &&
      lines[previous - 1].substr(lines[previous - 1].find(':') + 1).find_first_not_of(" \r") == std::string_view::npos)
    return ""; // the line above opens a section
  return fmt::format("this line is indented by {} space{}; the sections above have {}", own, own == 1 ? "" : "s",
                     wanted);
}

} // namespace

std::pair<SourceLocation, std::string> faultOf(std::string_view text, const SourceLocation &where,
                                               const std::string &message) {
  std::vector<std::string_view> lines = linesOf(text);
  auto at = [&](size_t line, size_t column, std::string words) {
    return std::pair(SourceLocation{where.file, static_cast<int>(line), static_cast<int>(column)},
                     fmt::format("not valid YAML: {}", words));
  };
  auto line = static_cast<size_t>(std::max(where.line, 1));
  if (size_t tabbed = lineWithTab(lines, line))
    return at(tabbed, lines[tabbed - 1].find('\t') + 1, "a tab indents this line; YAML takes spaces only");
  std::string_view own = line <= lines.size() ? lines[line - 1] : "";
  bool isFlow = message.find("flow") != std::string::npos;
  if (isFlow)
    return at(line, where.column, "a list '[...]' or map '{...}' above has no end, or lacks a comma");
  if (std::string fault = indentationFault(lines, line); !fault.empty())
    return at(line, indentOf(own) + 1, fault);
  for (size_t above = line; above-- > 1;)
    if (!isBlank(lines[above - 1])) {
      if (!isEntry(lines[above - 1]) && lines[above - 1].find_first_of("\"'[]{}|>") == std::string_view::npos)
        return at(above, indentOf(lines[above - 1]) + 1,
                  "this line is no `key: value`; is the ':' with a space missing?");
      break;
    }
  if (message.find("map value") != std::string::npos && std::ranges::count(own, ':') > 1)
    return at(line, where.column, "a second ':' in one line; put the value in quotes");
  if (message.find("unknown token") != std::string::npos)
    return at(line, where.column, "a value cannot begin with this character; put the value in quotes");
  return at(line, where.column, message);
}

bool isClosed(std::string_view text, const SourceLocation &where) {
  if (where.line == 0)
    return true;
  for (int line = 1; line < where.line && !text.empty(); ++line)
    text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  text.remove_prefix(std::min(static_cast<size_t>(where.column - 1), text.size())); // columns count bytes
  char quote = text.empty() ? ' ' : text.front();
  if (quote != '"' && quote != '\'')
    return true;
  for (size_t at = 1; at < text.size(); ++at)
    if (quote == '"' && text[at] == '\\')
      ++at;
    else if (text[at] == quote)
      return true;
  return false;
}

} // namespace espalier
