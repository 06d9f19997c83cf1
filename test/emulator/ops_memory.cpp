// Memory: ld, st, atom and red. Every access is checked for bounds, alignment and, in shared memory, races between
// warps.
#include "test/emulator/block.h"
#include "test/emulator/ptx_memory.h"
#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

/// Extends a loaded value to the register by the type's sign.
template <class Element> void load(Warp &warp, const Instruction &i, uint32_t mask) {
  std::byte *from[warpLanes];
  MemoryAccess(warp, i, sizeof(Element) * i.outputs, /*reads=*/true, /*writes=*/false).find(i.outputs, mask, from);
  for (uint32_t k = 0; k < i.outputs; ++k) {
    Slot to = i.operands[k];
    if (to.bytes == sizeof(Element)) {
      Element *lanes = warp.lanes<Element>(to);
      forLanes(mask,
               [&](uint32_t lane) { std::memcpy(&lanes[lane], from[lane] + k * sizeof(Element), sizeof(Element)); });
      continue;
    }
    forLanes(mask, [&](uint32_t lane) {
      Element element;
      std::memcpy(&element, from[lane] + k * sizeof element, sizeof element);
      warp.setBits(to, lane,
                   static_cast<uint64_t>(
                       static_cast<std::conditional_t<std::is_signed_v<Element>, int64_t, uint64_t>>(element)));
    });
  }
}

template <class Element> void storeTo(Warp &warp, const Instruction &i, uint32_t mask) {
  std::byte *to[warpLanes];
  uint32_t elements = i.inputs - 1;
  MemoryAccess(warp, i, sizeof(Element) * elements, /*reads=*/false, /*writes=*/true).find(0, mask, to);
  for (uint32_t k = 0; k < elements; ++k)
    forLanes(mask, [&](uint32_t lane) {
      uint64_t value = warp.bits(i.operands[1 + k], lane);
      std::memcpy(to[lane] + k * sizeof(Element), &value, sizeof(Element));
    });
}

template <bool isLoad> Execute memoryLoop(Type type) {
  if constexpr (isLoad) {
    if (isSigned(type))
      return bytesOf(type) == 1   ? load<int8_t>
             : bytesOf(type) == 2 ? load<int16_t>
             : bytesOf(type) == 4 ? load<int32_t>
                                  : load<int64_t>;
    return bytesOf(type) == 1   ? load<uint8_t>
           : bytesOf(type) == 2 ? load<uint16_t>
           : bytesOf(type) == 4 ? load<uint32_t>
                                : load<uint64_t>;
  } else {
    return bytesOf(type) == 1   ? storeTo<uint8_t>
           : bytesOf(type) == 2 ? storeTo<uint16_t>
           : bytesOf(type) == 4 ? storeTo<uint32_t>
                                : storeTo<uint64_t>;
  }
}

