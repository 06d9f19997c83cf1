// What each member of a group does in a collective once all have come: the algorithms, over memory that it can read and
// write at the addresses given. Shared by all back ends in which ranks see each other's memory.
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

/// What one member brings. Plain data: it may lie in memory that processes share.
struct Post {
  pb::Transfer::Kind kind;
  pb::Reduction reduction;
  pb::DataType type;
  int32_t shift;
  uint32_t buffers, room; ///< used and available places behind `pairs`
  BufferPair *pairs;

  std::span<const BufferPair> used() const { return {pairs, buffers}; }
};

/// Whether two members mean the same collective.
bool agree(const Post &one, const Post &other);

/// Elements that each of `members` reduces of an ALL_REDUCE; the last ones fewer, or none. 2,500 of three members:
/// 1,024, 1,024 and 452, as sharing few elements costs more than adding them.
int64_t reducedByEach(int64_t elements, int64_t members);

/// Does members' parts; keeps the addresses that a reduction goes through, so that none allocates.
class Collectives {
public:
  /// Makes room for groups of so many members.
  void reserve(size_t members);

  /// Does the part of member `index`. ALL_REDUCE: reduces a part of the range into everybody's result. The others:
  /// write the member's own result. The parts of all members together write each place once, and no part writes what
  /// another one reads.
  void doPart(std::span<const Post> posts, int index);

private:
  void reduceForAll(std::span<const Post> posts, int index, size_t buffer);
  void reduceOwn(std::span<const Post> posts, int index, size_t buffer);

  std::vector<const void *> sources;
  std::vector<void *> places;
};

} // namespace espalier::rt
