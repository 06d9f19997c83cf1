#include "compiler/import/megatron/edit_script.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

namespace espalier {

namespace {

/// The flags that a plan decides.
constexpr const char *planFlags[] = {"--tensor-model-parallel-size",
                                     "--pipeline-model-parallel-size",
                                     "--context-parallel-size",
                                     "--expert-model-parallel-size",
                                     "--expert-tensor-parallel-size",
                                     "--sequence-parallel",
                                     "--micro-batch-size",
                                     "--global-batch-size",
                                     "--use-distributed-optimizer",
                                     "--num-distributed-optimizer-instances",
                                     "--num-layers-per-virtual-pipeline-stage",
                                     "--num-virtual-stages-per-pipeline-rank",
                                     "--decoder-first-pipeline-num-layers",
                                     "--decoder-last-pipeline-num-layers",
                                     "--pipeline-model-parallel-layout",
                                     "--recompute-activations",
                                     "--recompute-granularity",
                                     "--recompute-method",
                                     "--recompute-num-layers",
                                     "--cpu-offloading-num-layers",
                                     "--offload-optimizer-states"};

/// The words of a flag in the launch.
struct GivenFlag {
  ShellWord name;
  std::vector<ShellWord> values;
};
using GivenFlags = std::map<std::string, GivenFlag>;

class ScriptEditor {
public:
  ScriptEditor(const std::string &file, std::string script, const ShellInputs &inputs)
      : file(file), script(std::move(script)), inputs(inputs) {}

  EditedScript edit(const std::string &exported) {
    std::map<std::string, std::string> wanted = flagsOfPlan(exported);
    // A changed literal may change computed values. Those that are still wrong are replaced afterwards.
    for (bool replacesComputed : {false, true}) {
      GivenFlags given = flagsOf(script);
      for (const char *name : planFlags) {
        auto found = given.find(name);
        auto want = wanted.find(name);
        if (found != given.end() && want == wanted.end())
          remove(found->second);
        else if (found != given.end())
          replaceValue(found->second, want->second, replacesComputed);
        else if (want != wanted.end())
          insert(given, want->first + (want->second.empty() ? "" : " " + want->second) + " ");
      }
      apply();
    }
    EditedScript result{script, {}};
    GivenFlags after = flagsOf(result.text);
    for (const char *name : planFlags) {
      auto want = wanted.find(name);
      auto found = after.find(name);
      bool isRight = want == wanted.end() ? found == after.end()
                                          : found != after.end() && valueOf(found->second) == unquoted(want->second);
      if (!isRight)
        result.unplaced.push_back(want == wanted.end() ? std::string("remove ") + name
                                                       : std::string(name) + " " + want->second);
    }
    return result;
  }

private:
  struct Change {
    size_t begin, length;
    std::string text;
  };

  static std::string unquoted(std::string text) {
    std::erase_if(text, [](char c) { return c == '"' || c == '\''; });
    return text;
  }

  static std::string valueOf(const GivenFlag &flag) { return flag.values.empty() ? "" : flag.values.front().text; }

  static std::map<std::string, std::string> flagsOfPlan(const std::string &exported) {
    std::map<std::string, std::string> flags;
    std::istringstream lines(exported);
    for (std::string line; std::getline(lines, line);) {
      size_t space = std::min(line.find(' '), line.size());
      std::string name = line.substr(0, space);
      if (std::ranges::find(planFlags, name) != std::end(planFlags))
        flags[name] = space < line.size() ? line.substr(space + 1) : "";
    }
    return flags;
  }

  /// Returns the flags of the launch, or of all words if the script launches nothing.
  GivenFlags flagsOf(const std::string &text) const {
    Diagnostics ignored; // faults are those of the import
    ShellRun run = evaluateShell(file, text, inputs, ignored);
    ShellCommand words = run.launch.value_or(ShellCommand());
    if (!run.launch)
      for (const ShellCommand &command : run.commands)
        words.insert(words.end(), command.begin(), command.end());
    GivenFlags flags;
    GivenFlag *last = nullptr;
    for (const ShellWord &word : words) {
      if (!word.text.starts_with("--")) {
        if (last)
          last->values.push_back(word);
        continue;
      }
      size_t equals = std::min(word.text.find('='), word.text.size());
      last = &(flags[word.text.substr(0, equals)] = {word, {}});
      if (equals < word.text.size()) {
        last->values.push_back(word);
        last->values.back().text = word.text.substr(equals + 1);
        last->values.back().where.column += static_cast<int>(equals) + 1;
      }
    }
    return flags;
  }

