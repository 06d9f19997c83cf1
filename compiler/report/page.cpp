#include "compiler/report/page.h"

#include "compiler/report/assets.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

/// Escapes text for HTML.
std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

/// Formats JSON for a script element, which would end at "</".
std::string inScript(const nlohmann::ordered_json &json) {
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '<')
      out.replace(out.size() - 1, 1, "\\u003c");
  }
  return out;
}

} // namespace

std::string reportPage(const std::string &title, const std::string &subtitle, const nlohmann::ordered_json &sections) {
  return fmt::format(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{0}</title>
<style>
{2}</style>
</head>
<body>
<header><h1>{0}</h1><p>{1}</p></header>
<main></main>
<script type="application/json" id="data">{4}</script>
<script>
{3}</script>
</body>
</html>
)",
                     escaped(title), escaped(subtitle), assets::style, assets::script,
                     inScript({{"sections", sections}}));
}

} // namespace espalier
