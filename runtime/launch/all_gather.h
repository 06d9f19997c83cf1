// All-gathers of messages between ranks of several hosts, outside of the step. Each rank contributes a message to an
// all-gather of its group. The first launcher collects them and returns all messages to each contributor. They carry
// NCCL's ids and agreements on checkpoints, never tensors.
#pragma once

#include "runtime/launch/frames.h"
#include "runtime/launch/socket.h"

#include <compare>
#include <map>
#include <poll.h>
#include <set>
#include <vector>

namespace espalier::rt::launch {

/// Identifies an all-gather: the checksum of the group's members, the queue, and the number of earlier all-gathers.
struct AllGatherName {
  uint64_t group = 0, number = 0;
  uint32_t queue = 0;
  auto operator<=>(const AllGatherName &) const = default;
};

/// One member's message.
struct Contribution {
  AllGatherName round;
  uint32_t members = 1, index = 0; ///< number of members, and the index of this one
  std::string message;
};

/// The messages of all members.
struct Gathered {
  AllGatherName round;
  std::vector<std::string> messages; ///< by member
};

/// Convert to bytes and back. The parse functions throw FrameError for malformed bytes.
std::string print(const Contribution &contribution);
std::string print(const Gathered &gathered);
Contribution parseContribution(std::string_view bytes);
Gathered parseGathered(std::string_view bytes);

/// The incomplete all-gathers, on the first launcher.
class AllGathers {
public:
  /// A complete all-gather, and the members that contributed to it.
  struct Whole {
    Gathered gathered;
    std::set<int> from; ///< the contributors
  };
  /// Adds a contribution. Returns the all-gather if it is complete now. Throws FrameError if members contradict each
  /// other.
  std::optional<Whole> add(Contribution contribution, int from);

private:
  struct Round {
    std::map<uint32_t, std::string> messages; ///< by member
    uint32_t members = 0;
    std::set<int> from;
  };
  std::map<AllGatherName, Round> rounds;
};

/// One end of the channel between a launcher and its rank. Transfers texts in order and never blocks.
class RankChannel {
public:
  /// Takes ownership of the socket.
  explicit RankChannel(Socket socket) : socket(std::move(socket)) {}
  /// Sends a text, or buffers it.
  void send(std::string_view text);
  /// Sends buffered bytes, and returns the texts that have arrived completely.
  std::vector<std::string> turn();
  /// Returns the handle and the events to poll for.
  pollfd handle() const;

private:
  Socket socket;
  std::string unsent, received, error;
};

/// Creates the two ends of a channel. Call this function before the rank's process is forked. Throws MemoryError.
std::pair<RankChannel, RankChannel> makeRankChannel();

/// A launcher's ends of the channels to all its ranks.
class RankChannels {
public:
  /// Takes ownership of the channels' ends.
  explicit RankChannels(std::vector<RankChannel> channels) : channels(std::move(channels)) {}
  /// Adds the handles of all channels.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Returns the contributions that have arrived, as bytes.
  std::vector<std::string> take();
  /// Sends a complete all-gather, as bytes, to its contributors.
  void deliver(const std::string &gathered);

private:
  std::vector<RankChannel> channels;
  std::map<AllGatherName, std::vector<size_t>> contributors; ///< indices of channels
};

} // namespace espalier::rt::launch
