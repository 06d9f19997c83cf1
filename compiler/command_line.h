// How faults of a command line are told: the compiler's verbs and all others have one form.
#pragma once

#include "compiler/exit_code.h"

#include <CLI/CLI.hpp>

#include <cctype>
#include <cstdio>
#include <string>

namespace espalier {

/// Prints help that was asked for and returns Success, or "espalier VERB: error: ..." on standard error and returns
/// UserError.
inline int reportParseError(const CLI::App &app, const CLI::ParseError &error) {
  if (error.get_exit_code() == 0)
    return app.exit(error);
  if (error.get_name() == "RuntimeError") // of a verb that has told what is wrong
    return UserError;
  const CLI::App *verb = &app;
  std::string name = app.get_name(), what = error.what();
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    name += " " + verb->get_name();
  }
  std::string unread = verb->remaining().empty() ? "" : verb->remaining().front();
  bool needsVerb = verb->get_require_subcommand_min() > 0;
  if (needsVerb && !unread.empty())
    what = (unread.starts_with("-") ? "unknown option '" : "unknown command '") + unread + "'";
  else if (needsVerb)
    what = "a command is wanted";
  if (what.size() > 1 && !std::isupper(static_cast<unsigned char>(what[1]))) // "RUN is required" stays
    what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  std::fprintf(stderr, "%s: error: %s; see %s --help\n", name.c_str(), what.c_str(), name.c_str());
  return UserError;
}

} // namespace espalier
