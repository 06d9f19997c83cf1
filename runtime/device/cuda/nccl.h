// NCCL's communicators of one rank, all non-blocking. An event recorded after a call covers the call's work only once
// the communicator reports that the call is done.
#pragma once

#include "format/mesh.h"
#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/device/device.h"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// The ranks of a communicator: a group on a queue, or the two ends of a channel in one direction.
struct NcclGroup {
  std::vector<int> members; ///< global ranks, ascending
  uint32_t number = 0;      ///< queue number or channel number
  int sender = -1;          ///< rank that sends on a channel; -1 for a group

  bool operator==(const NcclGroup &) const = default;
};

/// All NCCL communicators of a rank.
class NcclGroups {
public:
  /// Joins all ranks of the plan. `id` is rank 0's NCCL id. `watch` is called while waiting for other ranks.
  NcclGroups(const Nccl &nccl, const ncclUniqueId &id, int ranks, int rank, Watch watch);
  /// Aborts pending transfers.
  ~NcclGroups();
  NcclGroups(const NcclGroups &) = delete;
  NcclGroups &operator=(const NcclGroups &) = delete;

  /// Joins a group. All ranks call this for the same groups in the same order, each with its own members, or with no
  /// members if the rank is in none. Returns the communicator's number if the rank is a member.
  std::optional<uint32_t> join(NcclGroup group);

  /// Returns the number of a joined group. Throws PlanError if the group was not joined.
  uint32_t find(const NcclGroup &group) const;

  /// Enqueues a transfer on the stream, with one address per buffer. Events recorded on the stream afterwards cover the
  /// transfer.
  void start(uint32_t communicator, const TransferShape &transfer, std::span<const CUdeviceptr> from,
             std::span<const CUdeviceptr> to, CUstream stream);

  /// Runs one dummy transfer to completion. NCCL allocates and connects hosts in the first transfer of a kind; this
  /// moves that cost out of the steps. All members of the communicator must call it.
  void tryOut(uint32_t communicator, const TransferShape &transfer, Queue &queue, const Memory &room);

  /// Throws CallError if a communicator has failed.
  void check() const;
  /// Leaves the communicators together with the other ranks. All transfers must have ended.
  void leave();
  /// Aborts pending transfers without waiting for other ranks.
  void abort() noexcept;

private:
  struct Communicator {
    NcclGroup group;
    int index;                   ///< of this rank among the members
    ncclComm_t handle = nullptr; ///< must not move, because NCCL writes it from its own thread
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

/// Joins the communicators that the plan lists and warms each up. Ranks first meet through the host's communicator.
/// `context` must be current. Throws PlanError if two ranks have the same device and may not share it.
std::unique_ptr<NcclGroups> joinGroups(const Nccl &nccl, const Context &context, const pb::Plan &plan, const Mesh &mesh,
                                       const RankHost &host);

/// Throws RankStopped if another rank has failed.
void throwIfStopped(Communicator &communicator);

} // namespace espalier::rt::cuda