  /// Returns the offset of a word in the script, or npos if the script does not hold its text there.
  size_t offsetOf(const ShellWord &word) const {
    if (word.where.file != file || word.where.line < 1 || word.where.column < 1)
      return std::string::npos;
    size_t offset = 0;
    for (int line = 1; line < word.where.line && offset != std::string::npos; ++line)
      if (offset = script.find('\n', offset); offset != std::string::npos)
        ++offset;
    if (offset == std::string::npos)
      return offset;
    offset += static_cast<size_t>(word.where.column) - 1;
    for (size_t quote : {0, 1}) // the location of a quoted word is that of its quote
      if (!word.text.empty() &&
          script.compare(std::min(offset + quote, script.size()), word.text.size(), word.text) == 0)
        return offset + quote;
    return std::string::npos;
  }

  void replaceValue(const GivenFlag &flag, const std::string &value, bool replacesComputed) {
    if (flag.values.empty() || valueOf(flag) == unquoted(value))
      return;
    if (size_t begin = offsetOf(flag.values.front()); begin != std::string::npos)
      return change({begin, valueOf(flag).size(), value});
    if (size_t begin = offsetOf(flag.name); replacesComputed && begin != std::string::npos)
      change({begin, tokensAfter(begin + flag.name.text.size(), 1) - begin, flag.name.text + " " + value});
  }

  void remove(const GivenFlag &flag) {
    if (size_t begin = offsetOf(flag.name); begin != std::string::npos)
      change({begin, tokensAfter(begin + flag.name.text.size(), flag.values.empty() ? 0 : 1) - begin, ""});
  }

  void insert(const GivenFlags &given, const std::string &text) {
    size_t first = std::string::npos;
    for (const auto &[name, flag] : given)
      if (std::ranges::find(planFlags, name) != std::end(planFlags))
        first = std::min(first, offsetOf(flag.name));
    if (first != std::string::npos)
      change({first, 0, text});
  }

  /// Returns the end of `count` words of the script after `begin`. Expansions such as $((8 / TP)) belong to a word.
  size_t tokensAfter(size_t begin, int count) const {
    size_t end = begin;
    for (; count > 0; --count) {
      size_t word = script.find_first_not_of(" \t", end);
      if (word == std::string::npos || script[word] == '\n' || script[word] == '\\')
        break;
      int depth = 0;
      for (end = word; end < script.size(); ++end) {
        char c = script[end];
        if (depth == 0 && std::string_view(" \t\n\"')").find(c) != std::string_view::npos)
          break;
        depth += (c == '(' || c == '{') - (c == ')' || c == '}');
      }
    }
    return end;
  }

  void change(Change one) {
    auto overlaps = [&](const Change &other) {
      return one.length > 0 && other.length > 0 && one.begin < other.begin + other.length &&
             other.begin < one.begin + one.length;
    };
    if (std::ranges::none_of(changes, overlaps))
      changes.push_back(std::move(one));
  }

  void apply() {
    std::ranges::stable_sort(changes, std::greater(), &Change::begin);
    for (const Change &one : changes)
      script.replace(one.begin, one.length, one.text);
    changes.clear();
  }

  const std::string &file;
  std::string script;
  const ShellInputs &inputs;
  std::vector<Change> changes;
};

} // namespace

EditedScript editScript(const std::string &file, const std::string &script, const ShellInputs &inputs,
                        const std::string &exported) {
  EditedScript edited = ScriptEditor(file, script, inputs).edit(exported);
  std::string plain = exported;
  if (edited.unplaced.empty() || std::erase(plain, '"') == 0)
    return edited;
  EditedScript other = ScriptEditor(file, script, inputs).edit(plain); // flags in a quoted variable take no quotes
  return other.unplaced.size() < edited.unplaced.size() ? other : edited;
}

} // namespace espalier
