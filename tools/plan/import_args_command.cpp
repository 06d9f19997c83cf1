// `espalier import-args`: converts a Megatron-LM command line to a run file.
#include "tools/plan/verbs.h"

#include "compiler/import/megatron/import_args.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/shell/word_reader.h"
#include "format/path_kind.h"
#include "messages/error_line.h"
#include "tools/command_line/exit_code.h"
#include "tools/plan/write_whole.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace espalier {

namespace {

/// The command-line arguments of `import-args`.
struct ArgsArguments {
  std::string file;
  std::string output;                   ///< run file to write; empty means standard output
  std::string cluster;                  ///< NAME or NAME:HOSTSxDEVICES
  std::string base;                     ///< run file with the values that the flags do not give
  bool json = false;                    ///< print the effect of each flag and the run file as JSON
  std::vector<std::string> arguments;   ///< of the script: "1=VALUE"
  std::vector<std::string> environment; ///< of the script: "NAME=VALUE"
  std::string ignoredFlags;             ///< flags of the script to ignore: "fp8-format,--own-flag"
};

constexpr uintmax_t mostVocabularyBytes = uintmax_t(1) << 27;

/// Returns the file's text, up to one byte more than the limit.
std::optional<std::string> readBounded(const std::string &file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(mostScriptBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open() || std::filesystem::is_directory(file))
    return std::nullopt;
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

/// Returns the ids of a vocab.json, or nothing if there is no such file.
std::optional<ScriptVocabulary> readVocabulary(const std::string &file) {
  std::error_code error;
  uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error)
    return std::nullopt;
  ScriptVocabulary vocabulary;
  if (bytes > mostVocabularyBytes)
    return vocabulary;
  std::ifstream stream(file, std::ios::binary);
  nlohmann::json ids = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!ids.is_object())
    return vocabulary;
  vocabulary.ids = static_cast<int64_t>(ids.size());
  if (auto end = ids.find("<|endoftext|>"); end != ids.end() && end->is_number_unsigned())
    vocabulary.endOfDocument = end->get<int64_t>();
  return vocabulary;
}

/// Splits a comma-separated list of flags. The leading dashes are optional.
std::vector<std::string> flagsOf(const std::string &list) {
  std::vector<std::string> flags;
  for (size_t begin = 0; begin < list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    if (std::string name = list.substr(begin, end - begin); !name.empty())
      flags.push_back(name.starts_with("--") ? name : "--" + name);
    begin = end + 1;
  }
  return flags;
}

/// Reads the values that the user gives to the script. Prints an error and returns false if one has no such form.
bool readInputs(const ArgsArguments &arguments, ShellInputs &inputs) {
  auto refuse = [](const std::string &option, const std::string &given, const char *form) {
    printError(option, fmt::format("got {}, wanted {}", given, form));
    return false;
  };
  for (const std::string &given : arguments.arguments) {
    int position = 0;
    auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), position);
    if (error != std::errc() || end == given.data() + given.size() || *end != '=' || position < 0 || position > 1000)
      return refuse("--arg", given, "N=VALUE, where N is the position of an argument: 1=VALUE gives $1");
    inputs.arguments[position] = std::string(end + 1, given.data() + given.size());
  }
  for (const std::string &given : arguments.environment) {
    size_t equals = given.find('=');
    if (equals == std::string::npos || !shell::isName(given.substr(0, equals)))
      return refuse("--env", given, "NAME=VALUE, where NAME is a variable of the script");
    inputs.environment[given.substr(0, equals)] = given.substr(equals + 1);
  }
  // Files beside the script are read, never executed. A path that leaves the folder is not followed.
  std::filesystem::path folder = std::filesystem::path(arguments.file).parent_path();
  inputs.readBeside = [folder](const std::string &path) -> std::optional<std::string> {
    std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
    if (normal.is_absolute() || normal.empty() || *normal.begin() == "..")
      return std::nullopt;
    std::optional<std::string> text = readBounded((folder / normal).string());
    return text && text->size() <= mostScriptBytes ? text : std::nullopt;
  };
  return true;
}

