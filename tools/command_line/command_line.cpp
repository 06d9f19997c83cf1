// Wraps CLI11 and formats usage errors.
#include "tools/command_line/command_line.h"

#include "compiler/import/yaml/diagnostics.h"
#include "messages/error_line.h"
#include "tools/command_line/exit_code.h"
#include "tools/command_line/help_text.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>

#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>

namespace espalier {

static constexpr const char *errorFormatOption = "--error-format";
static const std::vector<std::pair<std::string, ErrorFormat>> errorFormats = {{"text", ErrorFormat::Text},
                                                                              {"json", ErrorFormat::Json}};

Option Option::required() const {
  option->required();
  return *this;
}

namespace {

/// Checks that a word is a number from `least` to `most`; `kind` names the numbers.
template <typename T> CLI::Validator rangeCheck(const char *kind, T least, T most) {
  auto fault = [=](const std::string &given) -> std::string {
    T number = 0;
    auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
    bool isInside = error == std::errc() && end == given.data() + given.size() && number >= least && number <= most;
    return isInside ? "" : fmt::format("must be {} from {} to {}, got {}", kind, least, most, given);
  };
  return {fault, fmt::format("in [{} - {}]", least, most)};
}

} // namespace

Option Option::integerRange(int64_t least, int64_t most) const {
  option->check(rangeCheck("a whole number", least, most));
  return *this;
}

Option Option::numberRange(double least, double most) const {
  option->check(rangeCheck("a number", least, most));
  return *this;
}

Option Option::oneOf(const std::vector<std::string> &values) const {
  auto fault = [values](const std::string &given) -> std::string {
    if (std::ranges::count(values, given) > 0)
      return "";
    return fmt::format("must be one of {}, got {}{}", fmt::join(values, ", "), given, didYouMean(given, values));
  };
  option->check(CLI::Validator(fault, fmt::format("{{{}}}", fmt::join(values, ","))));
  return *this;
}

Option Option::excludes(const Option &other) const {
  option->excludes(other.option);
  return *this;
}

Option Option::needs(const Option &other) const {
  option->needs(other.option);
  return *this;
}

Option Option::oneValueEach() const {
  option->allow_extra_args(false);
  return *this;
}

size_t Option::count() const { return option->count(); }

std::string Option::name() const { return option->get_name(); }

Verb Verb::verb(const std::string &name, const std::string &summary) const {
  Verb verb(app->add_subcommand(name, summary), exitCode);
  verb.choice(errorFormatOption, errorFormat(), errorFormats,
              "how errors are printed: text (default), or json, an object per line");
  return verb;
}

Verb Verb::group(const std::string &name, const std::string &summary) const {
  return {app->add_option_group(name, summary), exitCode};
}

template <typename T> Option Verb::option(const std::string &names, T &value, const std::string &help) const {
  return Option(app->add_option(names, value, help));
}
template Option Verb::option(const std::string &, std::string &, const std::string &) const;
template Option Verb::option(const std::string &, std::filesystem::path &, const std::string &) const;
template Option Verb::option(const std::string &, std::vector<std::string> &, const std::string &) const;
template Option Verb::option(const std::string &, std::vector<double> &, const std::string &) const;
template Option Verb::option(const std::string &, int &, const std::string &) const;
template Option Verb::option(const std::string &, unsigned &, const std::string &) const;
template Option Verb::option(const std::string &, int64_t &, const std::string &) const;
template Option Verb::option(const std::string &, uint64_t &, const std::string &) const;
template Option Verb::option(const std::string &, double &, const std::string &) const;
template Option Verb::option(const std::string &, std::optional<std::string> &, const std::string &) const;
template Option Verb::option(const std::string &, std::optional<int> &, const std::string &) const;
template Option Verb::option(const std::string &, std::optional<int64_t> &, const std::string &) const;
template Option Verb::option(const std::string &, std::optional<double> &, const std::string &) const;

Option Verb::textOption(const std::string &names, std::function<void(const std::string &)> store,
                        const std::string &help) const {
  return Option(app->add_option_function<std::string>(names, std::move(store), help));
}

Option Verb::flag(const std::string &names, bool &value, const std::string &help) const {
  return Option(app->add_flag(names, value, help));
}

void Verb::setAction(std::function<int()> work) const {
  app->callback([work = std::move(work), code = exitCode] { *code = work(); });
}

void Verb::requireVerb() const { app->require_subcommand(1); }

void Verb::requireOption() const { app->require_option(1, 0); }

void Verb::passWordsThrough() const {
  app->remove_option(app->get_option(errorFormatOption));
  app->set_help_flag();
  app->prefix_command();
}

Option Verb::find(const std::string &name) const { return Option(app->get_option(name)); }

std::vector<Option> Verb::given() const {
  std::vector<Option> options;
  for (CLI::Option *option : app->get_options())
    if (option->count() > 0)
      options.push_back(Option(option));
  return options;
}

CommandLine::CommandLine(const std::string &name, const std::string &summary)
    : Verb(nullptr, std::make_shared<int>(0)), root(std::make_shared<CLI::App>(summary, name)) {
  app = root.get();
}

void CommandLine::version(const std::string &text) const { root->set_version_flag("--version", text); }

namespace {

/// Returns the chosen verb of the lowest level, and its full name.
std::pair<const CLI::App *, std::string> chosen(const CLI::App &root) {
  const CLI::App *verb = &root;
  std::string name = root.get_name();
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    name += " " + verb->get_name();
  }
  return {verb, name};
}

std::string unreadWord(const CLI::App &verb) { return verb.remaining().empty() ? "" : verb.remaining().front(); }

/// Returns the names that an option or a verb below this one may have: `--steps`, or `run`.
std::vector<std::string> namesLike(const CLI::App &verb, const std::string &word) {
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option *option : verb.get_options())
      for (const std::string &name : option->get_lnames())
        names.push_back("--" + name);
  } else {
    for (const CLI::App *below : verb.get_subcommands([](const CLI::App *) { return true; }))
      if (!below->get_name().empty()) // else it is a group of options
        names.push_back(below->get_name());
  }
  return names;
}

