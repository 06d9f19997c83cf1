#include "runtime/jinja/loop.h"

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/objects.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::jinja {

Loop::Loop(Interpreter &interpreter, Run &run, const Stmt &stmt, Value values, ScopePtr scope, int64_t depth)
    : interpreter(interpreter), stmt(stmt), iterable(std::move(values)), scope(std::move(scope)), depth(depth),
      iterator(jinja::iterate(run, iterable)) {
  nesting = checkedNesting(nestingOf(iterable) + 1);
  run.take(sizeof(Loop));
}

bool Loop::peek(Run &run) {
  if (Value value; !after && iterator->next(run, value))
    after = std::move(value);
  return after.has_value();
}

bool Loop::next(Run &run, Value &value) {
  run.step();
  if (!peek(run))
    return false;
  value = *after;
  before = std::exchange(current, std::exchange(after, std::nullopt));
  ++index;
  return true;
}

std::optional<int64_t> Loop::length(Run &run) {
  if (count)
    return count;
  bool isKnown = !iterable.as<Generator>() && (!iterable.object() || iterable.object()->length(run));
  if (isKnown)
    return count = lengthOf(run, iterable);
  std::vector<Value> rest; // a generator is read to its end
  for (Value value; iterator->next(run, value);)
    rest.push_back(value);
  count = std::ssize(rest) + index + 1 + after.has_value();
  iterator = jinja::iterate(run, makeList(run, std::move(rest)));
  return count;
}

std::string Loop::repr(Run &run) const {
  return fmt::format("<LoopContext {}/{}>", index + 1, *const_cast<Loop *>(this)->length(run));
}

std::optional<Value> Loop::attribute(Run &run, const std::string &name) {
  if (name == "index")
    return index + 1;
  if (name == "index0")
    return index;
  if (name == "first")
    return index == 0;
  if (name == "last")
    return !peek(run);
  if (name == "length")
    return *length(run);
  if (name == "revindex")
    return *length(run) - index;
  if (name == "revindex0")
    return *length(run) - index - 1;
  if (name == "depth")
    return depth + 1;
  if (name == "depth0")
    return depth;
  if (name == "previtem")
    return index == 0 ? undefined("there is no previous item") : *before;
  if (name == "nextitem")
    return peek(run) ? *after : undefined("there is no next item");
  auto self = std::static_pointer_cast<Loop>(shared_from_this());
  if (name == "cycle")
    return makeObject<Function>(run, nesting + 1,
                                [self](Run &, const Arguments &arguments) { return self->cycle(arguments); });
  if (name == "changed")
    return makeObject<Function>(
        run, nesting + 1, [self](Run &run, const Arguments &arguments) { return self->hasChanged(run, arguments); });
  return std::nullopt;
}

Value Loop::cycle(const Arguments &arguments) const {
  if (arguments.positional.empty() || !arguments.named.empty())
    throw Fault("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
}

Value Loop::hasChanged(Run &run, const Arguments &arguments) {
  bool isSame = lastCompared && std::ranges::equal(*lastCompared, arguments.positional,
                                                   [&](const Value &a, const Value &b) { return isEqual(run, a, b); });
  lastCompared = arguments.positional;
  return !isSame;
}

Value Loop::call(Run &run, const Arguments &arguments) {
  if (!stmt.isRecursive)
    throw Fault("The loop must have the 'recursive' marker to be called recursively.");
  std::string out;
  interpreter.loopOver(stmt, Bound(run, arguments, {"iterable"}, 1).at(0), scope, depth + 1, out);
  return makeText(run, std::move(out));
}

} // namespace espalier::rt::jinja
