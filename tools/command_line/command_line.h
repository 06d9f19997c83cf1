// The command line of `espalier`: verbs, options, and the format of usage errors. Only this file's sources use CLI11,
// because its header takes seconds to compile.
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

/// A usage error of a verb, such as an invalid combination of options. CommandLine::parse reports it and returns 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An option, flag or positional argument. A handle: copies refer to the same option.
class Option {
public:
  Option() = default;
  /// Rejects a command line without this option.
  Option required() const;
  /// Rejects numbers outside [least, most].
  template <typename T, typename U> Option range(T least, U most) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<U>)
      return integerRange(static_cast<int64_t>(least), static_cast<int64_t>(most));
    else
      return numberRange(static_cast<double>(least), static_cast<double>(most));
  }
  /// Rejects values other than these.
  Option oneOf(const std::vector<std::string> &values) const;
  /// Rejects a command line with both this option and `other`.
  Option excludes(const Option &other) const;
  /// Rejects a command line with this option but without `other`.
  Option needs(const Option &other) const;
  /// For lists: each occurrence takes one value, so that a positional argument can follow.
  Option oneValueEach() const;
  /// Returns how many values the command line gave.
  size_t count() const;
  /// Returns the option's name, such as `--steps`.
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
  /// Adds a verb below this one, with the option `--error-format`.
  Verb verb(const std::string &name, const std::string &summary) const;
  /// Adds a group of options, which `--help` lists together.
  Verb group(const std::string &name, const std::string &summary = "") const;
  /// Adds an option, or a positional argument if `names` has no dash. T is a string, a path, a number, an optional
  /// number, an optional string or a vector; command_line.cpp lists the types.
  template <typename T> Option option(const std::string &names, T &value, const std::string &help = "") const;
  /// Adds an option with named values.
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
  /// Adds an option without a value, which sets `value` to true.
  Option flag(const std::string &names, bool &value, const std::string &help = "") const;
  /// Sets the verb's action. The exit code is the result of `work`, or 0 if that is void. Exceptions other than
  /// UsageError propagate through CommandLine::parse.
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
  /// Rejects a command line without a verb below this one.
  void requireVerb() const;
  /// For groups: rejects a command line without any of the group's options.
  void requireOption() const;
  /// Passes all words after the verb, including `--help`, to the action.
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
  /// Creates a command line without verbs and options. `summary` is printed by `--help`.
  CommandLine(const std::string &name, const std::string &summary);
  /// Adds `--version`, which prints the text and exits with 0.
  void version(const std::string &text) const;
  /// Runs the action of the chosen verb and returns its exit code. Prints the requested help and returns 0. On a usage
  /// error, prints `espalier VERB: error: ...` and returns 2.
  int parse(int argc, const char *const *argv) const;
  /// Returns the name of the chosen verb, or an empty string.
  std::string chosenVerb() const;

private:
  std::shared_ptr<CLI::App> root;
};

} // namespace espalier
