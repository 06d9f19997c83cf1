#include "runtime/verify/library_functions.h"

namespace espalier::rt {
namespace {

using Types = OperandRule::Types;

constexpr uint32_t bit(int operand) { return uint32_t{1} << operand; }

/// Products of a call's sizes, and whether all of them were numbers of elements.
class Sizes {
public:
  explicit Sizes(const pb::LibraryCall &call) : call(call) {}

  /// Size `index`; 0 behind the last.
  int64_t operator[](int index) const { return has(index + 1) ? call.sizes(index) : 0; }
  bool has(int count) const { return call.sizes_size() >= count; }

  int64_t product(std::initializer_list<int64_t> sizes) {
    int64_t result = 1;
    for (int64_t size : sizes)
      isSound =
          isSound && size >= 0 && size < limit && !__builtin_mul_overflow(result, size, &result) && result < limit;
    return isSound ? result : 0;
  }

  bool isSound = true;

private:
  static constexpr int64_t limit = int64_t{1} << 48; // bytes of a rank stay below
  const pb::LibraryCall &call;
};

OperandRule reads(int64_t elements, Types types = Types::Float, uint32_t linear = 0) {
  return {.elements = elements, .types = types, .linear = linear};
}

OperandRule writes(int64_t elements, Types types = Types::Float) {
  return {.access = pb::Operand::WRITE, .elements = elements, .types = types};
}

/// A sum over what the operands have and it has not.
OperandRule sums(int64_t elements, Types types = Types::Float) {
  OperandRule rule = writes(elements, types);
  rule.reduces = true;
  return rule;
}

/// What `store` says of the last buffer.
OperandRule stored(OperandRule rule, pb::Store store) {
  if (store != pb::OVERWRITE)
    rule.access = pb::Operand::ADD;
  rule.unlessFirst = store == pb::ADD_UNLESS_FIRST;
  return rule;
}

/// What is added to terms is terms; a bias would be added once by each rank with a term, and no other epilogue is linear.
std::vector<OperandRule> matmul(const pb::LibraryCall &call, Sizes &size) {
  using Call = pb::LibraryCall;
  constexpr uint32_t ofA = 1, ofB = 2, ofAddend = 3;
  Call::Epilogue epilogue = call.epilogue();
  bool isLinear = epilogue == Call::NONE || epilogue == Call::BIAS_GRADIENT || epilogue == Call::ADD;
  int64_t m = size[0], n = size[1], k = size[2], batch = size[3], elements = size.product({batch, m, n});
  std::vector<OperandRule> rules = {reads(size.product({batch, m, k}), Types::Float, isLinear ? ofA : 0),
                                    reads(size.product({batch, k, n}), Types::Float, isLinear ? ofB : 0)};
  rules.push_back(stored(sums(elements), call.store()));
  if (epilogue == Call::BIAS || epilogue == Call::BIAS_GELU || epilogue == Call::BIAS_ADD)
    rules.push_back(reads(n));
  if (epilogue == Call::ADD || epilogue == Call::BIAS_ADD || epilogue == Call::GELU_GRADIENT)
    rules.push_back(reads(elements, Types::Float, epilogue == Call::ADD ? ofAddend : 0));
  if (epilogue == Call::BIAS_GELU && call.buffers_size() > 4) // kept for its derivative
    rules.push_back(sums(elements));
  if (epilogue == Call::BIAS_GRADIENT) {
    rules.push_back(sums(n));
    rules.back().madeOf = 1 << 1;
  }
  return rules;
}

std::vector<OperandRule> attention(bool isForward, Sizes &size) {
  int64_t batch = size[0], sequence = size[1], kvHeads = size[2], group = size[3], headDim = size[4];
  int64_t queries = size.product({batch, sequence, kvHeads, group, headDim});
  int64_t keys = size.product({batch, size.has(6) ? size[5] : sequence, kvHeads, headDim});
  int64_t rows = size.product({batch, sequence, kvHeads, group});
  OperandRule step = reads(1, Types::I32);
  if (isForward)
    return {reads(queries), reads(keys), reads(keys, Types::Float, 1), writes(queries), writes(rows, Types::F32), step};
  return {reads(queries),
          reads(keys),
          reads(keys),
          reads(queries),
          reads(rows, Types::F32),
          reads(queries, Types::Float, 1),
          step,
          writes(queries),
          sums(keys),
          sums(keys)};
}

/// A cache is kept but for the rows that are written: as a whole it is the same value afterwards.
std::vector<OperandRule> attendCache(Sizes &size) {
  int64_t batch = size[0], tokens = size[1], kvHeads = size[2], group = size[3], headDim = size[4], context = size[5];
  int64_t queries = size.product({batch, tokens, kvHeads, group, headDim});
  int64_t keys = size.product({batch, tokens, kvHeads, headDim});
  OperandRule cache = writes(size.product({batch, kvHeads, context, headDim}));
  cache.access = pb::Operand::UPDATE;
  return {reads(queries), reads(keys), reads(keys), reads(size.product({batch, tokens}), Types::I32),
          writes(queries), cache, cache};
}

std::vector<OperandRule> route(Sizes &size) {
  int64_t batch = size[0], sequence = size[1], experts = size[2], choices = size[3];
  OperandRule places = writes(size.product({choices, batch, sequence}), Types::I32);
  size.isSound = size.isSound && size[4] >= 0; // the capacity, which no operand has
  return {reads(size.product({batch, sequence, experts})), places, places};
}

/// Of tokens to experts, or back; a fifth buffer means weights.
std::vector<OperandRule> moveRows(const pb::LibraryCall &call, Sizes &size) {
  int64_t choices = size[0], batch = size[1], sequence = size[2], hidden = size[3];
  int64_t experts = size[4], capacity = size[5];
  int64_t places = size.product({choices, batch, sequence});
  int64_t ofTokens = size.product({size[6] != 0 ? choices : 1, batch, sequence, hidden});
  int64_t ofExperts = size.product({experts, batch, capacity, hidden});
  size.isSound = size.isSound && (size[6] == 0 || size[6] == 1);
  bool isDispatch = call.function() == pb::LibraryCall::DISPATCH;
  std::vector<OperandRule> rules = {reads(places, Types::I32), reads(places, Types::I32),
                                    reads(isDispatch ? ofTokens : ofExperts, Types::Float, 1)};
  if (call.buffers_size() == 5)
    rules.push_back(reads(places, Types::Float, 2));
  rules.push_back(isDispatch ? writes(ofExperts) : sums(ofTokens));
  return rules;
}

std::vector<OperandRule> copy(Sizes &size) {
  int64_t outer = size[0], stride = size[1], bytes = size[2];
  int64_t from = outer > 0 ? size.product({outer - 1, stride}) + size.product({bytes}) : 0;
  return {reads(size.product({from}), Types::Bytes, 1), writes(size.product({outer, bytes}), Types::Bytes)};
}

} // namespace

std::optional<std::vector<OperandRule>> operandsOf(const pb::LibraryCall &call) {
  Sizes size(call);
  std::vector<OperandRule> rules;
  int needed = 0;
  switch (call.function()) {
  case pb::LibraryCall::MATMUL:
    needed = 4;
    rules = matmul(call, size);
    break;
  case pb::LibraryCall::ATTENTION_FORWARD:
  case pb::LibraryCall::ATTENTION_BACKWARD:
    needed = 5;
    rules = attention(call.function() == pb::LibraryCall::ATTENTION_FORWARD, size);
    break;
  case pb::LibraryCall::EMBED: // tokens, rows, hidden
    needed = 3;
    rules = {reads(size.product({size[1], size[2]}), Types::Float, 1), reads(size.product({size[0]}), Types::I32),
             sums(size.product({size[0], size[2]}))};
    break;
  case pb::LibraryCall::EMBED_GRADIENT:
    needed = 3;
    rules = {reads(size.product({size[0]}), Types::I32), reads(size.product({size[0], size[2]}), Types::Float, 1),
             stored(sums(size.product({size[1], size[2]}), Types::F32), call.store())};
    break;
  case pb::LibraryCall::ROPE: { // tokens, heads, head_dim, inverse
    needed = 4;
    int64_t elements = size.product({size[0], size[1], size[2]});
    rules = {reads(elements, Types::Float, 1), reads(size.product({size[0]}), Types::I32), writes(elements)};
    rules[2].over = bit(0);
    break;
  }
  case pb::LibraryCall::SQUARED_NORM:
    needed = 1;
    rules = {reads(size.product({size[0]}), Types::F32), stored(sums(1, Types::F32), pb::ADD)};
    break;
  case pb::LibraryCall::COPY:
    needed = 3;
    rules = copy(size);
    break;
  case pb::LibraryCall::ZERO:
    needed = 1;
    rules = {writes(size.product({size[0]}), Types::Bytes)};
    break;
  case pb::LibraryCall::REDUCE_PARTS: // parts, n
    needed = 2;
    rules = {reads(size.product({size[0], size[1]}), Types::F32, 1),
             stored(sums(size.product({size[1]}), Types::F32), call.store())};
    break;
  case pb::LibraryCall::UPDATE_SCALARS:
    rules.assign(4, reads(1, Types::F32));
    rules.resize(6, writes(1, Types::F32));
    break;
  case pb::LibraryCall::REARRANGE: { // a, b, bytes
    needed = 3;
    int64_t bytes = size.product({size[0], size[1], size[2]});
    rules = {reads(bytes, Types::Bytes, 1), writes(bytes, Types::Bytes)};
    break;
  }
  case pb::LibraryCall::ATTEND_CACHE:
    needed = 6;
    rules = attendCache(size);
    break;
  case pb::LibraryCall::TAKE_ROW: // a, b, bytes
    needed = 3;
    rules = {reads(size.product({size[0], size[1], size[2]}), Types::Bytes), reads(size.product({size[0]}), Types::I32),
             writes(size.product({size[0], size[2]}), Types::Bytes)};
    break;
  case pb::LibraryCall::ROUTE:
    needed = 5;
    rules = route(size);
    break;
  case pb::LibraryCall::DISPATCH:
  case pb::LibraryCall::COMBINE:
    needed = 7;
    rules = moveRows(call, size);
    break;
  default:
    return std::nullopt;
  }
  if (!size.has(needed) || !size.isSound)
    return std::nullopt;
  return rules;
}

} // namespace espalier::rt
