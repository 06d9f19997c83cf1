#include "runtime/device/cuda/nccl.h"

#include "runtime/status.h"
#include "runtime/stoppable_sleep.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <stop_token>
#include <string_view>
#include <thread>
#include <unistd.h>

namespace espalier::rt::cuda {
namespace {

constexpr int unset = INT_MIN, noColor = -1;
constexpr unsigned configMagic = 0xcafebeef, configVersion = 21801;
/// The NCCL channels per send-receive communicator. Few, because a waiting channel occupies a block of the device.
constexpr int channelsOfLines = 2;
constexpr std::chrono::microseconds sleep{10};
/// The element size of warm-up transfers.
constexpr size_t wordBytes = 4;

ncclConfig_t configOf(int channels) {
  return {sizeof(ncclConfig_t), configMagic, configVersion, /*blocking=*/0, unset, unset, channels, nullptr, unset};
}

ncclDataType_t typeOf(pb::DataType type) {
  switch (type) {
  case pb::BF16:
    return ncclBfloat16;
  case pb::F16:
    return ncclFloat16;
  case pb::I32:
    return ncclInt32;
  default:
    return ncclFloat32;
  }
}

/// Ends the process if it is not destroyed soon, because an NCCL abort may block forever on a device or a lock.
class ExitTimer {
public:
  ExitTimer() noexcept {
    try {
      thread = std::jthread([this](const std::stop_token &isOver) { end(isOver); });
    } catch (const std::exception &) {
      // The launcher of this process still ends it.
    }
  }

private:
  static constexpr std::chrono::seconds timeout{2};
  static constexpr std::string_view message = "espalier: NCCL does not abort in time; this process ends\n";

  void end(const std::stop_token &isOver) {
    if (!waiting.sleep(isOver, timeout))
      return;
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, message.data(), message.size());
    _exit(1);
  }

  StoppableSleep waiting;
  std::jthread thread;
};

void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

} // namespace

// "In progress" counts as success here: the communicator reports the result later.
template <typename Function, typename... Arguments>
void NcclGroups::call(const char *name, const Function &function, Arguments... arguments) const {
  ncclResult_t result = function.answer(arguments...);
  if (result != ncclSuccess && result != ncclInProgress)
    throw CallError(name, nccl.text(result), std::source_location::current());
}
#define CALL(symbol, ...) call(#symbol, nccl.symbol __VA_OPT__(, ) __VA_ARGS__)

void NcclGroups::settle(ncclComm_t handle) const {
  for (int polls = 0;; ++polls) {
    ncclResult_t state = ncclSuccess;
    CALL(ncclCommGetAsyncError, handle, &state);
    if (state == ncclSuccess)
      return;
    if (state != ncclInProgress)
      throw CallError("NCCL", nccl.text(state), std::source_location::current());
    watch();
    if (polls > 100)
      std::this_thread::sleep_for(sleep);
  }
}

NcclGroups::NcclGroups(const Nccl &nccl, const ncclUniqueId &id, int ranks, int rank, Watch watch)
    : nccl(nccl), rank(rank), watch(std::move(watch)) {
  ncclConfig_t config = configOf(unset);
  try {
    CALL(ncclCommInitRankConfig, &all, ranks, id, rank, &config);
    settle(all);
  } catch (...) {
    abort();
    throw;
  }
}

NcclGroups::~NcclGroups() { abort(); }

std::optional<uint32_t> NcclGroups::join(NcclGroup group) {
  auto own = std::ranges::find(group.members, rank);
  bool isMember = own != group.members.end();
  ncclConfig_t config = configOf(group.sender >= 0 ? channelsOfLines : unset);
  int color = isMember ? group.members.front() : noColor;
  int index = static_cast<int>(own - group.members.begin());
  ncclComm_t *made = &communicators.emplace_back(std::move(group), index).handle;
  CALL(ncclCommSplit, all, color, rank, made, &config);
  settle(all);
  if (!isMember) {
    communicators.pop_back();
    return std::nullopt;
  }
  settle(*made);
  return communicators.size() - 1;
}

uint32_t NcclGroups::find(const NcclGroup &group) const {
  for (size_t i = 0; i < communicators.size(); ++i)
    if (communicators[i].group == group)
      return i;
  throw PlanError(fmt::format("the plan lists no communicator of ranks {} on {} {}", group.members,
                              group.sender >= 0 ? "line" : "queue", group.number));
}

void NcclGroups::start(uint32_t communicator, const TransferShape &transfer, std::span<const CUdeviceptr> from,
                       std::span<const CUdeviceptr> to, CUstream stream) {
  const Communicator &used = communicators[communicator];
  CALL(ncclGroupStart);
  issue(used, transfer, from, to, stream);
  CALL(ncclGroupEnd);
  settle(used.handle);
}

void NcclGroups::tryOut(uint32_t communicator, const TransferShape &transfer, Queue &queue, const Memory &room) {
  CUdeviceptr from = room.at(0), to = room.at(room.bytes() / 2);
  start(communicator, transfer, {&from, 1}, {&to, 1}, queue.stream());
  queue.finish();
}

