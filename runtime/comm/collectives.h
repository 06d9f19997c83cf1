// The algorithms of collectives: each member's part, once all members have posted, over memory that every member can
// read and write. Shared by all communicators whose ranks see each other's memory.
#pragma once

#include "runtime/comm/comm.h"

#include <span>
#include <vector>

namespace espalier::rt {

/// One buffer of one member.
struct BufferPair {
  const void *from;
  void *to;
  int64_t elements; ///< as in CollectiveShape
};

/// The collective that one member posts. Plain data, because it may lie in memory shared by processes.
struct Post {
  pb::Transfer::Kind kind;
  pb::Reduction reduction;
  pb::DataType type;
  int32_t shift;
  uint32_t buffers, room; ///< used and allocated entries of `pairs`
  BufferPair *pairs;

  std::span<const BufferPair> used() const { return {pairs, buffers}; }
};

/// Returns whether two members started the same collective.
bool agree(const Post &one, const Post &other);

/// Returns the elements that each of `members` reduces in an ALL_REDUCE. Later members may have fewer, or none.
/// Example: 2,500 elements on three members are cut into 1,024, 1,024 and 452, because splitting few elements costs
/// more than adding them.
int64_t reducedByEach(int64_t elements, int64_t members);

/// Does the parts of members. Keeps address lists between calls, so that reductions do not allocate.
class Collectives {
public:
  /// Reserves address lists for groups of up to `members` members.
  void reserve(size_t members);

  /// Does the part of member `index`. For ALL_REDUCE, a part reduces one range into every member's result. For the
  /// other kinds, a part writes the member's own result. All parts together write each element once, and no part writes
  /// what another part reads.
  void doPart(std::span<const Post> posts, int index);

private:
  void reduceForAll(std::span<const Post> posts, int index, size_t buffer);
  void reduceOwn(std::span<const Post> posts, int index, size_t buffer);

  std::vector<const void *> sources;
  std::vector<void *> places;
};

} // namespace espalier::rt
