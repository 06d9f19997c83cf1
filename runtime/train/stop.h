// How a run ends before its last step: a signal asks for it, and all ranks agree on the step after which they stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>

namespace espalier::rt {

/// The ranks' agreement. They meet again and again in collectives that all of them take part in, and count these
/// meetings. Rank 0 says before it enters one that it is to be the last; whoever has left that meeting sees it, as rank
/// 0 had spoken before anybody could leave. So all stop behind the same meeting, and none waits for one that has gone.
class StopAgreement {
public:
  /// Rank 0, before it enters meeting `meeting`. What was said stays.
  void proclaim(uint64_t meeting) {
    uint64_t none = never;
    last.compare_exchange_strong(none, meeting);
  }
  /// Any rank, after it left meeting `meeting`: whether that was the last. A word about a later one changes nothing.
  bool endsWith(uint64_t meeting) const { return last.load() <= meeting; }

private:
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();
  std::atomic<uint64_t> last{never};
};

/// From now on SIGTERM, SIGINT and SIGHUP ask the run to end after the step at hand, and a second one ends the process
/// at once with the status of the first, 128 and its number. A SIGHUP that was ignored stays so: that is nohup. For the
/// whole process, hence called by the command alone.
void stopOnSignals();

/// The signal that came, 0 before.
int stopSignal();

/// "SIGTERM".
const char *signalName(int signal);

} // namespace espalier::rt
