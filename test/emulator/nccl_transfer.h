// What the calls of NCCL do once their turn in a stream has come: members post what they send and take what others have
// posted. Sums are those of a ring: part i of a buffer begins with the member behind member i and ends with its own
// term, each addition rounded to the type.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "test/emulator/access_map.h"
#include "test/emulator/nccl_types.h"
#include "test/emulator/nccl_world.h"

namespace espalier::emulator {

/// A rank's place in a communicator.
struct Member {
  std::shared_ptr<World> world;
  uint32_t group; // of the world
  int rank, size; // in the communicator
  std::atomic<bool> isAborted = false;
  std::atomic<int> unfinished = 0; // transfers put into streams
  uint32_t splits = 0;
  uint64_t sent[maxMembers + 1] = {}, received[maxMembers] = {}; // operations issued, by peer
};

/// One call.
struct Part {
  enum Kind : uint32_t { AllReduce, AllGather, ReduceScatter, Send, Receive } kind;
  uint64_t from = 0, to = 0; // device addresses
  uint64_t count = 0;        // as the call says it
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;
  uint64_t number = 0; // of its line, from 1
  bool isPosted = false, isTaken = false;
  std::vector<std::byte> result = {};
};

/// Bytes of an element; 0 for a type that the double does not know.
uint64_t bytesOf(ncclDataType_t type);

/// The calls of one group on one communicator: they go on together.
class Transfer {
public:
  Transfer(std::shared_ptr<Member> member, std::vector<Part> parts);

  /// "nccl all_reduce of 400 bytes"
  std::string name() const;
  /// Does what can be done now; whether all others have done their side. Throws Fault where they disagree.
  bool poll();
  Accesses run();

private:
  int members() const { return member->size; }
  uint64_t bytesRead(const Part &part) const;
  uint64_t bytesWritten(const Part &part) const;
  Line &line(int from, int to) const;
  void checkOverlaps() const;
  bool post(Part &part);
  bool take(Part &part);
  bool takeFromAll(Part &part);
  bool takeFromPeer(Part &part);
  const std::byte *read(const Part &part) const;

  std::shared_ptr<Member> member;
  std::vector<Part> parts;
  bool isChecked = false;
};

} // namespace espalier::emulator
