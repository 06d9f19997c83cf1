#include "runtime/checkpoint/agree.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace espalier::rt {
namespace {

/// A queue number above those of all plans, so that no other group is the same.
constexpr uint32_t queue = 1 << 16;

uint32_t joinAll(Communicator &communicator) {
  std::vector<int> members(communicator.ranks());
  std::iota(members.begin(), members.end(), 0);
  return communicator.joinGroup(members, queue);
}

} // namespace

Agreement::Agreement(Communicator &communicator, bool isFirstHere, int spins)
    : communicator(communicator), isFirst(isFirstHere), spins(spins), group(joinAll(communicator)),
      messages(communicator.allocate(communicator.ranks() * messageBytes)) {}

std::vector<std::string> Agreement::tell(const std::string &mine) {
  auto textOf = [&](int rank) { return reinterpret_cast<char *>(messages + rank * messageBytes); };
  char *own = textOf(communicator.rank());
  std::memset(own, 0, messageBytes);
  std::memcpy(own, mine.data(), std::min(mine.size(), messageBytes - 1));
  auto elements = static_cast<int64_t>(communicator.ranks() * messageBytes / elementBytes(pb::I32));
  CollectiveShape shape{.kind = pb::Transfer::ALL_GATHER, .type = pb::I32, .elements = {elements}};
  void *from = own, *to = messages;
  Ticket ticket = communicator.startCollective(group, shape, &from, &to);
  communicator.wait(ticket, spins);
  std::vector<std::string> all;
  for (int rank = 0; rank < communicator.ranks(); ++rank)
    all.emplace_back(textOf(rank));
  return all;
}

std::string Agreement::first(const std::string &mine) {
  std::vector<std::string> all = tell(mine);
  auto said = std::ranges::find_if(all, [](const std::string &text) { return !text.empty(); });
  return said == all.end() ? "" : *said;
}

} // namespace espalier::rt
