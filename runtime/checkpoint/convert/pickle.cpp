// A stack machine for the opcodes that torch.save and pickle.dump write. Memory is bounded by the size of the pickle:
// every opcode makes at most one value, and tensor sizes stay numbers until a tensor is read.
#include "runtime/checkpoint/convert/pickle.h"

#include "runtime/status.h"

#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <unordered_map>

namespace espalier::rt {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t mostDimensions = 16;

constexpr std::pair<const char *, uint64_t> elementTypes[] = {
    {"FloatStorage", 4}, {"HalfStorage", 2},  {"BFloat16Storage", 2}, {"DoubleStorage", 8}, {"LongStorage", 8},
    {"IntStorage", 4},   {"ShortStorage", 2}, {"CharStorage", 1},     {"ByteStorage", 1},   {"BoolStorage", 1}};

[[noreturn]] void refuse(const std::string &reason) { throw PlanError("damaged pickle: " + reason); }

/// Reads a count, an offset or a stride.
int64_t count(PickleRef value) {
  if (value->kind != Kind::Integer || value->integer < 0)
    refuse(value->kind == Kind::Integer ? fmt::format("a size of {}", value->integer) : "a size that is not a number");
  return value->integer;
}

std::vector<int64_t> counts(PickleRef value) {
  if (value->kind != Kind::Sequence || value->items.size() > mostDimensions)
    refuse("a shape that is not a short list");
  std::vector<int64_t> sizes;
  for (PickleRef item : value->items)
    sizes.push_back(count(item));
  return sizes;
}

/// Checks that every element lies within the storage and that the tensor has no more elements than the storage.
void requireInside(const PickleTensor &tensor) {
  if (tensor.shape.size() != tensor.strides.size())
    refuse(fmt::format("a tensor of {} dimensions has {} strides", tensor.shape.size(), tensor.strides.size()));
  uint64_t elements = 1, last = tensor.offset;
  bool isTooLarge = false, isEmpty = false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    uint64_t reach = 0;
    isEmpty |= tensor.shape[i] == 0;
    isTooLarge |= __builtin_mul_overflow(elements, static_cast<uint64_t>(tensor.shape[i]), &elements);
    isTooLarge |= __builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[i] - 1),
                                         static_cast<uint64_t>(tensor.strides[i]), &reach) &&
                  tensor.shape[i] > 1;
    isTooLarge |= tensor.shape[i] > 1 && __builtin_add_overflow(last, reach, &last);
  }
  if (!isEmpty && (isTooLarge || elements > tensor.storage.count || last >= tensor.storage.count))
    refuse(
        fmt::format("a tensor reaches past its storage '{}' of {} elements", tensor.storage.key, tensor.storage.count));
}

} // namespace

/// The stack machine.
class PickleReader {
public:
  PickleReader(std::span<const std::byte> bytes, Pickle &pickle) : bytes(bytes), pickle(pickle) {}

