#include "compiler/import/shell/evaluator.h"

#include "compiler/import/shell/conditions.h"
#include "compiler/import/shell/parser.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace espalier::shell {

namespace {

constexpr int mostDepth = 200; // of commands within commands and calls

/// Returns whether the value of a word depends on a variable.
bool mentions(const Word &word, const std::string &name) {
  return std::any_of(word.begin(), word.end(), [&](const Part &part) {
    bool isInText = part.kind == Part::Arithmetic && part.text.bytes().find(name) != std::string::npos;
    return part.name == name || isInText ||
           std::any_of(part.operands.begin(), part.operands.end(),
                       [&](const Word &operand) { return mentions(operand, name); });
  });
}

} // namespace

Evaluator::Evaluator(const ShellInputs &inputs, std::function<void(const Place &, std::string)> warn)
    : shell(inputs.environment), inputs(inputs), warn(std::move(warn)) {
  for (const auto &[name, value] : inputs.environment) {
    shell.assign(name, {}, Text(value, {}));
    shell.variable(name).isExported = true;
  }
}

void Evaluator::run(const Text &script, bool hasNoArguments) {
  State &state = shell.state;
  int count = inputs.arguments.empty() ? 0 : inputs.arguments.rbegin()->first;
  for (int i = 1; i <= count; ++i) {
    auto found = inputs.arguments.find(i);
    std::string name = fmt::format("${}", i), remedy = fmt::format("give --arg {}=VALUE", i);
    state.arguments.push_back(found != inputs.arguments.end()
                                  ? Text(found->second, {})
                                  : Text(shell.makeCause(name, remedy, {}, /*isNotGiven=*/true), {}));
  }
  if (count == 0 && !hasNoArguments)
    state.unknownCount = shell.makeCause("$#", "give --arg 1=VALUE", script.placeOf(0));
  runProcess([&] { runText(script); });
}

Truth Evaluator::truthOf(const Text &expression, const Place &place) {
  Cause unknown;
  int64_t value = shell.evaluate(expression, place, unknown);
  return unknown ? Truth::unknown(unknown) : Truth::of(value != 0);
}

void Evaluator::runText(Text script) {
  shell.budget.hold(scripts.empty() ? 0 : script.size() * 16, script.placeOf(0));
  texts.push_back(std::move(script));
  scripts.push_back(Parser(texts.back()).parse());
  collectOwn(scripts.back());
  run(scripts.back());
}

void Evaluator::collectOwn(const Node &node) {
  for (const Assignment &assignment : node.assignments) {
    bool usesItself = std::ranges::any_of(assignment.elements, [&](const Assignment::Element &element) {
      return mentions(element.value, assignment.name); // as PATH=$PATH:/opt does
    });
    if (!usesItself)
      shell.own.insert(assignment.name);
  }
  if (node.kind == Node::For)
    shell.own.insert(node.name);
  for (const Node &child : node.children)
    collectOwn(child);
}

void Evaluator::run(const Node &node) {
  if (shell.state.flow != State::Normal)
    return;
  shell.budget.step(Budget::stepsPerCommand, node.place);
  if (++depth > mostDepth)
    throw Fault(node.place, fmt::format("calls and commands are nested deeper than {} levels", mostDepth));
  switch (node.kind) {
  case Node::Simple:
    runSimple(node);
    break;
  case Node::Pipe:
    for (const Node &child : node.children)
      runProcess([&] { run(child); });
    break;
  case Node::List:
  case Node::Group:
    for (const Node &child : node.children)
      run(child);
    break;
  case Node::Chain:
    runChain(node);
    break;
  case Node::Not:
    run(node.children[0]);
    shell.state.status = shell.state.status.negated();
    break;
  case Node::If:
    runIf(node);
    break;
  case Node::For:
    runFor(node);
    break;
  case Node::Count:
    runCount(node);
    break;
  case Node::While:
    runWhile(node);
    break;
  case Node::Case:
    runCase(node);
    break;
  case Node::Subshell:
    runProcess([&] { run(node.children[0]); });
    break;
  case Node::Calculate:
    shell.state.status = truthOf(shell.textOf(node.words[0]), node.place);
    break;
  case Node::Define:
    shell.state.functions[node.name] = &node.children[0];
    shell.state.status = {};
    break;
  case Node::Both:
  case Node::Either:
  case Node::Unary:
  case Node::Binary:
    shell.state.status = evaluateCondition(shell, node);
    break;
  }
  --depth;
}

