// The hosts of an elastic run, their slots for ranks, and the slots that are lost.
#pragma once

#include "runtime/launch/rank_table.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier {

/// A host with the slots on which an attempt runs ranks. Ranks count through the hosts and their slots in order.
struct Place {
  std::string address;
  std::vector<int> slots; ///< ascending
  bool operator==(const Place &) const = default;
};

/// The hosts of an elastic run. A lost slot is left out until it is taken back. A slot that is lost again before the
/// first save after its return is left out for the rest of the run.
class Members {
public:
  /// `needsEqual` tells that all hosts of an attempt need equal numbers of ranks.
  Members(const std::vector<rt::launch::Host> &hosts, bool needsEqual);

  /// Returns the number of slots that are not lost.
  int left() const;
  /// Returns the number of all slots.
  int all() const;

  /// Returns slots for `ranks` ranks, or nothing if too few are left. Uses the hosts in order.
  std::optional<std::vector<Place>> placesFor(int ranks) const;

  /// Marks the slot of a rank of an attempt on `places` as lost.
  void loseRank(const std::vector<Place> &places, int rank);
  /// Marks a host as lost, with all its slots.
  void loseHost(const std::string &address);

  /// Returns the addresses of all hosts that are not lost.
  std::vector<std::string> hostsLeft() const;
  /// Returns the addresses of the lost hosts.
  std::vector<std::string> hostsLost() const;

  /// Takes back the host, which answers again.
  void takeHost(const std::string &address);
  /// Takes back the lost slots of the hosts that are left.
  void takeSlots();
  /// The run has saved a checkpoint, so slots that were taken back before are sound.
  void confirm();

private:
  struct Host {
    std::string address;
    int slots = 0;
    std::set<int> lost, onTrial, goneForGood;
    bool isLost = false;
    bool isFree(int slot) const { return !isLost && !lost.contains(slot) && !goneForGood.contains(slot); }
    std::vector<int> freeSlots() const;
  };
  std::optional<std::vector<Place>> equalPlaces(int ranks) const;
  Host *find(const std::string &address);

  std::vector<Host> hosts;
  bool needsEqual;
};

} // namespace espalier
