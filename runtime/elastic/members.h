// The hosts of an elastic run, their slots for ranks, and the slots that are lost.
#pragma once

#include "runtime/launch/rank_table.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::rt {

/// A host with the slots on which an attempt runs ranks. Ranks count through the hosts and their slots in order.
struct HostSlots {
  std::string address;
  std::vector<int> slots; ///< ascending
  bool operator==(const HostSlots &) const = default;
};

/// The hosts of an elastic run. A slot that loses its rank once is used again at once, because the process has ended
/// and its host lives. If the slot loses its rank again before the next save, it stays out for 1 save. If it is lost
/// before the save after its return, it stays out for 2 saves, then for 4, and so on.
class Members {
public:
  explicit Members(const std::vector<launch::Host> &hosts);

  /// Returns the number of slots that are not lost.
  int left() const;
  /// Returns the number of all slots.
  int all() const;

  /// Returns slots for `ranks` ranks, the same number on each host, on as many hosts as possible. Prefers the first
  /// hosts and slots. Returns nothing if too few slots are left.
  std::optional<std::vector<HostSlots>> slotsFor(int ranks) const;

  /// Notes that the slot of a rank of an attempt on `places`, or all slots of its place, have lost their ranks.
  void loseRank(const std::vector<HostSlots> &places, int rank, bool isAllSlots);
  /// Marks a host as lost, with all its slots.
  void loseHost(const std::string &address);
  /// Takes back a lost host.
  void takeHost(const std::string &address);

  /// Returns the addresses of all hosts that are, or are not, lost.
  std::vector<std::string> hosts(bool areLost) const;

  /// Notes that the run has saved a checkpoint.
  void noteSave();
  /// Takes back the lost slots that have stayed out long enough.
  void takeSlots();

private:
  struct Slot {
    bool isLost = false, isOnTrial = false; ///< on trial: taken back, and no checkpoint was saved since
    int strikes = 0;                        ///< how often the slot has lost its rank on trial, in a row
    int savesOut = 0;                       ///< saves until it may be taken back
  };
  struct Host {
    std::string address;
    std::vector<Slot> slots;
    bool isLost = false;
    std::vector<int> freeSlots() const;
  };
  static void lose(Slot &slot);
  Host *find(const std::string &address);

  std::vector<Host> members;
};

} // namespace espalier::rt
