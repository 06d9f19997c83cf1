// Evaluates the commands of a script.
#pragma once

#include "compiler/import/shell/evaluate_shell.h"
#include "compiler/import/shell/expander.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier::shell {

/// Walks the syntax tree. A branch whose condition is unknown is walked on a copy of the state, which then is joined.
/// A branch that leaves a loop, a function or a process is joined at the end of what it leaves.
class Evaluator {
public:
  /// `warn` reports what is not evaluated.
  Evaluator(const ShellInputs &inputs, std::function<void(const Place &, std::string)> warn);

  /// Evaluates the script. With `hasNoArguments`, a script without given arguments has none: $# is 0. Else their number
  /// is unknown.
  void run(const Text &script, bool hasNoArguments);

  const State &result() const { return shell.state; }
  std::vector<std::vector<Text>> commands; ///< that a shell would start

private:
  /// A loop, function or process, and the states that have left it from branches of unknown conditions.
  struct Frame {
    enum Kind { Loop, Function, Process } kind;
    std::optional<State> breaks = {}, continues = {}, returns = {}, exits = {};
    Cause cause = {};                                                   ///< of the last branch that left
    std::map<std::string, std::shared_ptr<const Variable>> locals = {}; ///< the values that `local` has hidden
  };

  void run(const Node &node);
  void runText(Text script); ///< eval
  /// Finds the variables that a script sets.
  void collectOwn(const Node &node);
  void runIf(const Node &node);
  void runCase(const Node &node);
  void runChain(const Node &node);
  void runFor(const Node &node);
  void runCount(const Node &node);
  void runWhile(const Node &node);
  void runProcess(const std::function<void()> &body, bool isWithoutVariables = false);
  Truth truthOf(const Text &expression, const Place &place);

  /// Runs `body` in a branch whose condition is unknown. `others` holds the joined states of earlier branches; the
  /// state afterwards is the one of the branch without `body`.
  void maybe(std::optional<State> &others, const Cause &cause, const std::function<void()> &body);
  /// Joins the states of branches that were run by `maybe`.
  void settle(std::optional<State> &others, const Cause &cause);
  /// Joins a state into the current one. If their flows differ, one of them waits in the frame that it leaves.
  void merge(State other, const Cause &cause);
  void park(State other, const Cause &cause);
  void rejoin(std::optional<State> &parked, const Cause &cause);
  /// Returns whether the loop goes on.
  bool iterate(const Node &body);
  void iterateMaybe(const Cause &cause, const std::function<bool()> &turn);
  void endLoop();

  // Simple commands.
  void runSimple(const Node &node);
  void runCommand(std::vector<Text> fields, const Node &node);
  bool runBuiltin(const std::string &name, std::vector<Text> &fields, const Node &node);
  void runExternal(const std::vector<Text> &fields, const Node &node);
  bool runInnerShell(const std::vector<Text> &fields, const Node &node);
  void runInner(const std::vector<Text> &prefix, const Text &script, bool keepsExports,
                std::optional<std::vector<Text>> arguments);
  void callFunction(const Node &body, const std::vector<Text> &fields);
  void source(const std::vector<Text> &fields, const Place &place);
  void declare(const std::vector<Text> &fields, const Node &node);
  void read(const std::vector<Text> &fields, const Node &node);
  void setArguments(const std::vector<Text> &fields);
  void shift(const std::vector<Text> &fields);
  void leave(State::Flow flow, const std::vector<Text> &fields);
  void assign(const Assignment &assignment);
  void assignList(const Assignment &assignment);
  void hide(const std::string &name);
  void setUnknown(const std::vector<Text> &fields, const Place &place);

  Expander shell;
  const ShellInputs &inputs;
  std::function<void(const Place &, std::string)> warn;
  std::deque<Node> scripts; ///< the trees of all texts; functions point into them
  std::deque<Text> texts;
  std::set<std::string> files; ///< names of files that are read, to which places point
  std::vector<Frame> frames;
  std::vector<Text> prefix; ///< the launcher's words before an inner shell
  int depth = 0;
};

} // namespace espalier::shell
