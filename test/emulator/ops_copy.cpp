// cp.async: copies from global to shared memory. The copy is executed when it is waited for, so that a missing wait
// shows.
#include <utility>

#include "test/emulator/block.h"
#include "test/emulator/ptx_memory.h"
#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

void begin(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t bytes = i.variant;
  forLanes(mask, [&](uint32_t lane) {
    uint32_t filled = i.inputs == 3 ? static_cast<uint32_t>(warp.bits(i.operands[2], lane)) : bytes;
    if (filled > bytes)
      warp.fail(Fault::Check::bounds, i, lane,
                "copies " + std::to_string(filled) + " bytes of " + std::to_string(bytes));
    MemoryAccess to(warp, i, bytes, /*reads=*/false, /*writes=*/true);
    uint64_t target = to.addressOf(0, i.immediate, lane);
    to.checkAlignment(target, lane);
    to.shared(target, lane);
    warp.block.shared.expect(static_cast<uint32_t>(target), bytes);
    uint64_t source = to.addressOf(1, i.sourceOffset, lane);
    to.checkAlignment(source, lane);
    std::byte *from = nullptr;
    if (filled) {
      MemoryAccess read(warp, i, filled, /*reads=*/true, /*writes=*/false);
      from = read.global(source, lane);
    }
    warp.open[lane].push_back({from, static_cast<uint32_t>(target), bytes, filled});
  });
}

void commit(Warp &warp, const Instruction &, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) { warp.committed[lane].push_back(std::exchange(warp.open[lane], {})); });
}

void finish(Warp &warp, const Instruction &i, uint32_t lane, const std::vector<Warp::Copy> &group) {
  SharedMemory &shared = warp.block.shared;
  for (const Warp::Copy &copy : group) {
    if (const char *wrong = shared.write(copy.to, copy.bytes, warp.index))
      warp.fail(Fault::Check::race, i, lane, "byte " + std::to_string(copy.to) + " of shared memory " + wrong);
    std::byte *to = shared.data() + copy.to;
    std::memset(to, 0, copy.bytes);
    if (copy.filled)
      std::memcpy(to, copy.from, copy.filled);
  }
}

/// Waits for all groups except the most recent ones, whose number is the immediate.
void wait(Warp &warp, const Instruction &i, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) {
    auto &groups = warp.committed[lane];
    for (; groups.size() > static_cast<size_t>(i.immediate); groups.erase(groups.begin()))
      finish(warp, i, lane, groups.front());
  });
}

void waitForAll(Warp &warp, const Instruction &i, uint32_t mask) {
  commit(warp, i, mask);
  wait(warp, i, mask);
}

void copyRule(Decoder &d) {
  d.need("async");
  if (d.take("commit_group"))
    return d.finish(commit, Type::none);
  if (d.take("wait_all"))
    return d.finish(waitForAll, Type::none);
  if (d.take("wait_group")) {
    d.instruction.immediate = d.number();
    return d.finish(wait, Type::none);
  }
  int cache = d.takeOneOf({"ca", "cg"});
  if (cache < 0)
    d.fail("modifier .ca or .cg is missing");
  if (!d.take("shared") && !d.take("shared::cta"))
    d.fail("modifier .shared is missing");
  d.need("global");
  d.takeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  d.address();
  int64_t targetOffset = d.instruction.immediate;
  d.address();
  d.instruction.sourceOffset = d.instruction.immediate;
  d.instruction.immediate = targetOffset;
  int64_t bytes = d.number();
  if (bytes != 16 && (cache == 1 || (bytes != 4 && bytes != 8)))
    d.fail("copies 4, 8 or 16 bytes, with .cg 16");
  d.instruction.variant = static_cast<uint8_t>(bytes);
  if (d.hasOperand())
    d.input(Type::u32);
  d.finish(begin, Type::none);
}

} // namespace

void addAsynchronousCopies(Rules &rules) { rules["cp"] = copyRule; }

} // namespace espalier::emulator
