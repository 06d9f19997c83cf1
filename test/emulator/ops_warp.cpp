// Control flow and communication within a warp: bra ret exit trap bar shfl vote activemask.
#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

void nothing(Warp &, const Instruction &, uint32_t) {}

void branchRule(Decoder &d) {
  d.take("uni");
  d.branchTarget();
  d.instruction.flow = Flow::branch;
  d.finish(nothing, Type::none);
}

void exitRule(Decoder &d) {
  d.take("uni");
  d.instruction.flow = Flow::exit;
  d.finish(nothing, Type::none);
}

void trap(Warp &warp, const Instruction &i, uint32_t mask) {
  warp.fail(Fault::Check::other, i, __builtin_ctz(mask), "is executed");
}
void trapRule(Decoder &d) { d.finish(trap, Type::none); }

void barrierRule(Decoder &d) {
  if (d.take("warp")) {
    d.need("sync");
    d.input(Type::u32);
    d.instruction.members = 0;
    d.instruction.flow = Flow::converge;
    return d.finish(nothing, Type::none);
  }
  d.take("cta");
  d.need("sync");
  d.take("aligned");
  d.input(Type::u32);
  if (d.hasOperand())
    d.input(Type::u32);
  d.instruction.flow = Flow::barrier;
  d.finish(nothing, Type::none);
}

enum Shuffle : uint8_t { up, down, butterfly, index };

/// Returns the lane that a lane reads from, and whether this lane is in its segment.
std::pair<uint32_t, bool> shuffleSource(uint8_t mode, uint32_t lane, uint32_t b, uint32_t c) {
  int by = b & 31, segment = c >> 8 & 31, clamp = c & 31, self = static_cast<int>(lane);
  int last = (self & segment) | (clamp & ~segment), first = self & segment;
  int source = mode == up          ? self - by
               : mode == down      ? self + by
               : mode == butterfly ? self ^ by
                                   : first | (by & ~segment);
  bool isInside = mode == up ? source >= last : source <= last;
  return {isInside ? source : lane, isInside};
}

void shuffle(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t first = i.outputs, inside = 0;
  const uint32_t *values = warp.lanes<uint32_t>(i.operands[first]);
  const uint32_t *b = warp.lanes<uint32_t>(i.operands[first + 1]), *c = warp.lanes<uint32_t>(i.operands[first + 2]);
  uint32_t result[warpLanes] = {};
  forLanes(mask, [&](uint32_t lane) {
    auto [source, isInside] = shuffleSource(i.variant, lane, b[lane], c[lane]);
    if (!(mask >> source & 1))
      warp.fail(Fault::Check::convergence, i, lane,
                "reads from lane " + std::to_string(source) + ", which does not take part");
    result[lane] = values[source];
    inside |= uint32_t(isInside) << lane;
  });
  store(warp, i.operands[0], result, mask);
  if (i.outputs == 2)
    storePredicate(warp, i.operands[1], inside, mask);
}

void shuffleRule(Decoder &d) {
  d.need("sync");
  int mode = d.takeOneOf({"up", "down", "bfly", "idx"});
  if (mode < 0)
    d.fail("mode is missing");
  d.instruction.variant = static_cast<uint8_t>(mode);
  if (d.takeType() != Type::b32)
    d.fail("type must be .b32");
  d.output(Type::b32);
  d.secondOutput();
  d.input(Type::b32);
  d.input(Type::u32);
  d.input(Type::u32);
  d.input(Type::u32);
  d.instruction.members = d.instruction.outputs + 3;
  d.instruction.flow = Flow::converge;
  d.finish(shuffle, Type::b32);
}

enum Vote : uint8_t { all, any, uniform, ballot };

void vote(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t holds = warp.predicate(i.operands[1]) & mask;
  if (i.variant == ballot) {
    uint32_t result[warpLanes];
    std::fill_n(result, warpLanes, holds);
    return store(warp, i.operands[0], result, mask);
  }
  bool answer = i.variant == all ? holds == mask : i.variant == any ? holds != 0 : holds == 0 || holds == mask;
  storePredicate(warp, i.operands[0], answer ? ~0u : 0, mask);
}

void voteRule(Decoder &d) {
  d.need("sync");
  int mode = d.takeOneOf({"all", "any", "uni", "ballot"});
  Type type = d.takeType();
  if (mode < 0 || type != (mode == ballot ? Type::b32 : Type::pred))
    d.fail("needs .all, .any or .uni with .pred, or .ballot with .b32");
  d.instruction.variant = static_cast<uint8_t>(mode);
  d.output(type);
  d.input(Type::pred);
  d.input(Type::u32);
  d.instruction.members = 2;
  d.instruction.flow = Flow::converge;
  d.finish(vote, type);
}

void activeMask(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t result[warpLanes];
  std::fill_n(result, warpLanes, mask);
  store(warp, i.operands[0], result, mask);
}

void activeMaskRule(Decoder &d) {
  if (d.takeType() != Type::b32)
    d.fail("type must be .b32");
  d.output(Type::b32);
  d.finish(activeMask, Type::b32);
}

} // namespace

void addWarpOperations(Rules &rules) {
  rules["bra"] = branchRule;
  rules["ret"] = exitRule;
  rules["exit"] = exitRule;
  rules["trap"] = trapRule;
  rules["bar"] = barrierRule;
  rules["barrier"] = barrierRule;
  rules["shfl"] = shuffleRule;
  rules["vote"] = voteRule;
  rules["activemask"] = activeMaskRule;
}

} // namespace espalier::emulator
