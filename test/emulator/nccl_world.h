// What the ranks of one ncclGetUniqueId share, processes or threads: a file of memory with communicators, posts of
// their members, and the bytes that these send.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "test/emulator/cuda_types.h"

namespace espalier::emulator {

constexpr int maxMembers = 16;        // of a world
constexpr uint32_t maxGroups = 256;   // communicators of a world, the world itself among them
constexpr uint32_t maxSplits = 256;   // of a communicator
constexpr uint64_t postsInFlight = 8; // of a member to one other, or to all

/// What a member does: one operation, or its side of it.
struct Post {
  std::atomic<uint64_t> posted; // the number of the operation that stands here, from 1
  std::atomic<uint32_t> taken;  // members that have read it
  uint32_t kind;
  int type, reduction;
  uint64_t count;
  uint64_t bytes, place; // in the file
};

/// A member's posts to another one, or, at the index maxMembers, to all.
struct Line {
  Post posts[postsInFlight];
};

struct SplitVote {
  std::atomic<uint32_t> isCast;
  int color, key;
};

/// A communicator as all its members see it.
struct Group {
  uint32_t parent, split; // the world: its own parent
  int color, size;
  std::atomic<uint32_t> joined;
  Line lines[maxMembers][maxMembers + 1];
  // Whether the host of a member has come to its first collective, its first send and receive to and from another.
  std::atomic<uint32_t> rings[maxMembers], sends[maxMembers][maxMembers], receives[maxMembers][maxMembers];
  SplitVote votes[maxSplits][maxMembers];
};

/// One rank's view of the file.
class World {
public:
  /// Makes a file and gives its path. Throws std::runtime_error.
  static std::string create();
  /// Joins the file as a rank: the last one that does takes its name away. Throws std::runtime_error.
  World(const std::string &path, int ranks, int rank);
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  Group &group(uint32_t index) const;
  /// The communicator of a colour of a split: found by its first member, made by it.
  uint32_t findGroup(uint32_t parent, uint32_t split, int color, int size);
  /// Whether no other rank of this world has said the same.
  bool claimDevice(int rank, const CUuuid &device);
  bool isComplete() const;

  std::byte *at(uint64_t place) const { return base + place; }
  /// Room for a post's bytes; 0 where there is none now. Taken back once `readers` members have read it.
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