/// Ignores modifiers without meaning here: memory order (lanes run one after another) and caching.
void takeOrderAndCache(Decoder &d) {
  d.take("volatile") || d.take("weak") || d.take("relaxed") || d.take("acquire") || d.take("release");
  d.takeOneOf({"cta", "gpu", "sys"});
  d.takeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.takeOneOf({"L1::evict_normal", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L1::evict_unchanged"});
  d.takeOneOf({"L2::64B", "L2::128B", "L2::256B"});
}

Type takeMemoryType(Decoder &d, uint32_t count) {
  Type type = d.takeType();
  if (type == Type::pred || type == Type::f16x2 || type == Type::bf16x2 || bytesOf(type) * count > 16)
    d.fail("type is none that it has");
  return type;
}

void loadRule(Decoder &d) {
  takeOrderAndCache(d);
  d.instruction.space = takeSpace(d);
  d.instruction.nonCoherent = d.take("nc");
  if (d.instruction.nonCoherent && d.instruction.space != Space::global)
    d.fail("modifier .nc is for global memory");
  uint32_t count = d.takeVector();
  Type type = takeMemoryType(d, count);
  d.outputs(type, count, /*wider=*/true);
  d.address();
  d.finish(memoryLoop<true>(type), type);
}

void storeRule(Decoder &d) {
  takeOrderAndCache(d);
  d.instruction.space = takeSpace(d);
  if (d.instruction.space == Space::parameter)
    d.fail("parameters are not written");
  uint32_t count = d.takeVector();
  Type type = takeMemoryType(d, count);
  d.address();
  d.inputs(type, count, /*wider=*/true);
  d.finish(memoryLoop<false>(type), type);
}

enum Atomic : uint8_t { add, exchange, compareAndSwap, minimum, maximum, bitAnd, bitOr, bitXor };

template <class T> T combine(uint8_t operation, T old, T value, T other) {
  switch (operation) {
  case add:
    return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(value));
  case exchange:
    return value;
  case compareAndSwap:
    return old == value ? other : old;
  case minimum:
    return old < value ? old : value;
  case maximum:
    return old > value ? old : value;
  case bitAnd:
    return old & value;
  case bitOr:
    return old | value;
  default:
    return old ^ value;
  }
}

/// Executes lanes one after another. Atomics of different warps do not race.
template <class T> void atomic(Warp &warp, const Instruction &i, uint32_t mask) {
  std::byte *at[warpLanes];
  MemoryAccess access(warp, i, sizeof(T), /*reads=*/true, /*writes=*/true);
  access.isAtomic = true;
  access.find(i.outputs, mask, at);
  forLanes(mask, [&](uint32_t lane) {
    T old;
    std::memcpy(&old, at[lane], sizeof old);
    T value = warp.lanes<T>(i.operands[i.outputs + 1])[lane];
    T other = i.variant == compareAndSwap ? warp.lanes<T>(i.operands[i.outputs + 2])[lane] : T(0);
    T result = combine(i.variant, old, value, other);
    std::memcpy(at[lane], &result, sizeof result);
    if (i.outputs)
      warp.lanes<T>(i.operands[0])[lane] = old;
  });
}

template <bool hasResult> void atomicRule(Decoder &d) {
  takeOrderAndCache(d);
  d.take("acq_rel");
  d.instruction.space = takeSpace(d);
  if (d.instruction.space == Space::parameter || d.instruction.space == Space::local)
    d.fail("atomics are for global and shared memory");
  int operation = d.takeOneOf({"add", "exch", "cas", "min", "max", "and", "or", "xor"});
  if (operation < 0)
    d.fail("operation is missing");
  d.instruction.variant = static_cast<uint8_t>(operation);
  Type type = d.takeType();
  // Sums of floats would depend on the order of the threads.
  if (isFloating(type))
    d.fail("atomics on floats are not deterministic");
  if (hasResult)
    d.output(type);
  d.address();
  d.input(type);
  if (operation == compareAndSwap)
    d.input(type);
  d.finish(type == Type::u32 || type == Type::b32   ? atomic<uint32_t>
           : type == Type::s32                      ? atomic<int32_t>
           : type == Type::u64 || type == Type::b64 ? atomic<uint64_t>
           : type == Type::s64                      ? atomic<int64_t>
                                                    : nullptr,
           type);
}

void nothing(Warp &, const Instruction &, uint32_t) {}

void fenceRule(Decoder &d) {
  if (d.base == "membar") {
    if (d.takeOneOf({"cta", "gl", "sys"}) < 0)
      d.fail("scope is missing");
  } else {
    d.takeOneOf({"sc", "acq_rel"});
    if (d.takeOneOf({"cta", "gpu", "sys"}) < 0)
      d.fail("scope is missing");
  }
  d.finish(nothing, Type::none);
}

} // namespace

Space takeSpace(Decoder &d) {
  switch (d.takeOneOf({"global", "shared", "local", "param", "shared::cta"})) {
  case 0:
    return Space::global;
  case 1:
  case 4:
    return Space::shared;
  case 2:
    return Space::local;
  case 3:
    return Space::parameter;
  default:
    return Space::generic;
  }
}

void addMemory(Rules &rules) {
  rules["ld"] = loadRule;
  rules["st"] = storeRule;
  rules["atom"] = atomicRule<true>;
  rules["red"] = atomicRule<false>;
  rules["membar"] = fenceRule;
  rules["fence"] = fenceRule;
}

} // namespace espalier::emulator
