#include "tools/elastic/members.h"

#include <algorithm>

namespace espalier {

Members::Members(const std::vector<rt::launch::Host> &given, bool needsEqual) : needsEqual(needsEqual) {
  for (const rt::launch::Host &host : given)
    hosts.push_back({host.address, host.slots, {}, {}, {}, false});
}

std::vector<int> Members::Host::freeSlots() const {
  std::vector<int> free;
  for (int slot = 0; slot < slots; ++slot)
    if (isFree(slot))
      free.push_back(slot);
  return free;
}

int Members::left() const {
  int count = 0;
  for (const Host &host : hosts)
    count += static_cast<int>(host.freeSlots().size());
  return count;
}

int Members::all() const {
  int count = 0;
  for (const Host &host : hosts)
    count += host.slots;
  return count;
}

std::optional<std::vector<Place>> Members::placesFor(int ranks) const {
  if (needsEqual)
    return equalPlaces(ranks);
  std::vector<Place> places;
  for (const Host &host : hosts) {
    std::vector<int> free = host.freeSlots();
    free.resize(std::min<size_t>(free.size(), ranks));
    ranks -= static_cast<int>(free.size());
    if (!free.empty())
      places.push_back({host.address, free});
  }
  return ranks == 0 ? std::optional(places) : std::nullopt;
}

/// Spreads the ranks over as many hosts as possible, with equal numbers.
std::optional<std::vector<Place>> Members::equalPlaces(int ranks) const {
  for (int count = std::min(static_cast<int>(hosts.size()), ranks); count > 0; --count) {
    if (ranks % count != 0)
      continue;
    std::vector<Place> places;
    for (const Host &host : hosts) {
      std::vector<int> free = host.freeSlots();
      if (static_cast<int>(places.size()) == count || static_cast<int>(free.size()) < ranks / count)
        continue;
      free.resize(ranks / count);
      places.push_back({host.address, free});
    }
    if (static_cast<int>(places.size()) == count)
      return places;
  }
  return std::nullopt;
}

Members::Host *Members::find(const std::string &address) {
  auto found = std::ranges::find(hosts, address, &Host::address);
  return found == hosts.end() ? nullptr : &*found;
}

void Members::loseRank(const std::vector<Place> &places, int rank) {
  for (const Place &place : places) {
    int count = static_cast<int>(place.slots.size());
    if (rank >= count) {
      rank -= count;
      continue;
    }
    Host *host = find(place.address);
    if (!host || rank < 0)
      return;
    int slot = place.slots[rank];
    (host->onTrial.erase(slot) > 0 ? host->goneForGood : host->lost).insert(slot);
    return;
  }
}

void Members::loseHost(const std::string &address) {
  if (Host *host = find(address))
    host->isLost = true;
}

std::vector<std::string> Members::hostsLeft() const {
  std::vector<std::string> addresses;
  for (const Host &host : hosts)
    if (!host.isLost)
      addresses.push_back(host.address);
  return addresses;
}

std::vector<std::string> Members::hostsLost() const {
  std::vector<std::string> addresses;
  for (const Host &host : hosts)
    if (host.isLost)
      addresses.push_back(host.address);
  return addresses;
}

void Members::takeHost(const std::string &address) {
  if (Host *host = find(address))
    host->isLost = false;
}

void Members::takeSlots() {
  for (Host &host : hosts)
    if (!host.isLost)
      host.onTrial.merge(host.lost);
  for (Host &host : hosts)
    if (!host.isLost)
      host.lost.clear();
}

void Members::confirm() {
  for (Host &host : hosts)
    host.onTrial.clear();
}

} // namespace espalier