/// Returns the error text for a word that the verb does not know.
std::string describeUnread(const CLI::App &verb, const std::string &word) {
  bool isOption = word.starts_with("-");
  std::string name = isOption ? word.substr(0, word.find('=')) : word;
  const char *what = isOption                                ? "unknown option"
                     : verb.get_require_subcommand_min() > 0 ? "unknown command"
                                                             : "unexpected argument";
  return fmt::format("{} '{}'{}", what, name, didYouMean(name, namesLike(verb, name)));
}

/// Returns the error text for an error of CLI11.
std::string describe(const CLI::App &verb, const CLI::ParseError &error) {
  std::string what = error.what(), unread = unreadWord(verb);
  bool needsVerb = verb.get_require_subcommand_min() > 0;
  constexpr std::string_view notConverted = "Could not convert: ";
  bool isExtra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!unread.empty() && (needsVerb || isExtra))
    return describeUnread(verb, unread);
  if (needsVerb)
    return "a command is wanted";
  if (size_t equals = what.find(" = "); what.starts_with(notConverted) && equals != std::string::npos)
    return fmt::format("{}: must be a number, got {}", what.substr(notConverted.size(), equals - notConverted.size()),
                       what.substr(equals + 3));
  if (what.size() > 1 && !std::isupper(static_cast<unsigned char>(what[1]))) // keep "RUN is required"
    what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  return what;
}

int reportUsage(const std::string &name, const std::string &what) {
  printError(name, fmt::format("{}{} see {} --help", what, what.ends_with("?") ? "" : ";", name));
  return UserError;
}

} // namespace

/// Sets the format before the words are parsed, for errors of parsing.
static void setErrorFormat(int argc, const char *const *argv) {
  std::string last;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    for (const auto &[name, format] : errorFormats)
      if (word == fmt::format("{}={}", errorFormatOption, name) || (last == errorFormatOption && word == name))
        errorFormat() = format;
    last = word;
  }
}

/// Returns the words with `help VERB` as `VERB --help`.
static std::vector<const char *> withoutHelpVerb(int argc, const char *const *argv) {
  std::vector<const char *> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  return words;
}

/// Reports a word that CLI11 would misread: an option before the verb, or a long option with one dash, which is
/// `-o utput` to CLI11. Returns whether there is one.
static bool reportMisread(const CLI::App &root, const std::vector<const char *> &words) {
  const CLI::App *verb = &root;
  std::string name = root.get_name(), early;
  for (size_t i = 1; i < words.size() && std::string_view(words[i]) != "--"; ++i) {
    std::string word = words[i], option = word.substr(0, word.find('='));
    bool isOption = word.size() > 1 && word[0] == '-';
    std::vector<std::string> names = namesLike(*verb, isOption ? "-" : "");
    if (!isOption && verb->get_require_subcommand_min() > 0 && std::ranges::count(names, word) > 0) {
      name += " " + word;
      if (!early.empty()) {
        reportUsage(name, fmt::format("{} stands before the command; write `{} ... {}`", early, name, early));
        return true;
      }
      verb = verb->get_subcommand(word);
    } else if (isOption && word[1] != '-' && option.size() > 2 && std::ranges::count(names, "-" + option) > 0) {
      reportUsage(name, fmt::format("unknown option '{}', did you mean '-{}'?", option, option));
      return true;
    } else if (isOption && verb == &root && early.empty() && option != "-h" && std::ranges::count(names, option) == 0) {
      early = option;
    }
  }
  return false;
}

int CommandLine::parse(int argc, const char *const *argv) const {
  setErrorFormat(argc, argv);
  std::vector<const char *> words = withoutHelpVerb(argc, argv);
  if (reportMisread(*root, words))
    return UserError;
  try {
    root->parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError &error) {
    const auto [app, name] = chosen(*root);
    const CLI::App &verb = *app;
    // `espalier comple --help` asks for the help of a verb that does not exist.
    bool asksForNone = error.get_exit_code() == 0 && verb.get_require_subcommand_min() > 0 && !unreadWord(verb).empty();
    bool isHelp = error.get_exit_code() == 0 && !asksForNone;
    if (isHelp && dynamic_cast<const CLI::CallForHelp *>(&error)) {
      fmt::print("{}", helpText(verb, name, helpColumns()));
      return 0;
    }
    return isHelp ? root->exit(error) : reportUsage(name, describe(verb, error));
  } catch (const UsageError &error) {
    return reportUsage(chosen(*root).second, error.what());
  }
  return *exitCode;
}

std::string CommandLine::chosenVerb() const {
  return root->get_subcommands().empty() ? "" : root->get_subcommands().front()->get_name();
}

} // namespace espalier
