// Sorting and printing of findings, and the edit distance behind "did you mean".
#include "compiler/import/diagnostics.h"

#include <algorithm>
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

void Diagnostics::warning(const SourceLocation &where, std::string message) {
  findings.push_back({where, Severity::Warning, std::move(message)});
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
  std::sort(result.begin(), result.end(),
            [&](const Diagnostic &a, const Diagnostic &b) { return key(a) < key(b); });
  auto same = [&](const Diagnostic &a, const Diagnostic &b) { return key(a) == key(b); };
  result.erase(std::unique(result.begin(), result.end(), same), result.end());
  return result;
}

std::string Diagnostics::render() const {
  std::string text;
  for (const Diagnostic &d : sorted()) {
    const char *severity = d.severity == Severity::Error ? "error" : "warning";
    if (d.where.line > 0)
      text += fmt::format("{}:{}:{}: {}: {}\n", d.where.file, d.where.line, d.where.column,
                          severity, d.message);
    else
      text += fmt::format("{}: {}: {}\n", d.where.file, severity, d.message);
    auto source = sources.find(d.where.file);
    if (source == sources.end() || d.where.line < 1 ||
        static_cast<size_t>(d.where.line) > source->second.size())
      continue;
    const std::string &line = source->second[d.where.line - 1];
    // Tabs are kept in the caret line so that it stays below its column.
    std::string indent = line.substr(0, std::max(0, d.where.column - 1));
    for (char &c : indent)
      c = c == '\t' ? '\t' : ' ';
    text += fmt::format("  {}\n  {}^\n", line, indent);
  }
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
  if (name.size() > 128) // the distance is quadratic, and no key is that long
    return "";
  std::string best;
  size_t bestDistance = (name.size() + 2) / 3 + 1;
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

} // namespace espalier
