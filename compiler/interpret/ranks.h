// Communication between the ranks of an interpreted program. N ranks are N threads that share one rendezvous. A program
// cannot hang: if a rank fails or all ranks wait for each other, every wait fails.
#pragma once

#include "compiler/interpret/tensor.h"

#include "llvm/Support/Error.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace espalier {

/// The shared state of all ranks' collectives and messages.
class Rendezvous {
public:
  explicit Rendezvous(int ranks) : active(ranks) {}

  /// The description of a collective by one rank.
  struct Call {
    std::string group; ///< unique name of the group, equal on all its members
    int position;      ///< of the rank within the group
    int members;
    std::string operation; ///< op and type, which must be equal on all members
  };
  using Parts = std::vector<std::shared_ptr<const Tensor>>;

  /// Contributes `part` and returns the parts of all members by position. Calls of one group match in order.
  llvm::Expected<Parts> exchange(const Call &call, Tensor part);

  /// Sends a message to rank `to` without waiting. Messages with equal ends and tag arrive in order.
  void send(int from, int to, int64_t tag, Tensor value);
  /// Waits for a message.
  llvm::Expected<Tensor> receive(int from, int to, int64_t tag);

  /// Marks the rank as finished. `hasFailed` fails all waits of the other ranks.
  void leave(bool hasFailed);

private:
  struct Round {
    Parts parts;
    std::string operation;
    int arrived = 0, taken = 0;
  };
  using Condition = std::function<bool()>;

  /// Waits for `condition`. Returns an error if a rank has failed or all ranks are stuck. `what` describes the wait in
  /// messages.
  llvm::Error wait(std::unique_lock<std::mutex> &lock, const std::string &what, const Condition &condition);
  void failIfStuck();

  std::mutex mutex;
  std::condition_variable changed;
  int active;                                                         ///< ranks that have not left
  std::string failure;                                                ///< why waits fail; empty otherwise
  std::map<const Condition *, std::string> waiting;                   ///< conditions of the waiting ranks
  std::map<std::pair<std::string, int>, int64_t> calls;               ///< keyed by group and position: collectives
                                                                      ///< started
  std::map<std::pair<std::string, int64_t>, Round> rounds;            ///< keyed by group and number of the collective
  std::map<std::tuple<int, int, int64_t>, std::deque<Tensor>> queues; ///< keyed by sender, receiver and tag
};

} // namespace espalier
