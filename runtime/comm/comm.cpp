// Communication code that all communicators share: element sizes and waiting.
#include "runtime/comm/comm.h"

namespace espalier::rt {

size_t elementBytes(pb::DataType type) { return type == pb::BF16 || type == pb::F16 ? 2 : 4; }

void Communicator::wait(Ticket &ticket, int spins) {
  Waits waits(activity, Activity::Ranks);
  for (int spin = 0;; ++spin) {
    waits.look();
    uint32_t seen = epoch();
    Progress now = poll(ticket);
    if (now == Progress::Done)
      return;
    if (now == Progress::Stopped)
      throw RankStopped();
    // Other ranks may need this rank's part of another operation before they start this one.
    progress();
    if (spin < spins)
      __builtin_ia32_pause();
    else
      sleep(seen);
  }
}

} // namespace espalier::rt