void NcclGroups::issue(const Communicator &communicator, const TransferShape &transfer,
                       std::span<const CUdeviceptr> from, std::span<const CUdeviceptr> to, CUstream stream) const {
  const CollectiveShape &shape = transfer.shape;
  size_t members = communicator.group.members.size();
  ncclRedOp_t reduction = shape.reduction == pb::MAX ? ncclMax : ncclSum;
  for (size_t i = 0; i < transfer.bytes.size(); ++i) {
    size_t elements = i < shape.elements.size() ? static_cast<size_t>(shape.elements[i]) : 0;
    switch (transfer.kind) {
    case pb::Transfer::ALL_REDUCE:
      CALL(ncclAllReduce, pointer(from[i]), pointer(to[i]), elements, typeOf(shape.type), reduction,
           communicator.handle, stream);
      break;
    case pb::Transfer::ALL_GATHER:
      CALL(ncclAllGather, pointer(from[i]), pointer(to[i]), elements / members, typeOf(shape.type), communicator.handle,
           stream);
      break;
    case pb::Transfer::REDUCE_SCATTER:
      CALL(ncclReduceScatter, pointer(from[i]), pointer(to[i]), elements / members, typeOf(shape.type), reduction,
           communicator.handle, stream);
      break;
    case pb::Transfer::SEND:
      CALL(ncclSend, pointer(from[i]), transfer.bytes[i], ncclInt8, 1 - communicator.index, communicator.handle,
           stream);
      break;
    case pb::Transfer::RECEIVE:
      CALL(ncclRecv, pointer(to[i]), transfer.bytes[i], ncclInt8, 1 - communicator.index, communicator.handle, stream);
      break;
    default:
      exchange(communicator, transfer, i, from[i], to[i], stream);
    }
  }
}

/// ALL_TO_ALL and SHIFT: all sends and receives of the member in one group call.
void NcclGroups::exchange(const Communicator &communicator, const TransferShape &transfer, size_t buffer,
                          CUdeviceptr from, CUdeviceptr to, CUstream stream) const {
  int members = static_cast<int>(communicator.group.members.size());
  size_t bytes = transfer.bytes[buffer];
  auto move = [&](int target, CUdeviceptr sent, int source, CUdeviceptr received, size_t partBytes) {
    CALL(ncclSend, pointer(sent), partBytes, ncclInt8, target, communicator.handle, stream);
    CALL(ncclRecv, pointer(received), partBytes, ncclInt8, source, communicator.handle, stream);
  };
  if (transfer.kind == pb::Transfer::SHIFT) {
    int shift = (transfer.shape.shift % members + members) % members;
    return move((communicator.index + shift) % members, from, (communicator.index + members - shift) % members, to,
                bytes);
  }
  size_t part = bytes / members;
  for (int i = 0; i < members; ++i)
    move(i, from + i * part, i, to + i * part, part);
}

void NcclGroups::check() const {
  auto expectSuccess = [&](ncclComm_t handle) {
    ncclResult_t state = ncclSuccess;
    CALL(ncclCommGetAsyncError, handle, &state);
    if (state != ncclSuccess && state != ncclInProgress)
      throw CallError("NCCL", nccl.text(state), std::source_location::current());
  };
  expectSuccess(all);
  for (const Communicator &communicator : communicators)
    expectSuccess(communicator.handle);
}

void NcclGroups::leave() {
  auto leaveOne = [&](ncclComm_t &handle) {
    CALL(ncclCommFinalize, handle);
    settle(handle);
    CALL(ncclCommDestroy, std::exchange(handle, nullptr));
  };
  for (; !communicators.empty(); communicators.pop_back())
    leaveOne(communicators.back().handle);
  leaveOne(all);
}

// All communicators are marked aborted before any is waited for, because one may wait for another. The communicator of
// all ranks comes last, because the others are split from it.
void NcclGroups::abort() noexcept {
  if (!all && communicators.empty())
    return;
  ExitTimer timer;
  nccl.ncclGroupStart.answer();
  for (Communicator &communicator : communicators)
    if (communicator.handle)
      nccl.ncclCommAbort.answer(communicator.handle);
  if (all)
    nccl.ncclCommAbort.answer(std::exchange(all, nullptr));
  nccl.ncclGroupEnd.answer();
  communicators.clear();
}

void throwIfStopped(espalier::rt::Communicator &communicator) {
  if (communicator.activity)
    communicator.activity->look();
  Ticket none;
  if (communicator.poll(none) == Progress::Stopped)
    throw RankStopped();
}