void Evaluator::maybe(std::optional<State> &others, const Cause &cause, const std::function<void()> &body) {
  State before = shell.state;
  shell.budget.step(before.variables.size() * 20 + 1000, cause->place);
  body();
  if (others)
    merge(*std::exchange(others, std::nullopt), cause);
  others = std::exchange(shell.state, std::move(before));
}

void Evaluator::settle(std::optional<State> &others, const Cause &cause) {
  if (others)
    merge(*std::exchange(others, std::nullopt), cause);
}

void Evaluator::merge(State other, const Cause &cause) {
  State &state = shell.state;
  shell.budget.step(state.variables.size() * 20 + 1000, cause->place);
  if (other.flow == state.flow && other.levels == state.levels)
    return join(state, other, cause);
  if (other.flow == State::Normal)
    std::swap(state, other);
  park(std::move(other), cause);
}

void Evaluator::park(State other, const Cause &cause) {
  Frame::Kind kind = other.flow == State::Exit     ? Frame::Process
                     : other.flow == State::Return ? Frame::Function
                                                   : Frame::Loop;
  auto frame = std::find_if(frames.rbegin(), frames.rend(), [&](const Frame &entry) { return entry.kind == kind; });
  if (frame == frames.rend()) // `break` outside of a loop
    return;
  std::optional<State> &parked = other.flow == State::Exit     ? frame->exits
                                 : other.flow == State::Return ? frame->returns
                                 : other.flow == State::Break  ? frame->breaks
                                                               : frame->continues;
  frame->cause = cause;
  if (parked)
    join(*parked, other, cause);
  else
    parked = std::move(other);
}

void Evaluator::rejoin(std::optional<State> &parked, const Cause &cause) {
  if (!parked)
    return;
  State other = *std::exchange(parked, std::nullopt);
  if (other.flow == State::Return || other.flow == State::Exit || --other.levels <= 0)
    other.flow = State::Normal, other.levels = 0;
  merge(std::move(other), cause);
}

void Evaluator::runIf(const Node &node) {
  std::optional<State> others;
  Cause cause;
  size_t i = 0;
  Truth truth = Truth::of(false);
  for (; i + 1 < node.children.size() && shell.state.flow == State::Normal; i += 2) {
    run(node.children[i]);
    truth = shell.state.status;
    if (truth.value == Truth::Yes)
      break;
    if (truth.value == Truth::Unknown) {
      cause = truth.cause;
      maybe(others, cause, [&] { run(node.children[i + 1]); });
    }
  }
  size_t body = truth.value == Truth::Yes ? i + 1 : node.children.size() - 1;
  if (truth.value == Truth::Yes || node.children.size() % 2 == 1)
    run(node.children[body]);
  else if (shell.state.flow == State::Normal)
    shell.state.status = {};
  settle(others, cause);
}

void Evaluator::runCase(const Node &node) {
  Text subject = shell.textOf(node.words[0]);
  std::optional<State> others;
  Cause cause;
  auto runClause = [&](size_t i) {
    run(node.children[i]);
    while (node.names[i] == ";&" && ++i < node.children.size())
      run(node.children[i]);
  };
  shell.state.status = {};
  for (size_t i = 0; i < node.children.size(); ++i) {
    Truth truth = Truth::of(false);
    for (const Word &pattern : node.patterns[i]) {
      shell.budget.step(Budget::stepsPerCommand / 10, node.place);
      Truth one = matchPattern(shell, subject, pattern);
      if (one.value != Truth::No && truth.value != Truth::Yes)
        truth = one;
    }
    if (truth.value == Truth::Yes) {
      runClause(i);
      if (node.names[i] != ";;&")
        break;
    } else if (truth.value == Truth::Unknown) {
      cause = truth.cause;
      maybe(others, cause, [&] { runClause(i); });
    }
  }
  settle(others, cause);
}

void Evaluator::runChain(const Node &node) {
  // The states in which the chain so far has succeeded and failed. Both exist after a command of unknown status.
  std::optional<State> succeeded, failed;
  Cause cause;
  auto add = [&](std::optional<State> &states, State state, bool isYes) {
    state.status = Truth::of(isYes);
    if (states)
      join(*states, state, cause);
    else
      states = std::move(state);
  };
  for (size_t i = 0; i < node.children.size(); ++i) {
    if (i > 0) {
      std::optional<State> &next = node.names[i - 1] == "&&" ? succeeded : failed;
      if (!next)
        continue;
      shell.state = *std::exchange(next, std::nullopt);
    }
    run(node.children[i]);
    if (shell.state.flow != State::Normal) {
      if (!succeeded && !failed)
        return;
      park(std::move(shell.state), cause);
      continue;
    }
    Truth status = shell.state.status;
    shell.budget.step(shell.state.variables.size() * 20, node.place);
    if (status.value == Truth::Unknown && (!cause || cause->remedy.empty())) // the first one that a user can give
      cause = status.cause;
    if (status.value != Truth::No)
      add(succeeded, shell.state, /*isYes=*/true);
    if (status.value != Truth::Yes)
      add(failed, shell.state, /*isYes=*/false);
  }
  shell.state = succeeded ? *std::exchange(succeeded, std::nullopt) : *std::exchange(failed, std::nullopt);
  settle(failed, cause);
}

