// The parts of communication that all back ends share: shares of a range, and waiting.
#include "runtime/comm/comm.h"

#include <algorithm>

namespace espalier::rt {

size_t elementBytes(pb::DataType type) { return type == pb::BF16 || type == pb::F16 ? 2 : 4; }

Share shareOf(int64_t elements, int ranks, int index) {
  int64_t size = (elements + ranks - 1) / ranks;
  int64_t begin = std::min(elements, size * index);
  return {begin, std::min(elements, begin + size)};
}

void Communicator::wait(Ticket &ticket, int spins) {
  for (int spin = 0;; ++spin) {
    uint32_t seen = epoch();
    Progress progress = poll(ticket);
    if (progress == Progress::Done)
      return;
    if (progress == Progress::Stopped)
      throw RankStopped();
    if (spin < spins)
      __builtin_ia32_pause();
    else
      sleep(seen);
  }
}

} // namespace espalier::rt
