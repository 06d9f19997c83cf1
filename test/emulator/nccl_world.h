// The state that the ranks of one ncclGetUniqueId share, as processes or threads: a memory file with communicators,
// posts of their members, and sent bytes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "test/emulator/cuda_types.h"

namespace espalier::emulator {

constexpr int maxMembers = 16;        // of a world
constexpr uint32_t maxGroups = 256;   // communicators of a world, including the world itself
constexpr uint32_t maxSplits = 256;   // per communicator
constexpr uint64_t postsInFlight = 8; // from one member to another, or to all

/// One operation of a member, or its part of it.
struct Post {
  std::atomic<uint64_t> posted; // number of the operation in this slot, from 1
  std::atomic<uint32_t> taken;  // members that have read it
  uint32_t kind;
  int type, reduction;
  uint64_t count;
  uint64_t bytes, place; // offset in the file
};

/// A member's posts to another member, or, at index maxMembers, to all.
struct Line {
  Post posts[postsInFlight];
};

struct SplitVote {
  std::atomic<uint32_t> isCast;
  int color, key;
};

/// The state of a communicator that all members share.
struct Group {
  uint32_t parent, split; // the world is its own parent
  int color, size;
  std::atomic<uint32_t> joined;
  Line lines[maxMembers][maxMembers + 1];
  // Whether a member's host has reached its first collective, its first send to and first receive from another member.
  std::atomic<uint32_t> rings[maxMembers], sends[maxMembers][maxMembers], receives[maxMembers][maxMembers];
  SplitVote votes[maxSplits][maxMembers];
};

/// One rank's view of the file.
class World {
public:
  /// Makes a file and returns its path. Throws std::runtime_error.
  static std::string create();
  /// Joins as a rank. The last rank to join unlinks the file. Throws std::runtime_error.
  World(const std::string &path, int ranks, int rank);
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  Group &group(uint32_t index) const;
  /// Returns the communicator of a color of a split. The first member makes it.
  uint32_t findGroup(uint32_t parent, uint32_t split, int color, int size);
  /// Claims a device. Returns false if another rank of this world has claimed it.
  bool claimDevice(int rank, const CUuuid &device);
  bool isComplete() const;

  std::byte *at(uint64_t place) const { return base + place; }
  /// Allocates space for a post; 0 if there is none now. Freed after `readers` members have read it.
  uint64_t take(uint64_t bytes, const Post &post, uint64_t number, uint32_t readers);

private:
  struct Header;
  struct Block {
    uint64_t begin, end;
    const Post *post;
    uint64_t number;
    uint32_t readers;
  };
  Header &header() const;
  void reclaim();

  int ranks, rank;
  std::byte *base = nullptr;
  std::deque<Block> blocks; // of this rank, oldest first
};

} // namespace espalier::emulator
