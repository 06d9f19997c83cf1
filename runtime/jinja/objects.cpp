#include "runtime/jinja/objects.h"

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/format.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::jinja {

namespace {

/// Iterates over an object by its member next(), and keeps the object.
template <typename Next> class ObjectIterator : public Iterator {
public:
  ObjectIterator(std::shared_ptr<Object> object, Next step) : object(std::move(object)), step(std::move(step)) {}
  bool next(Run &run, Value &value) override {
    run.step();
    return step(run, value);
  }

private:
  const std::shared_ptr<Object> object;
  Next step;
};
template <typename Next> std::unique_ptr<Iterator> iteratorOf(std::shared_ptr<Object> object, Next step) {
  return std::make_unique<ObjectIterator<Next>>(std::move(object), std::move(step));
}

/// Gives its values in turn, beginning again after the last one.
class Cycler : public Object {
public:
  explicit Cycler(std::vector<Value> items) : items(std::move(items)) {}
  const char *type() const override { return "Cycler"; }
  std::optional<Value> attribute(Run &run, const std::string &name) override {
    auto self = std::static_pointer_cast<Cycler>(shared_from_this());
    if (name == "current")
      return items[at];
    if (name == "next")
      return makeObject<Function>(run, nesting, [self](Run &, const Arguments &) {
        Value now = self->items[self->at];
        self->at = (self->at + 1) % self->items.size();
        return now;
      });
    if (name == "reset")
      return makeObject<Function>(run, nesting, [self](Run &, const Arguments &) {
        self->at = 0;
        return Value();
      });
    return std::nullopt;
  }

private:
  const std::vector<Value> items;
  size_t at = 0;
};

Value makeRange(Run &run, const Arguments &arguments) {
  Bound bound(run, arguments, {"first", "second", "step"}, 1);
  if (!arguments.named.empty())
    throw Fault("range() takes no keyword arguments");
  int64_t first = bound.integer(0, 0), step = bound.integer(2, 1);
  bool isOne = !bound.find(1);
  if (step == 0)
    throw Fault("range() arg 3 must not be zero");
  constexpr int64_t most = 100'000; // as jinja2's sandbox
  int64_t start = isOne ? 0 : first, stop = isOne ? first : bound.integer(1, 0);
  if (__int128 span = static_cast<__int128>(stop) - start;
      step > 0 ? span > static_cast<__int128>(most) * step : span < static_cast<__int128>(most) * step)
    throw Fault(fmt::format("range() gives more than {} numbers", most));
  return makeObject<Range>(run, 1, start, stop, step);
}

Value makeJoiner(Run &run, const Arguments &arguments) {
  Value separator = Bound(run, arguments, {"sep"}).value(0, Value::constant(", "));
  return makeObject<Function>(run, 1, [separator, isUsed = std::make_shared<bool>(false)](Run &, const Arguments &) {
    return std::exchange(*isUsed, true) ? separator : Value::constant("");
  });
}

Value makeCycler(Run &run, const Arguments &arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    throw Fault("cycler() needs values");
  return makeObject<Cycler>(run, nestingOf(makeList(run, arguments.positional)) + 1, arguments.positional);
}

} // namespace

Bound::Bound(Run &run, const Arguments &arguments, std::initializer_list<std::string_view> parameters, size_t required)
    : run(run), values(parameters.size()) {
  if (arguments.positional.size() > parameters.size())
    throw Fault(
        fmt::format("a call has {} arguments, at most {} are taken", arguments.positional.size(), parameters.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    values[i] = &arguments.positional[i];
  for (const auto &[name, value] : arguments.named) {
    const auto *found = std::ranges::find(parameters, name);
    if (found == parameters.end() || values[static_cast<size_t>(found - parameters.begin())])
      throw Fault(fmt::format("a call has no parameter '{}', or the argument twice", name));
    values[static_cast<size_t>(found - parameters.begin())] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values[i])
      throw Fault(fmt::format("a call misses its argument '{}'", parameters.begin()[i]));
}

const Value *Bound::given(size_t parameter) const {
  const Value *value = values[parameter];
  return value && !value->isNone() ? value : nullptr;
}

Value Bound::value(size_t parameter, Value otherwise) const {
  return values[parameter] ? *values[parameter] : std::move(otherwise);
}

bool Bound::isTrue(size_t parameter, bool otherwise) const {
  return values[parameter] ? jinja::isTrue(run, *values[parameter]) : otherwise;
}

int64_t Bound::integer(size_t parameter, int64_t otherwise) const {
  if (!values[parameter])
    return otherwise;
  std::optional<int64_t> integer = integerOf(*values[parameter]);
  if (!integer)
    throw Fault(fmt::format("'{}' object cannot be interpreted as an integer", typeOf(*values[parameter])));
  return *integer;
}

std::string Bound::text(size_t parameter, const std::string &otherwise) const {
  if (!values[parameter])
    return otherwise;
  if (!values[parameter]->text())
    throw Fault(fmt::format("an argument is {}, want str", typeOf(*values[parameter])));
  return values[parameter]->text()->bytes;
}

bool Generator::next(Run &run, Value &value) {
  if (isOver)
    return false;
  Run::Level level(run);
  isOver = true; // also after a fault
  isOver = !giveNext(run, value);
  return !isOver;
}

std::unique_ptr<Iterator> Generator::iterate(Run &) {
  return iteratorOf(shared_from_this(), [this](Run &run, Value &value) { return next(run, value); });
}

int64_t Range::count() const {
  int64_t span = step > 0 ? stop - start : start - stop, width = step > 0 ? step : -step;
  return (step > 0 ? stop > start : start > stop) ? (span + width - 1) / width : 0;
}

std::unique_ptr<Iterator> Range::iterate(Run &) {
  return iteratorOf(shared_from_this(), [this, index = int64_t{0}](Run &, Value &value) mutable {
    if (index >= count())
      return false;
    value = at(index++);
    return true;
  });
}

std::string Range::repr(Run &) const {
  return step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
}

const char *View::type() const {
  constexpr const char *types[] = {"dict_keys", "dict_values", "dict_items"};
  return types[kind];
}

Value View::at(Run &run, size_t place) const {
  const auto &[key, value] = dict.dict()->items[place];
  return kind == Keys ? key : kind == Values ? value : makeList(run, {key, value}, /*isTuple=*/true);
}

std::unique_ptr<Iterator> View::iterate(Run &) {
  return iteratorOf(shared_from_this(), [this, place = size_t{0}](Run &run, Value &value) mutable {
    if (place >= dict.dict()->items.size())
      return false;
    value = at(run, place++);
    return true;
  });
}

std::string View::repr(Run &run) const {
  std::vector<Value> items;
  for (size_t place = 0; place < dict.dict()->items.size(); ++place)
    items.push_back(at(run, place));
  return fmt::format("{}({})", type(), jinja::repr(run, makeList(run, std::move(items))));
}

std::optional<Value> Namespace::attribute(Run &, const std::string &name) {
  auto found = std::ranges::find(attributes, name, [](const auto &one) { return one.first; });
  return found == attributes.end() ? std::nullopt : std::optional(found->second);
}

std::string Namespace::repr(Run &run) const {
  Run::Level level(run); // a namespace may hold itself
  std::string items;
  for (const auto &[name, value] : attributes) {
    items += fmt::format("{}'{}': {}", items.empty() ? "" : ", ", name, jinja::repr(run, value));
    run.take(items.size());
  }
  return "<Namespace {" + items + "}>";
}

void Namespace::set(Run &run, const std::string &name, Value value) {
  if (name.starts_with('_'))
    throw Fault(fmt::format("a namespace takes no name that begins with an underscore, got '{}'", name));
  run.take(sizeof(attributes[0]));
  auto found = std::ranges::find(attributes, name, [](const auto &one) { return one.first; });
  if (found != attributes.end())
    found->second = std::move(value);
  else
    attributes.emplace_back(name, std::move(value));
}

Value makeGenerator(Run &run, const Value &source, Generator::Next next) {
  return makeObject<Generator>(run, nestingOf(source) + 1, std::move(next));
}

Value filtered(Run &run, const Value &source, std::function<bool(Run &, Value &)> step) {
  std::shared_ptr<Iterator> iterator;
  return makeGenerator(run, source, [source, iterator, step = std::move(step)](Run &run, Value &value) mutable {
    if (!iterator) // a generator does nothing before its first value
      iterator = iterate(run, source);
    while (iterator->next(run, value))
      if (step(run, value))
        return true;
    return false;
  });
}

Dict dictOf(Run &run, const Arguments &arguments) {
  Dict dict;
  if (arguments.positional.size() > 1)
    throw Fault("dict() takes at most one argument without a name");
  for (const Value &given : arguments.positional) {
    if (given.dict())
      dict = *given.dict();
    else
      for (const Value &pair : listOf(run, given)) {
        std::vector<Value> items = listOf(run, pair);
        if (items.size() != 2)
          throw Fault(fmt::format("dict() takes pairs, got {} items", items.size()));
        dict.set(run, items[0], items[1]);
      }
  }
  for (const auto &[name, value] : arguments.named)
    dict.set(run, makeText(run, name), value);
  return dict;
}

std::vector<std::pair<std::string, Value>> globalFunctions(Run &run) {
  auto function = [&](Function::Body body) { return makeObject<Function>(run, 1, std::move(body)); };
  return {
      {"range", function(makeRange)},
      {"joiner", function(makeJoiner)},
      {"cycler", function(makeCycler)},
      {"dict", function([](Run &run, const Arguments &all) { return makeDict(run, dictOf(run, all)); })},
      {"raise_exception", function([](Run &run, const Arguments &all) -> Value {
         throw Fault(str(run, Bound(run, all, {"message"}, 1).at(0)));
       })},
      {"strftime_now", function([](Run &run, const Arguments &all) {
         return makeText(run, formatTime(run.now, Bound(run, all, {"format"}, 1).text(0)));
       })},
  };
}

} // namespace espalier::rt::jinja
