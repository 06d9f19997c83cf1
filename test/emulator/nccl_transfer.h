// Executes NCCL calls when their turn in a stream has come. Members post the data that they send and read the data that
// others posted. Sums are in ring order: part i of a buffer begins with the member after member i and ends with member
// i's own term, with each addition rounded to the type.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "test/emulator/access_map.h"
#include "test/emulator/nccl_types.h"
#include "test/emulator/nccl_world.h"

namespace espalier::emulator {

/// A rank's membership of a communicator.
struct Member {
  std::shared_ptr<World> world;
  uint32_t group; // index in the world
  int rank, size; // within the communicator
  std::atomic<bool> isAborted = false;
  std::atomic<int> unfinished = 0; // transfers enqueued on streams
  uint32_t splits = 0;
  uint64_t sent[maxMembers + 1] = {}, received[maxMembers] = {}; // operations issued, per peer
};

/// One call.
struct Part {
  enum Kind : uint32_t { AllReduce, AllGather, ReduceScatter, Send, Receive } kind;
  uint64_t from = 0, to = 0; // device addresses
  uint64_t count = 0;        // the count argument of the call
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;
  uint64_t number = 0; // number of the operation on its channel, from 1
  bool isPosted = false, isTaken = false;
  std::vector<std::byte> result = {};
};

/// Returns the bytes of an element; 0 for a type that the double does not support.
uint64_t bytesOf(ncclDataType_t type);

/// The calls of one group on one communicator, which advance together.
class Transfer {
public:
  Transfer(std::shared_ptr<Member> member, std::vector<Part> parts);

  /// Returns a description, as "nccl all_reduce of 400 bytes".
  std::string name() const;
  /// Advances without blocking. Returns whether all other members have done their part. Throws Fault if members
  /// disagree.
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
