// The command line of `espalier`: verbs, options and the form in which errors of usage are reported. The only users of
// CLI11 are this file's sources, because its header takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace espalier {

/// A combination of options that a verb refuses. CommandLine::parse reports it and returns 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An option, flag or positional argument. A handle: copies refer to the same option.
class Option {
public:
  Option() = default;
  Option required() const;
  /// Refuses numbers outside [least, most].
  template <typename T, typename U> Option range(T least, U most) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<U>)
      return integerRange(static_cast<int64_t>(least), static_cast<int64_t>(most));
    else
      return numberRange(static_cast<double>(least), static_cast<double>(most));
  }
  /// Refuses values other than these.
  Option oneOf(const std::vector<std::string> &values) const;
  /// Refuses a command line with this option and the other one.
  Option excludes(const Option &other) const;
  /// Refuses a command line with this option and without the other one.
  Option needs(const Option &other) const;
  /// For lists: each occurrence takes one value, so that a positional argument can follow.
  Option oneValueEach() const;
  /// Returns how many values the command line gave.
  size_t count() const;
  /// Returns the name, such as `--steps`.
  std::string name() const;

private:
  friend class Verb;
  explicit Option(CLI::Option *option) : option(option) {}
  Option integerRange(int64_t least, int64_t most) const;
  Option numberRange(double least, double most) const;
  CLI::Option *option = nullptr;
};

/// A verb with its options, or a group of options. A handle: copies refer to the same verb.
class Verb {
public:
  Verb() = default;
  /// Adds a verb below this one.
  Verb verb(const std::string &name, const std::string &summary) const;
  /// Adds a group of options, which `--help` lists together.
  Verb group(const std::string &name, const std::string &summary = "") const;
  /// Adds an option or, where `names` has no dash, a positional argument. T is a string, a path, a number, an optional
  /// of a number or a vector of strings; command_line.cpp lists the types.
  template <typename T> Option option(const std::string &names, T &value, const std::string &help = "") const;
  /// Adds an option whose values have names.
  template <typename T>
  Option choice(const std::string &names, T &value, const std::vector<std::pair<std::string, T>> &choices,
                const std::string &help) const {
    std::vector<std::string> values;
    for (const auto &[name, meaning] : choices)
      values.push_back(name);
    auto store = [&value, choices](const std::string &given) {
      for (const auto &[name, meaning] : choices)
        if (name == given)
          value = meaning;
    };
    return textOption(names, store, help).oneOf(values);
  }
  Option flag(const std::string &names, bool &value, const std::string &help = "") const;
  /// Sets what the verb does. The result of `work` is the exit code, 0 for void. Exceptions other than UsageError pass
  /// through CommandLine::parse.
  template <typename Work> void action(Work work) const {
    setAction([work = std::move(work)]() -> int {
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        return 0;
      } else {
        return work();
      }
    });
  }
  /// Refuses a command line without one of the verbs below.
  void requireVerb() const;
  /// For groups: refuses a command line without any of the group's options.
  void requireOption() const;
  /// Leaves all words behind the verb, `--help` too, to the action.
  void passWordsThrough() const;
  /// Returns the option of this name, which must exist.
  Option find(const std::string &name) const;
  /// Returns the options of this group that the command line gave.
  std::vector<Option> given() const;

protected:
  Verb(CLI::App *app, std::shared_ptr<int> exitCode) : app(app), exitCode(std::move(exitCode)) {}
  CLI::App *app = nullptr;
  std::shared_ptr<int> exitCode;

private:
  void setAction(std::function<int()> work) const;
  Option textOption(const std::string &names, std::function<void(const std::string &)> store,
                    const std::string &help) const;
};

/// The whole command line.
class CommandLine : public Verb {
public:
  CommandLine(const std::string &name, const std::string &summary);
  /// Runs the action of the chosen verb and returns its exit code. Prints the help that was asked for and returns 0.
  /// Prints `espalier VERB: error: ...` and returns 2 if the words are wrong.
  int parse(int argc, const char *const *argv) const;
  /// Returns the name of the chosen verb, or an empty string.
  std::string chosenVerb() const;

private:
  std::shared_ptr<CLI::App> root;
};

} // namespace espalier
