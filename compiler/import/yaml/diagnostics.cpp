// Sorts and prints diagnostics. Also computes the edit distance for "did you mean".
#include "compiler/import/yaml/diagnostics.h"

#include "messages/error_line.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <numeric>
#include <tuple>

namespace espalier {

void Diagnostics::addSource(const std::string &file, std::string_view text) {
  std::vector<std::string> &lines = sources[file];
  lines.clear();
  while (!text.empty()) {
    size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

void Diagnostics::error(const SourceLocation &where, std::string message) {
  findings.push_back({where, Severity::Error, std::move(message)});
}

void Diagnostics::refusal(const SourceLocation &where, std::string message) {
  findings.push_back({where, Severity::Refusal, std::move(message)});
}

void Diagnostics::warning(const SourceLocation &where, std::string message) {
  findings.push_back({where, Severity::Warning, std::move(message)});
}

void Diagnostics::add(const Diagnostics &other, Severity worst) {
  for (const Diagnostic &finding : other.findings)
    findings.push_back({finding.where, std::max(finding.severity, worst), finding.message}); // Error is the smallest
  for (const auto &[file, lines] : other.sources)
    sources.emplace(file, lines);
}

void Diagnostics::refuse() {
  for (Diagnostic &finding : findings)
    if (finding.severity == Severity::Refusal)
      finding.severity = Severity::Error;
}

bool Diagnostics::hasErrors() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Diagnostic &d) { return d.severity == Severity::Error; });
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  auto key = [](const Diagnostic &d) {
    return std::tie(d.where.file, d.where.line, d.where.column, d.severity, d.message);
  };
  std::vector<Diagnostic> result = findings;
  std::sort(result.begin(), result.end(), [&](const Diagnostic &a, const Diagnostic &b) { return key(a) < key(b); });
  auto same = [&](const Diagnostic &a, const Diagnostic &b) { return key(a) == key(b); };
  result.erase(std::unique(result.begin(), result.end(), same), result.end());
  return result;
}

namespace {
constexpr size_t widestLine = 160; // shown width of a source line; longer lines are cut around the caret
constexpr size_t mostShown = 20;   // shown errors per file, and the same number of warnings

/// Returns the source line and a caret below `column`, indented by two spaces.
std::string caretView(const std::string &line, int column) {
  size_t at = std::min(line.size(), static_cast<size_t>(std::max(0, column - 1)));
  size_t begin = at > widestLine / 2 && line.size() > widestLine ? at - widestLine / 2 : 0;
  // Tabs are kept in the caret line, so that the caret stays below its column.
  std::string indent = line.substr(begin, at - begin);
  for (char &c : indent)
    c = c == '\t' ? '\t' : ' ';
  return fmt::format("  {}\n  {}^\n", line.substr(begin, widestLine), indent);
}

const char *severityName(Severity severity) { return severity == Severity::Error ? "error" : "warning"; }

/// Returns the diagnostics as JSON, one object per line.
std::string renderJson(const std::vector<Diagnostic> &findings) {
  std::string text;
  for (const Diagnostic &d : findings)
    text += jsonOf({d.where.file, d.where.line, d.where.column, severityName(d.severity), d.message}) + "\n";
  return text;
}
} // namespace

std::string Diagnostics::render() const {
  if (errorFormat() == ErrorFormat::Json)
    return renderJson(sorted());
  std::string text;
  std::vector<Diagnostic> all = sorted();
  for (auto d = all.begin(); d != all.end();) {
    const std::string file = d->where.file;
    size_t errors = 0, warnings = 0;
    for (; d != all.end() && d->where.file == file; ++d)
      if (++(d->severity == Severity::Error ? errors : warnings) <= mostShown)
        text += renderOne(*d);
    for (auto [count, name] : {std::pair(errors, "error"), {warnings, "warning"}})
      if (count > mostShown)
        text +=
            fmt::format("{}: ... and {} more {}{}\n", file, count - mostShown, name, count - mostShown > 1 ? "s" : "");
  }
  for (char &c : text) // a file may contain binary data
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t')
      c = '?';
  return text;
}

std::string Diagnostics::renderOne(const Diagnostic &d) const {
  const char *severity = severityName(d.severity);
  if (d.where.line <= 0)
    return fmt::format("{}: {}: {}\n", d.where.file, severity, d.message);
  std::string text = fmt::format("{}:{}:{}: {}: {}\n", d.where.file, d.where.line, d.where.column, severity, d.message);
  auto source = sources.find(d.where.file);
  if (source != sources.end() && static_cast<size_t>(d.where.line) <= source->second.size())
    text += caretView(source->second[d.where.line - 1], d.where.column);
  return text;
}

namespace {
size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}
} // namespace

std::string nearestName(const std::string &name, const std::vector<std::string> &candidates) {
  if (name.size() > 128) // the distance has quadratic cost, and no key is that long
    return "";
  std::string best;
  size_t bestDistance = std::min<size_t>((name.size() + 2) / 3, 2) + 1;
  for (const std::string &candidate : candidates)
    if (name.size() >= 3 && candidate.starts_with(name) && (best.empty() || candidate.size() < best.size()))
      best = candidate;
  if (!best.empty()) // the name is a prefix
    return best;
  for (const std::string &candidate : candidates) {
    size_t distance = editDistance(name, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

std::string didYouMean(const std::string &name, const std::vector<std::string> &candidates) {
  std::string nearest = nearestName(name, candidates);
  return nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest);
}

bool isPlaceholder(std::string_view text) {
  size_t open = text.find('<');
  return open != std::string_view::npos && open + 1 < text.size() &&
         std::isalpha(static_cast<unsigned char>(text[open + 1])) != 0 &&
         text.find('>', open) != std::string_view::npos;
}

} // namespace espalier
