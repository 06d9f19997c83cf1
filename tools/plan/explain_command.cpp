// `espalier explain`: prints where each value of a run file came from and what it does.
#include "tools/plan/verbs.h"

#include "tools/command_line/exit_code.h"

#include "compiler/import/run/explain.h"
#include "messages/error_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

namespace espalier {
namespace {

/// The question of `explain`.
struct ExplainArguments {
  std::string file;
  ImportOptions import;
  std::string key;
  bool isWhole = false, json = false;
};

int explainVerb(const ExplainArguments &asked) {
  const std::string &key = asked.key;
  ImportedRun imported = importRun(asked.file, asked.import);
  if (asked.json) {
    fmt::print("{}", explainRunJson(imported, key));
  } else if (imported.ok() || !imported.keys.empty()) { // else the file cannot be read
    std::string text = explainRun(imported, key, asked.isWhole);
    if (text.empty())
      printError("espalier explain", noSuchKey(key));
    fmt::print("{}", text);
    if (text.empty())
      return UserError;
  }
  fmt::print(stderr, "{}", imported.diagnostics.render());
  return imported.ok() ? Success : UserError;
}

} // namespace

void addExplainVerb(const Verb &app) {
  auto asked = std::make_shared<ExplainArguments>();
  Verb explain = app.verb("explain", "where each value of a run file came from and what it does");
  addRunFile(explain, asked->file, asked->import);
  Option key = explain.option("KEY", asked->key, "one key or section");
  explain.flag("--all", asked->isWhole, "every key with its place and its effect, not only one screen").excludes(key);
  explain.flag("--json", asked->json, "as JSON");
  explain.action([asked] { return explainVerb(*asked); });
}

} // namespace espalier