  void run() {
    while (!step(static_cast<unsigned char>(take(1)[0])))
      ;
    if (stack.size() != 1 || !marks.empty())
      refuse(fmt::format("it ends with {} values", stack.size()));
    pickle.theRoot = stack.back();
    pickle.used = at;
  }

private:
  std::string_view take(size_t wanted) {
    if (wanted > bytes.size() - at)
      refuse("it is cut off");
    std::string_view taken(reinterpret_cast<const char *>(bytes.data()) + at, wanted);
    at += wanted;
    return taken;
  }
  uint64_t number(int width) {
    std::string_view text = take(width);
    uint64_t value = 0;
    for (int i = width; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(text[i]);
    return value;
  }
  std::string line() {
    size_t begin = at;
    while (take(1)[0] != '\n')
      ;
    return std::string(reinterpret_cast<const char *>(bytes.data()) + begin, at - begin - 1);
  }
  PickleValue &make(Kind kind) {
    PickleValue &value = pickle.values.emplace_back();
    value.kind = kind;
    return value;
  }
  PickleValue &push(Kind kind) {
    PickleValue &value = make(kind);
    stack.push_back(&value);
    return value;
  }
  PickleValue *pop() {
    if (stack.size() <= (marks.empty() ? 0 : marks.back()))
      refuse("it pops from an empty stack");
    PickleValue *value = stack.back();
    stack.pop_back();
    return value;
  }
  PickleValue *top() {
    if (stack.size() <= (marks.empty() ? 0 : marks.back()))
      refuse("it pops from an empty stack");
    return stack.back();
  }
  std::vector<PickleValue *> popToMark() {
    if (marks.empty())
      refuse("it pops to a mark that does not exist");
    std::vector<PickleValue *> values(stack.begin() + static_cast<ptrdiff_t>(marks.back()), stack.end());
    stack.resize(marks.back());
    marks.pop_back();
    return values;
  }
  void pushText(size_t length) { push(Kind::Text).text = take(length); }
  void pushInteger(int64_t value) { push(Kind::Integer).integer = value; }
  void pushTuple(size_t count) {
    std::vector<PickleRef> items(count);
    while (count-- > 0)
      items[count] = pop();
    push(Kind::Sequence).items = std::move(items);
  }
  void append(PickleValue &list, PickleRef item) {
    if (list.kind == Kind::Sequence)
      list.items.push_back(item);
    else if (list.kind != Kind::Inert)
      refuse("it appends to a value that is not a list");
  }
  void setItem(PickleValue &dict, PickleRef key, PickleRef value) {
    if (dict.kind == Kind::Dict)
      dict.pairs.emplace_back(key, value);
    else if (dict.kind != Kind::Inert)
      refuse("it sets an item of a value that is not a dict");
  }

  /// Reads a two's complement integer of any length; one of more than 64 bits becomes inert.
  void pushLong(size_t length) {
    std::string_view text = take(length);
    if (length > 8) {
      push(Kind::Inert).text = "a number of more than 64 bits";
      return;
    }
    uint64_t value = length > 0 && (text.back() & 0x80) ? ~uint64_t(0) : 0;
    for (size_t i = length; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(text[i]);
    pushInteger(static_cast<int64_t>(value));
  }

  void pushFloat() {
    std::string_view text = take(8);
    uint64_t bits = 0;
    for (char c : text) // big-endian
      bits = bits << 8 | static_cast<unsigned char>(c);
    std::memcpy(&push(Kind::Float).number, &bits, sizeof(bits));
  }

  /// Reads ("storage", TYPE, KEY, DEVICE, COUNT, ...).
  void pushStorage() {
    PickleRef id = pop();
    const auto &items = id->items;
    if (id->kind != Kind::Sequence || items.size() < 5 || items[0]->text != "storage" ||
        items[1]->kind != Kind::Global || items[2]->kind != Kind::Text)
      refuse("it refers to an object that is not a storage");
    PickleStorage storage{elementOf(items[1]->text), items[2]->text, static_cast<uint64_t>(count(items[4]))};
    auto [known, isNew] = pickle.theStorages.try_emplace(storage.key, storage);
    if (!isNew && (known->second.count != storage.count || known->second.element.name != storage.element.name))
      refuse(fmt::format("storage '{}' has two sizes or types", storage.key));
    push(Kind::Storage).tensor.storage = storage;
  }
  static PickleElement elementOf(const std::string &global) {
    for (auto [name, size] : elementTypes)
      if (global == fmt::format("torch.{}", name))
        return {name, size};
    refuse(fmt::format("a storage of '{}', a type that is not supported", global));
  }

  /// Returns the value of calling `callee` with `arguments`: a dict, a tensor, or an inert value.
  PickleValue *call(PickleRef callee, PickleRef arguments) {
    const std::string name = callee->kind == Kind::Global ? callee->text : "";
    const auto &items = arguments->items;
    if (arguments->kind != Kind::Sequence)
      refuse("it calls something without arguments");
    if (name == "collections.OrderedDict" && items.empty())
      return &make(Kind::Dict);
    if (name == "torch._utils._rebuild_parameter" && !items.empty() && items[0]->kind == Kind::Tensor)
      return &(make(Kind::Tensor) = *items[0]);
    bool isTensor = name == "torch._utils._rebuild_tensor" || name == "torch._utils._rebuild_tensor_v2";
    if (isTensor && items.size() >= 4 && items[0]->kind == Kind::Storage) {
      PickleTensor tensor{items[0]->tensor.storage, static_cast<uint64_t>(count(items[1])), counts(items[2]),
                          counts(items[3])};
      requireInside(tensor);
      PickleValue &value = make(Kind::Tensor);
      value.tensor = tensor;
      return &value;
    }
    PickleValue &value = make(Kind::Inert);
    value.text = name.empty() ? "a value that was made before" : name;
    value.arguments = arguments;
    return &value;
  }

  void reduce() {
    PickleRef arguments = pop();
    PickleRef callee = pop();
    stack.push_back(call(callee, arguments));
  }

  /// Keeps the state of inert objects. The state of a dict (OrderedDict's `_metadata`) is not one of its items.
  void build() {
    PickleRef state = pop();
    Kind kind = top()->kind;
    if (kind == Kind::Inert)
      top()->state = state;
    if (kind != Kind::Inert && kind != Kind::Dict && kind != Kind::Tensor)
      refuse("it sets the state of a value without state");
  }

  bool step(unsigned char opcode);
  bool stepConstant(unsigned char opcode);
  bool stepContainer(unsigned char opcode);

  std::span<const std::byte> bytes;
  Pickle &pickle;
  size_t at = 0;
  std::vector<PickleValue *> stack;
  std::vector<size_t> marks;
  std::unordered_map<uint64_t, PickleValue *> memo;
};

/// Executes an opcode that pushes one constant; returns false for other opcodes.
bool PickleReader::stepConstant(unsigned char opcode) {
  switch (opcode) {
  case 'N': // NONE
    push(Kind::None);
    return true;
  case 0x88: // NEWTRUE
  case 0x89: // NEWFALSE
    push(Kind::Bool).integer = opcode == 0x88;
    return true;
  case 'J': // BININT
    pushInteger(static_cast<int32_t>(number(4)));
    return true;
  case 'K': // BININT1
    pushInteger(static_cast<int64_t>(number(1)));
    return true;
  case 'M': // BININT2
    pushInteger(static_cast<int64_t>(number(2)));
    return true;
  case 0x8a: // LONG1
    pushLong(number(1));
    return true;
  case 'G': // BINFLOAT
    pushFloat();
    return true;
  case 'X': // BINUNICODE
  case 'T': // BINSTRING
  case 'B': // BINBYTES
    pushText(number(4));
    return true;
  case 'U':  // SHORT_BINSTRING
  case 'C':  // SHORT_BINBYTES
  case 0x8c: // SHORT_BINUNICODE
    pushText(number(1));
    return true;
  case 0x8d: // BINUNICODE8
  case 0x8e: // BINBYTES8
  case 0x96: // BYTEARRAY8
    pushText(number(8));
    return true;
  case 'c': { // GLOBAL
    std::string module = line();
    push(Kind::Global).text = module + "." + line();
    return true;
  }
  default:
    return false;
  }
}

/// Executes an opcode that makes or fills lists, tuples and dicts; returns false for other opcodes.
bool PickleReader::stepContainer(unsigned char opcode) {
  switch (opcode) {
  case '(': // MARK
    marks.push_back(stack.size());
    return true;
  case 't':    // TUPLE
  case 0x91: { // FROZENSET
    std::vector<PickleValue *> items = popToMark();
    push(Kind::Sequence).items.assign(items.begin(), items.end());
    return true;
  }
  case ')':  // EMPTY_TUPLE
  case ']':  // EMPTY_LIST
  case 0x8f: // EMPTY_SET
    push(Kind::Sequence);
    return true;
  case '}': // EMPTY_DICT
    push(Kind::Dict);
    return true;
  case 0x85: // TUPLE1
  case 0x86: // TUPLE2
  case 0x87: // TUPLE3
    pushTuple(opcode - 0x84);
    return true;
  case 'a': { // APPEND
    PickleRef item = pop();
    append(*top(), item);
    return true;
  }
  case 'e':  // APPENDS
  case 0x90: // ADDITEMS
    for (std::vector<PickleValue *> items = popToMark(); PickleValue * item : items)
      append(*top(), item);
    return true;
  case 's': { // SETITEM
    PickleRef value = pop(), key = pop();
    setItem(*top(), key, value);
    return true;
  }
  case 'u': { // SETITEMS
    std::vector<PickleValue *> items = popToMark();
    if (items.size() % 2 != 0)
      refuse("a key without a value");
    for (size_t i = 0; i < items.size(); i += 2)
      setItem(*top(), items[i], items[i + 1]);
    return true;
  }
  default:
    return false;
  }
}

/// Executes an opcode; returns true at the end.
bool PickleReader::step(unsigned char opcode) {
  if (stepConstant(opcode) || stepContainer(opcode))
    return false;
  switch (opcode) {
  case 0x80: // PROTO
    if (uint64_t protocol = number(1); protocol > 5)
      refuse(fmt::format("protocol {}, up to 5 is read", protocol));
    return false;
  case 0x95: // FRAME
    take(8);
    return false;
  case 0x94: // MEMOIZE
    memo[memo.size()] = top();
    return false;
  case 0x93: { // STACK_GLOBAL
    PickleRef name = pop(), module = pop();
    if (name->kind != Kind::Text || module->kind != Kind::Text)
      refuse("the name of an object is no text");
    push(Kind::Global).text = module->text + "." + name->text;
    return false;
  }
  case 'q': // BINPUT
  case 'r': // LONG_BINPUT
    memo[number(opcode == 'q' ? 1 : 4)] = top();
    return false;
  case 'h':   // BINGET
  case 'j': { // LONG_BINGET
    auto found = memo.find(number(opcode == 'h' ? 1 : 4));
    if (found == memo.end())
      refuse("it reads a memo entry that does not exist");
    stack.push_back(found->second);
    return false;
  }
  case 'Q': // BINPERSID
    pushStorage();
    return false;
  case 'R':  // REDUCE
  case 0x81: // NEWOBJ
    reduce();
    return false;
  case 'b': // BUILD
    build();
    return false;
  case '.': // STOP
    return true;
  default:
    refuse(fmt::format("opcode 0x{:02x} at {} is not one that torch.save writes", opcode, at - 1));
  }
}

uint64_t PickleTensor::elements() const {
  uint64_t elements = 1;
  for (int64_t size : shape)
    elements *= static_cast<uint64_t>(size);
  return elements;
}

PickleRef PickleValue::find(const std::string &key) const {
  for (auto [name, value] : pairs)
    if (name->kind == Kind::Text && name->text == key)
      return value;
  return nullptr;
}

Pickle::Pickle(std::span<const std::byte> bytes) { PickleReader(bytes, *this).run(); }

} // namespace espalier::rt