/// Reads the devices and layers of the base. Prints errors and returns false if it has any.
bool readBase(const ArgsArguments &arguments, ArgsOptions &options) {
  if (arguments.base.empty())
    return true;
  ImportOptions import;
  import.cluster = arguments.cluster;
  // The plan in the base need not be valid on other devices, because its batch and split are replaced.
  import.freeAtBatch = 1;
  ImportedRun run = importRun(arguments.base, import);
  fmt::print(stderr, "{}", run.diagnostics.render());
  if (!run.ok())
    return false;
  options.baseDevices = run.config.cluster.devices();
  options.baseLayers = run.config.model.layerCount();
  std::filesystem::path folder = std::filesystem::absolute(arguments.output).parent_path();
  options.base = arguments.output.empty()
                     ? std::filesystem::absolute(arguments.base).string()
                     : std::filesystem::absolute(arguments.base).lexically_relative(folder).string();
  return true;
}

/// Writes the run file, and the effect of each flag to standard error. Returns 0, or 2 for input errors.
int importArgsVerb(const ArgsArguments &arguments) {
  rt::PathKind kind = rt::pathKind(arguments.file);
  if (kind != rt::PathKind::Unknown && kind != rt::PathKind::ShellScript) {
    printError(arguments.file, rt::wayOf(arguments.file));
    return UserError;
  }
  std::optional<std::string> text = readBounded(arguments.file);
  if (!text) {
    printError(arguments.file, "cannot read the file: " + rt::whyNotOpened(arguments.file, errno));
    return UserError;
  }
  ArgsOptions options;
  options.cluster = arguments.cluster;
  options.readVocabulary = readVocabulary;
  options.ignoredFlags = flagsOf(arguments.ignoredFlags);
  if (!readInputs(arguments, options.shell) || !readBase(arguments, options))
    return UserError;
  ImportedArgs imported = importArgs(arguments.file, *text, options);
  fmt::print(stderr, "{}", imported.diagnostics.render());
  if (arguments.json)
    fmt::print("{}", importJson(arguments.file, arguments.output, imported.yaml, imported.flags, imported.diagnostics));
  else if (!imported.diagnostics.hasErrors())
    fmt::print(stderr, "{}", importText(imported.flags));
  if (imported.diagnostics.hasErrors())
    return UserError;
  if (arguments.output.empty()) {
    fmt::print("{}", arguments.json ? "" : imported.yaml);
    return Success;
  }
  if (!writeWhole(arguments.output, imported.yaml, "the run file"))
    return UserError;
  // The result must also pass the checks of run files.
  ImportedRun written = importRun(arguments.output);
  fmt::print(stderr, "{}", written.diagnostics.render());
  return written.ok() ? Success : UserError;
}

} // namespace

void addImportArgsVerb(const Verb &app) {
  auto shared = std::make_shared<ArgsArguments>();
  ArgsArguments &arguments = *shared;
  Verb verb = app.verb("import-args", "a Megatron-LM script or list of flags as a run file");
  verb.option("FILE", arguments.file, "shell script or flags; nothing in it is executed").required();
  verb.option("-o,--output", arguments.output, "the run file to write; default: standard output");
  verb.option("--cluster", arguments.cluster, "cluster NAME, or NAME:HOSTSxDEVICES over what the launcher states");
  verb.option("--base", arguments.base, "run file that holds what the flags do not say");
  verb.option("--arg", arguments.arguments, "N=VALUE: argument N of the script ($1 for 1=VALUE); may be repeated")
      .oneValueEach();
  verb.option("--env", arguments.environment, "NAME=VALUE: an environment variable of the script; may be repeated")
      .oneValueEach();
  verb.option("--ignore-flags", arguments.ignoredFlags, "flags of the script to pass over: min-loss-scale,own-flag");
  verb.flag("--json", arguments.json, "print the effect of each flag and the run file as JSON");
  verb.action([shared] { return importArgsVerb(*shared); });
}

} // namespace espalier