bool Evaluator::iterate(const Node &body) {
  State &state = shell.state;
  run(body);
  if (state.flow == State::Continue && --state.levels <= 0)
    state.flow = State::Normal;
  Frame &frame = frames.back();
  rejoin(frame.continues, frame.cause);
  return state.flow == State::Normal;
}

void Evaluator::iterateMaybe(const Cause &cause, const std::function<bool()> &turn) {
  // If one turn changes nothing, more turns change nothing. Else what it changes is unknown.
  std::optional<State> others;
  maybe(others, cause, [&] { turn(); });
  settle(others, cause);
}

void Evaluator::endLoop() {
  State &state = shell.state;
  Frame frame = std::move(frames.back());
  frames.pop_back();
  if (state.flow == State::Break && --state.levels <= 0)
    state.flow = State::Normal;
  rejoin(frame.breaks, frame.cause);
  rejoin(frame.continues, frame.cause); // those of outer loops
}

void Evaluator::runFor(const Node &node) {
  std::vector<Text> values = node.overArguments ? shell.state.arguments : shell.fieldsOf(node.words);
  frames.push_back({Frame::Loop});
  shell.state.status = {};
  auto turn = [&](const Text &value) {
    shell.assign(node.name, {}, value);
    return iterate(node.children[0]);
  };
  if (node.overArguments && shell.state.unknownArguments)
    values.assign(1, Text(shell.state.unknownArguments, node.place));
  for (const Text &value : values) {
    if (!value.isUnknown()) {
      if (!turn(value))
        break;
      continue;
    }
    iterateMaybe(value.unknown(), [&] { return turn(value); }); // the text may be no value, or several
  }
  endLoop();
}

void Evaluator::runCount(const Node &node) {
  frames.push_back({Frame::Loop});
  auto evaluate = [&](size_t i) { return truthOf(shell.textOf(node.words[i]), node.place); };
  evaluate(0);
  while (shell.state.flow == State::Normal) {
    shell.budget.step(Budget::stepsPerCommand, node.place);
    bool isEndless =
        node.words[1].empty() || shell.textOf(node.words[1]).bytes().find_first_not_of(" \t\n") == std::string::npos;
    Truth truth = isEndless ? Truth::of(true) : evaluate(1);
    if (truth.value == Truth::Unknown)
      iterateMaybe(truth.cause, [&] { return iterate(node.children[0]) && (evaluate(2), true); });
    if (truth.value != Truth::Yes || !iterate(node.children[0]))
      break;
    evaluate(2);
  }
  endLoop();
}

void Evaluator::runWhile(const Node &node) {
  frames.push_back({Frame::Loop});
  Truth last;
  while (shell.state.flow == State::Normal) {
    shell.budget.step(Budget::stepsPerCommand, node.place);
    run(node.children[0]);
    Truth truth = node.name == "until" ? shell.state.status.negated() : shell.state.status;
    if (truth.value == Truth::Unknown)
      iterateMaybe(truth.cause, [&] { return iterate(node.children[1]); });
    if (truth.value != Truth::Yes || !iterate(node.children[1]))
      break;
    last = shell.state.status;
  }
  if (shell.state.flow != State::Return && shell.state.flow != State::Exit)
    shell.state.status = last;
  endLoop();
}

void Evaluator::runProcess(const std::function<void()> &body, bool isWithoutVariables) {
  State before = shell.state;
  shell.budget.step(before.variables.size() * 20, {});
  if (isWithoutVariables)
    std::erase_if(shell.state.variables, [](const auto &entry) { return !entry.second->isExported; });
  frames.push_back({Frame::Process});
  body();
  Frame frame = std::move(frames.back());
  frames.pop_back();
  shell.state.flow = State::Normal;
  rejoin(frame.exits, frame.cause);
  if (frames.empty()) // the state of the script is the result
    return;
  before.launch = std::move(shell.state.launch);
  before.status = std::move(shell.state.status);
  shell.state = std::move(before);
}

} // namespace espalier::shell
