// NCCL's communicators of one rank, none of which blocks: a call has done its part only when the communicator says so,
// and an event recorded before would not stand behind it.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// Whose ranks a communicator joins: a group on a queue, or the two ends of a line in one direction.
struct NcclGroup {
  std::vector<int> members; ///< global ranks, ascending
  uint32_t number = 0;      ///< queue, or line
  int sender = -1;          ///< of a line

  bool operator==(const NcclGroup &) const = default;
};

class NcclGroups {
public:
  /// Joins all ranks of the plan. `id` is what rank 0 asked NCCL for. `watch` is called while others are waited for.
  NcclGroups(const Nccl &nccl, const ncclUniqueId &id, int ranks, int rank, Watch watch);
  /// Ends what still runs.
  ~NcclGroups();
  NcclGroups(const NcclGroups &) = delete;
  NcclGroups &operator=(const NcclGroups &) = delete;

  /// All ranks say the same groups in the same order, each with its own members or, where the rank is none of any,
  /// none. Returns the communicator, if the rank is in it.
  std::optional<uint32_t> join(NcclGroup group);

  /// The communicator of a group that was joined; throws PlanError where there is none.
  uint32_t find(const NcclGroup &group) const;

  /// Puts a transfer into the stream: addresses, one per buffer. What is recorded on the stream afterwards stands
  /// behind it.
  void start(uint32_t communicator, const TransferShape &transfer, std::span<const CUdeviceptr> from,
             std::span<const CUdeviceptr> to, CUstream stream);

  /// Does one transfer whose bytes matter to nobody, to its end: with the first of a kind NCCL takes memory and hosts
  /// wait for each other, which belongs into no step. All members of the communicator do the same.
  void tryOut(uint32_t communicator, const TransferShape &transfer, Queue &queue, const Memory &room);

  /// Throws CallError where a communicator has failed.
  void check() const;
  /// Once all transfers have ended: leaves together with the others.
  void leave();
  /// Ends what still runs, whatever the others do.
  void abort() noexcept;

private:
  struct Communicator {
    NcclGroup group;
    int index;                   ///< of this rank among the members
    ncclComm_t handle = nullptr; ///< NCCL writes it from a thread of its own: it keeps its place
  };

  template <typename Function, typename... Arguments>
  void call(const char *name, const Function &function, Arguments... arguments) const;
  void settle(ncclComm_t handle) const;
  void issue(const Communicator &communicator, const TransferShape &transfer, std::span<const CUdeviceptr> from,
             std::span<const CUdeviceptr> to, CUstream stream) const;
  void exchange(const Communicator &communicator, const TransferShape &transfer, size_t buffer, CUdeviceptr from,
                CUdeviceptr to, CUstream stream) const;

  const Nccl &nccl;
  const int rank;
  const Watch watch;
  ncclComm_t all = nullptr;
  std::deque<Communicator> communicators;
};

/// Joins the communicators that the plan lists, and tries out what it does on each; the ranks meet through the host's.
/// `context` is current. Throws PlanError where another rank has the same device and may not.
std::unique_ptr<NcclGroups> joinGroups(const Nccl &nccl, const Context &context, const pb::Plan &plan, const Mesh &mesh,
                                       const RankHost &host);

/// Throws RankStopped where another rank has failed.
void throwIfStopped(Communicator &communicator);

} // namespace espalier::rt::cuda
