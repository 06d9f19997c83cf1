// What ranks of several hosts tell each other at once, outside of the step: each rank contributes words to a round of
// its group, the first launcher brings a round together, and each contributor gets the words of all. So go the id of
// NCCL and what is agreed on checkpoints; never tensors.
#pragma once

#include "runtime/launch/frames.h"
#include "runtime/launch/socket.h"

#include <compare>
#include <map>
#include <poll.h>
#include <set>
#include <vector>

namespace espalier::rt::launch {

/// A round of a group: its members' checksum, its queue, and how many rounds were before.
struct RoundName {
  uint64_t group = 0, number = 0;
  uint32_t queue = 0;
  auto operator<=>(const RoundName &) const = default;
};

/// One member's words.
struct Contribution {
  RoundName round;
  uint32_t members = 1, index = 0; ///< how many, and which of them this is
  std::string words;
};

/// Those of all members.
struct Gathered {
  RoundName round;
  std::vector<std::string> words; ///< by member
};

/// As bytes and back; throw FrameError where the bytes are none.
std::string print(const Contribution &contribution);
std::string print(const Gathered &gathered);
Contribution parseContribution(std::string_view bytes);
Gathered parseGathered(std::string_view bytes);

/// The rounds that are not whole yet, at the first launcher.
class Rounds {
public:
  struct Whole {
    Gathered gathered;
    std::set<int> from; ///< who contributed
  };
  /// The round, where it is whole by that. Throws FrameError where members contradict each other.
  std::optional<Whole> add(Contribution contribution, int from);

private:
  struct Round {
    std::map<uint32_t, std::string> words; ///< by member
    uint32_t members = 0;
    std::set<int> from;
  };
  std::map<RoundName, Round> rounds;
};

/// One end of the line between a launcher and its rank: texts, in order. Never blocks.
class RankLine {
public:
  explicit RankLine(Socket socket) : socket(std::move(socket)) {}
  void send(std::string_view text);
  /// Sends what is left, and returns what has come whole.
  std::vector<std::string> turn();
  pollfd handle() const;

private:
  Socket socket;
  std::string unsent, received, error;
};

/// The two ends of a line, made before the rank's process is forked. Throws MemoryError.
std::pair<RankLine, RankLine> makeRankLine();

/// A launcher's ends of all its ranks' lines.
class RankLines {
public:
  explicit RankLines(std::vector<RankLine> lines) : lines(std::move(lines)) {}
  void addHandles(std::vector<pollfd> &handles) const;
  /// Contributions that have come, as bytes.
  std::vector<std::string> take();
  /// Gives a round that is whole, as bytes, to those who contributed to it.
  void deliver(const std::string &gathered);

private:
  std::vector<RankLine> lines;
  std::map<RoundName, std::vector<size_t>> contributors; ///< indices of lines
};

} // namespace espalier::rt::launch
