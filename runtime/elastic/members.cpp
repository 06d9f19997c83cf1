#include "runtime/elastic/members.h"

#include <algorithm>

namespace espalier::rt {

Members::Members(const std::vector<launch::Host> &hosts) {
  for (const launch::Host &host : hosts)
    members.push_back({host.address, std::vector<Slot>(host.slots)});
}

std::vector<int> Members::Host::freeSlots() const {
  std::vector<int> free;
  for (size_t i = 0; i < slots.size(); ++i)
    if (!isLost && !slots[i].isLost)
      free.push_back(static_cast<int>(i));
  return free;
}

int Members::left() const {
  int count = 0;
  for (const Host &host : members)
    count += static_cast<int>(host.freeSlots().size());
  return count;
}

int Members::all() const {
  int count = 0;
  for (const Host &host : members)
    count += static_cast<int>(host.slots.size());
  return count;
}

std::optional<std::vector<HostSlots>> Members::slotsFor(int ranks) const {
  for (int count = std::min(static_cast<int>(members.size()), ranks); count > 0; --count) {
    if (ranks % count != 0)
      continue;
    std::vector<HostSlots> places;
    for (const Host &host : members) {
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
  auto found = std::ranges::find(members, address, &Host::address);
  return found == members.end() ? nullptr : &*found;
}

void Members::lose(Slot &slot) {
  constexpr int mostStrikes = 10;
  slot.strikes = slot.isOnTrial ? std::min(slot.strikes + 1, mostStrikes) : 0;
  slot.isLost = slot.strikes > 0;
  slot.isOnTrial = !slot.isLost;
  slot.savesOut = slot.isLost ? 1 << (slot.strikes - 1) : 0;
}

void Members::loseRank(const std::vector<HostSlots> &places, int rank, bool isAllSlots) {
  for (const HostSlots &place : places) {
    int count = static_cast<int>(place.slots.size());
    Host *host = find(place.address);
    if (host && rank >= 0 && rank < count)
      for (int i = isAllSlots ? 0 : rank; i < (isAllSlots ? count : rank + 1); ++i)
        lose(host->slots[place.slots[i]]);
    rank -= count;
  }
}

void Members::loseHost(const std::string &address) {
  if (Host *host = find(address))
    host->isLost = true;
}

void Members::takeHost(const std::string &address) {
  if (Host *host = find(address))
    host->isLost = false;
}

std::vector<std::string> Members::hosts(bool areLost) const {
  std::vector<std::string> addresses;
  for (const Host &host : members)
    if (host.isLost == areLost)
      addresses.push_back(host.address);
  return addresses;
}

void Members::noteSave() {
  for (Host &host : members)
    for (Slot &slot : host.slots) {
      slot.isOnTrial = false;
      slot.savesOut = std::max(0, slot.savesOut - 1);
    }
}

void Members::takeSlots() {
  for (Host &host : members)
    for (Slot &slot : host.slots)
      if (slot.isLost && slot.savesOut == 0) {
        slot.isLost = false;
        slot.isOnTrial = true;
      }
}

} // namespace espalier::rt
