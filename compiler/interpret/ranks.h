// Where the ranks of an interpreted program meet: N ranks are N threads, collectives and messages go through one
// rendezvous. It cannot hang: when a rank fails, or when all ranks wait for what nobody will bring, every wait fails.
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

class Rendezvous {
public:
  explicit Rendezvous(int ranks) : active(ranks) {}

  /// What one rank brings to a collective.
  struct Call {
    std::string group; ///< the same text on all members and on no other group
    int position;      ///< of the rank within the group
    int members;
    std::string operation; ///< op and type: members that differ in it are refused
  };
  using Parts = std::vector<std::shared_ptr<const Tensor>>;

  /// Brings `part` and returns the parts of all members by position. Calls of one group are matched in order.
  llvm::Expected<Parts> exchange(const Call &call, Tensor part);

  /// Leaves a message for rank `to`; never waits. Messages with equal ends and tag arrive in the order sent.
  void send(int from, int to, int64_t tag, Tensor value);
  llvm::Expected<Tensor> receive(int from, int to, int64_t tag);

  /// The rank is done and will bring nothing more. `hasFailed` ends all waits.
  void leave(bool hasFailed);

private:
  struct Round {
    Parts parts;
    std::string operation;
    int arrived = 0, taken = 0;
  };
  using Condition = std::function<bool()>;

  /// Waits for `condition`; an error when a rank has failed or no rank can go on. `what` is for the message.
  llvm::Error wait(std::unique_lock<std::mutex> &lock, const std::string &what, const Condition &condition);
  void failIfStuck();

  std::mutex mutex;
  std::condition_variable changed;
  int active;                                                         ///< ranks that have not left
  std::string failure;                                                ///< why waits end, empty while all is well
  std::map<const Condition *, std::string> waiting;                   ///< conditions of the ranks that wait
  std::map<std::pair<std::string, int>, int64_t> calls;               ///< by group and position: exchanges begun
  std::map<std::pair<std::string, int64_t>, Round> rounds;            ///< by group and number of the exchange
  std::map<std::tuple<int, int, int64_t>, std::deque<Tensor>> queues; ///< by from, to and tag
};

} // namespace espalier