namespace {

/// The data that a rank sends to all others before they join.
struct Introduction {
  ncclUniqueId id; ///< rank 0's id is used
  char device[44]; ///< UUID of the rank's device
};

/// Checks UUIDs, because separate launchers on one machine can count the same devices.
void requireOwnDevices(const Nccl &nccl, const RankHost &host, std::span<const Introduction> all) {
  if (host.device.isShared && nccl.version >= oldestSharingNccl)
    return;
  std::map<std::string_view, int> ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    auto [first, isNew] = ranks.try_emplace(all[rank].device, rank);
    if (isNew)
      continue;
    std::string which =
        fmt::format("ranks {} and {} are both on one CUDA device ({})", first->second, rank, all[rank].device);
    if (host.device.isShared)
      throw PlanError(fmt::format("{}, which NCCL {} refuses; take NCCL {} or newer, or a device for each", which,
                                  versionText(nccl.version), versionText(oldestSharingNccl)));
    throw PlanError(fmt::format("{}: each launcher counts devices from 0; start one for all ranks of a machine, give "
                                "each its own by CUDA_VISIBLE_DEVICES, or let ranks share them by --share-devices",
                                which));
  }
}

/// Gathers rank 0's NCCL id on every rank, on a queue number above those of the plan, as barriers do.
ncclUniqueId shareId(const Nccl &nccl, const DeviceFacts &device, uint32_t queue, const RankHost &host) {
  Communicator &communicator = host.communicator;
  std::vector<int> members(communicator.ranks());
  for (size_t i = 0; i < members.size(); ++i)
    members[i] = static_cast<int>(i);
  Introduction mine = {};
  if (communicator.rank() == 0)
    nccl.ncclGetUniqueId(&mine.id);
  device.uuid().copy(mine.device, sizeof mine.device - 1);
  void *own = communicator.allocate(sizeof mine), *all = communicator.allocate(members.size() * sizeof mine);
  std::memcpy(own, &mine, sizeof mine);
  CollectiveShape shape = {.kind = pb::Transfer::ALL_GATHER,
                           .type = pb::I32,
                           .elements = {static_cast<int64_t>(members.size() * sizeof mine / 4)}};
  Ticket ticket = communicator.startCollective(communicator.joinGroup(members, queue), shape, &own, &all);
  communicator.wait(ticket, host.spins);
  std::vector<Introduction> introductions(members.size());
  std::memcpy(introductions.data(), all, members.size() * sizeof mine);
  requireOwnDevices(nccl, host, introductions);
  return introductions.front().id;
}

/// Returns the ranks of a plan's communicator. For a channel that this rank is no end of, the members do not matter.
NcclGroup groupOf(const pb::Plan &plan, const Mesh &mesh, int rank, const pb::Communicator &communicator) {
  if (!communicator.is_line())
    return {mesh.members(rank, plan.groups(communicator.group())), communicator.queue()};
  int sender = mesh.peer(rank, communicator.sender()), receiver = mesh.peer(rank, communicator.receiver());
  return {{std::min(sender, receiver), std::max(sender, receiver)}, communicator.line(), sender};
}

/// Returns one minimal transfer of each kind that the plan does on a communicator. Each kind is needed, because a SHIFT
/// uses other connections than a ring.
std::vector<TransferShape> usesOf(const pb::Plan &plan, const Mesh &mesh, int rank, const NcclGroup &group) {
  if (group.sender >= 0)
    return {{.kind = rank == group.sender ? pb::Transfer::SEND : pb::Transfer::RECEIVE, .bytes = {wordBytes}}};
  std::map<std::pair<pb::Transfer::Kind, int32_t>, TransferShape> uses;
  auto elements = static_cast<int64_t>(group.members.size());
  for (const pb::Transfer &transfer : plan.transfers()) {
    bool isCollective = transfer.kind() <= pb::Transfer::SHIFT;
    if (isCollective && transfer.queue() == group.number &&
        mesh.members(rank, plan.groups(transfer.group())) == group.members)
      uses[{transfer.kind(), transfer.shift()}] = {
          .kind = transfer.kind(),
          .shape = {.kind = transfer.kind(), .elements = {elements}, .shift = transfer.shift()},
          .bytes = {wordBytes * group.members.size()}};
  }
  std::vector<TransferShape> list;
  for (const auto &[key, use] : uses)
    list.push_back(use);
  return list;
}

} // namespace

std::unique_ptr<NcclGroups> joinGroups(const Nccl &nccl, const Context &context, const pb::Plan &plan, const Mesh &mesh,
                                       const RankHost &host) {
  int rank = host.communicator.rank();
  ncclUniqueId id = shareId(nccl, context, plan.queues_size(), host);
  Watch watch = [&communicator = host.communicator] { throwIfStopped(communicator); };
  // Declared first to outlive the communicators, because memory must not be freed while in use.
  Queue queue(context.driver);
  queue.watch = watch;
  Memory room(context, queue, /*arenaBytes=*/2 * wordBytes * mesh.ranks(), /*workspaceBytes=*/0);
  auto groups = std::make_unique<NcclGroups>(nccl, id, mesh.ranks(), rank, watch);
  for (const pb::Communicator &communicator : plan.communicators()) {
    NcclGroup group = groupOf(plan, mesh, rank, communicator);
    if (group.members.size() == 1 && plan.groups(communicator.group()).stages().empty())
      continue;
    std::optional<uint32_t> joined = groups->join(group);
    if (joined && group.members.size() > 1)
      for (const TransferShape &use : usesOf(plan, mesh, rank, group))
        groups->tryOut(*joined, use, queue, room);
  }
  return groups;
}

} // namespace espalier::rt::cuda
