// A test double of libnccl.so.2 for non-blocking communicators. Every operation stays "in progress" for a few queries.
// Transfers are enqueued on their stream only then, as in the real library, so an event recorded earlier does not cover
// them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>
#include <utility>

#include "test/emulator/device.h"
#include "test/emulator/mutant.h"
#include "test/emulator/nccl_calls.h"
#include "test/emulator/nccl_transfer.h"

using namespace espalier::emulator;

struct ncclComm {
  std::shared_ptr<Member> member;
  int device;
  ncclResult_t state = ncclInProgress;
  int questions = 2;            // queries still answered "in progress"
  int64_t bytes = 0;            // device memory
  std::function<bool()> finish; // completes the operation; returns whether it is done
};

namespace {

constexpr int questionsAtFirst = 2, questionsOfCalls = 2;
constexpr int64_t communicatorBytes = 4 << 20, connectionBytes = 1 << 20; // device memory
constexpr int usualVersion = 22809, firstSharing = 23000; // the first version in which ranks may share a device

/// ESPALIER_EMULATOR_NCCL_VERSION overrides the version.
int version() {
  const char *wanted = std::getenv("ESPALIER_EMULATOR_NCCL_VERSION");
  return wanted ? std::atoi(wanted) : usualVersion;
}

/// Returns whether several ranks may use one device.
bool allowsSharing() {
  const char *wanted = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version() >= firstSharing && wanted && std::atoi(wanted) != 0;
}

std::mutex lock;
std::string lastError;

std::set<std::unique_ptr<ncclComm>> &communicators() {
  static auto *all = new std::set<std::unique_ptr<ncclComm>>;
  return *all;
}

ncclComm *find(ncclComm_t handle) {
  for (const auto &one : communicators())
    if (one.get() == handle)
      return one.get();
  return nullptr;
}

ncclResult_t refuse(ncclResult_t result, const std::string &why) {
  lastError = why;
  return result;
}

void begin(ncclComm &communicator, int questions, std::function<bool()> finish) {
  communicator.state = ncclInProgress;
  communicator.questions = questions;
  communicator.finish = std::move(finish);
}

/// Advances the pending operation.
void settle(ncclComm &communicator) {
  if (communicator.state != ncclInProgress || communicator.questions-- > 0)
    return;
  communicator.questions = 0;
  try {
    if (communicator.finish())
      communicator.state = ncclSuccess;
  } catch (const std::exception &error) {
    communicator.state = refuse(ncclInternalError, error.what());
  }
}

/// Checks that a communicator is valid and has no pending operation.
ncclResult_t check(ncclComm_t handle) {
  ncclComm *communicator = find(handle);
  if (!communicator)
    return refuse(ncclInvalidArgument, "no such communicator, or one that is gone");
  if (communicator->state == ncclInProgress)
    return refuse(ncclInvalidArgument, "the call before is still in progress");
  return communicator->state;
}

ncclResult_t checkConfig(const ncclConfig_t *config) {
  if (!config || config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, cgaClusterSize))
    return refuse(ncclInvalidArgument, "a configuration that NCCL_CONFIG_INITIALIZER has not made");
  if (config->blocking != 0)
    return refuse(ncclInvalidUsage, "the double has communicators only that do not block");
  bool hasChannels = config->size >= offsetof(ncclConfig_t, netName) && config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (hasChannels && (config->maxCTAs < 1 || config->maxCTAs > 32))
    return refuse(ncclInvalidArgument, "maxCTAs is not in 1 .. 32");
  return ncclSuccess;
}

/// Starts a thread that advances transfers while the host does other work, as on a device.
void startCarrying() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::thread([] {
      while (true)
        std::this_thread::sleep_for(std::chrono::microseconds(carryOn() ? 50 : 1000));
    }).detach();
  });
}

struct Call {
  ncclComm *communicator;
  CUstream stream;
  Part part;
};
thread_local int groupDepth = 0;
thread_local ncclResult_t groupError = ncclSuccess; // of the first rejected call
thread_local std::vector<Call> groupCalls;

bool enqueue(CUstream stream, const std::shared_ptr<Transfer> &transfer) {
  Operation operation = {transfer->name(), [transfer] { return transfer->run(); },
                         [transfer] { return transfer->poll(); }};
  if (enqueueFor(stream, std::move(operation)) != CUDA_SUCCESS)
    throw std::runtime_error("the stream is none");
  return true;
}

void take(ncclComm &communicator, int64_t bytes) {
  communicator.bytes += bytes;
  reserveFor(communicator.device, bytes);
}

using Flags = std::vector<const std::atomic<uint32_t> *>;

/// Connects lazily, as the real library does. The first collective, and the first send or receive between two ranks,
/// allocates memory and waits until the other ranks' hosts reach theirs. Returns the condition for this.
Flags connect(ncclComm &communicator, const std::vector<Part> &parts) {
  const Member &member = *communicator.member;
  Group &group = member.world->group(member.group);
  Flags others;
  auto meet = [&](std::atomic<uint32_t> &own) {
    if (own.exchange(1) == 0)
      take(communicator, connectionBytes);
  };
  for (const Part &part : parts)
    if (part.kind == Part::Send) {
      meet(group.sends[member.rank][part.peer]);
      others.push_back(&group.receives[part.peer][member.rank]);
    } else if (part.kind == Part::Receive) {
      meet(group.receives[member.rank][part.peer]);
      others.push_back(&group.sends[part.peer][member.rank]);
    } else {
      meet(group.rings[member.rank]);
      for (int rank = 0; rank < member.size; ++rank)
        others.push_back(&group.rings[rank]);
    }
  return others;
}

/// All calls of a group on one communicator form one transfer on one stream.
ncclResult_t issue(std::vector<Call> calls) {
  std::vector<ncclComm *> order;
  std::map<ncclComm *, std::vector<Part>> parts;
  std::map<ncclComm *, CUstream> streams;
  for (Call &call : calls) {
    if (!parts.contains(call.communicator))
      order.push_back(call.communicator);
    parts[call.communicator].push_back(std::move(call.part));
    if (streams.emplace(call.communicator, call.stream).first->second != call.stream)
      return refuse(ncclInvalidUsage, "the double takes calls of one communicator in one group on one stream only");
  }
  for (ncclComm *communicator : order) {
    Flags others = connect(*communicator, parts[communicator]);
    auto transfer = std::make_shared<Transfer>(communicator->member, std::move(parts[communicator]));
    begin(*communicator, questionsOfCalls, [others, transfer, stream = streams[communicator]] {
      return std::ranges::all_of(others, [](auto *isThere) { return isThere->load() != 0; }) &&
             enqueue(stream, transfer);
    });
  }
  return order.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t checkPart(const ncclComm &communicator, const Part &part) {
  if (!bytesOf(part.type))
    return refuse(ncclInvalidArgument, "a type that the double does not know");
  if (part.reduction != ncclSum && part.reduction != ncclMax)
    return refuse(ncclInvalidArgument, "a reduction that the double does not know");
  bool isLacking = (part.kind != Part::Receive && !part.from) || (part.kind != Part::Send && !part.to);
  if (part.count > 0 && isLacking)
    return refuse(ncclInvalidArgument, "a buffer is null");
  bool hasPeer = part.kind == Part::Send || part.kind == Part::Receive;
  if (hasPeer && (part.peer < 0 || part.peer >= communicator.member->size))
    return refuse(ncclInvalidArgument,
                  "peer " + std::to_string(part.peer) + " of " + std::to_string(communicator.member->size) + " ranks");
  if (hasPeer && part.peer == communicator.member->rank && groupDepth == 0)
    return refuse(ncclInvalidUsage, "a rank sends to itself outside of a group");
  return ncclSuccess;
}

ncclResult_t call(ncclComm_t handle, CUstream stream, Part part) {
  std::lock_guard held(lock);
  ncclResult_t result = check(handle);
  if (result == ncclSuccess)
    result = checkPart(*handle, part);
  if (result != ncclSuccess) {
    if (groupDepth > 0 && groupError == ncclSuccess)
      groupError = result;
    return result;
  }
  if (part.kind <= Part::ReduceScatter && part.count > 1 && isMutant("short_share"))
    --part.count;
  groupCalls.push_back({handle, stream, std::move(part)});
  return groupDepth > 0 ? ncclSuccess : issue(std::exchange(groupCalls, {}));
}

uint64_t address(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

/// Makes a communicator on the calling thread's device.
ncclComm *add(std::shared_ptr<Member> member, int device) {
  auto fresh = std::make_unique<ncclComm>();
  fresh->member = std::move(member);
  fresh->device = device;
  take(*fresh, communicatorBytes);
  ncclComm *handle = fresh.get();
  communicators().insert(std::move(fresh));
  return handle;
}

std::shared_ptr<Member> makeMember(std::shared_ptr<World> world, uint32_t group, int rank, int size) {
  auto member = std::make_shared<Member>();
  member->world = std::move(world);
  member->group = group;
  member->rank = rank;
  member->size = size;
  return member;
}

/// Completes a split after all members have called it: makes the communicator of this rank's color.
bool finishSplit(ncclComm &parent, uint32_t split, ncclComm_t *child) {
  const Member &member = *parent.member;
  SplitVote *votes = member.world->group(member.group).votes[split];
  for (int rank = 0; rank < member.size; ++rank)
    if (!votes[rank].isCast)
      return false;
  int color = votes[member.rank].color;
  if (color == NCCL_SPLIT_NOCOLOR)
    return true;
  std::vector<std::pair<int, int>> members; // key, rank
  for (int rank = 0; rank < member.size; ++rank)
    if (votes[rank].color == color)
      members.emplace_back(votes[rank].key, rank);
  std::sort(members.begin(), members.end());
  auto own = std::find(members.begin(), members.end(), std::pair(votes[member.rank].key, member.rank));
  uint32_t group = member.world->findGroup(member.group, split, color, static_cast<int>(members.size()));
  *child =
      add(makeMember(member.world, group, static_cast<int>(own - members.begin()), static_cast<int>(members.size())),
          parent.device);
  begin(**child, questionsAtFirst, [] { return true; });
  return true;
}

ncclResult_t remove(ncclComm_t handle) {
  reserveFor(handle->device, -handle->bytes);
  std::erase_if(communicators(), [&](const auto &one) { return one.get() == handle; });
  return ncclSuccess;
}

template <class T> ncclResult_t tell(ncclComm_t handle, T *value, T (*of)(const ncclComm &)) {
  std::lock_guard held(lock);
  ncclResult_t result = check(handle);
  if (result == ncclSuccess && value)
    *value = of(*handle);
  return result == ncclSuccess && !value ? ncclInvalidArgument : result;
}

} // namespace

extern "C" {

EMULATOR_EXPORT ncclResult_t ncclGetVersion(int *number) {
  if (!number)
    return ncclInvalidArgument;
  *number = version();
  return ncclSuccess;
}

EMULATOR_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  }
  return "unknown result code";
}

EMULATOR_EXPORT const char *ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  std::lock_guard held(lock);
  text = lastError;
  return text.c_str();
}

EMULATOR_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  std::lock_guard held(lock);
  if (!id)
    return ncclInvalidArgument;
  try {
    std::string path = World::create();
    *id = {};
    if (path.size() >= sizeof id->internal)
      return refuse(ncclSystemError, "the path is too long: " + path);
    std::memcpy(id->internal, path.data(), path.size());
  } catch (const std::exception &error) {
    return refuse(ncclSystemError, error.what());
  }
  return ncclSuccess;
}

EMULATOR_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank,
                                                    ncclConfig_t *config) {
  int device = -1;
  CUuuid uuid;
  if (cuCtxGetDevice(&device) != CUDA_SUCCESS || cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  startCarrying();
  std::lock_guard held(lock);
  if (!communicator || ranks < 1 || ranks > maxMembers || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (groupDepth > 0)
    return refuse(ncclInvalidUsage, "the double makes no communicators in groups");
  if (ncclResult_t result = checkConfig(config); result != ncclSuccess)
    return result;
  id.internal[sizeof id.internal - 1] = '\0';
  try {
    auto world = std::make_shared<World>(id.internal, ranks, rank);
    if (!world->claimDevice(rank, uuid) && !allowsSharing())
      return refuse(ncclInvalidUsage, "duplicate GPU detected: rank " + std::to_string(rank) + " is on device " +
                                          std::to_string(device) + " of this host, as another one is");
    *communicator = add(makeMember(world, 0, rank, ranks), device);
    begin(**communicator, questionsAtFirst, [world] { return world->isComplete(); });
  } catch (const std::exception &error) {
    return refuse(ncclSystemError, error.what());
  }
  return ncclInProgress;
}

EMULATOR_EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator,
                                           ncclConfig_t *config) {
  std::lock_guard held(lock);
  if (ncclResult_t result = check(parent); result != ncclSuccess)
    return result;
  if (!communicator || color < NCCL_SPLIT_NOCOLOR)
    return refuse(ncclInvalidArgument, "no place for the communicator, or color " + std::to_string(color));
  if (groupDepth > 0)
    return refuse(ncclInvalidUsage, "the double makes no communicators in groups");
  if (config)
    if (ncclResult_t result = checkConfig(config); result != ncclSuccess)
      return result;
  Member &member = *parent->member;
  if (member.splits == maxSplits)
    return refuse(ncclInternalError, "the double splits a communicator " + std::to_string(maxSplits) + " times");
  uint32_t split = member.splits++;
  SplitVote &vote = member.world->group(member.group).votes[split][member.rank];
  vote.color = color;
  vote.key = key;
  vote.isCast = 1;
  *communicator = nullptr; // null until the parent reports success
  begin(*parent, questionsOfCalls, [=] { return finishSplit(*parent, split, communicator); });
  return ncclInProgress;
}

EMULATOR_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  std::lock_guard held(lock);
  if (ncclResult_t result = check(communicator); result != ncclSuccess)
    return result;
  begin(*communicator, questionsOfCalls, [member = communicator->member] { return member->unfinished == 0; });
  return ncclInProgress;
}

EMULATOR_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  std::lock_guard held(lock);
  if (ncclResult_t result = check(communicator); result != ncclSuccess)
    return result;
  if (communicator->member->unfinished > 0)
    return refuse(ncclInvalidUsage, "transfers of the communicator are not done: finalize it first");
  return remove(communicator);
}

// Other ranks are not notified: they wait forever, as on devices that share a host.
EMULATOR_EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  std::lock_guard held(lock);
  if (!find(communicator))
    return refuse(ncclInvalidArgument, "no such communicator, or one that is gone");
  if (std::getenv("ESPALIER_EMULATOR_NCCL_ABORT_HANGS"))
    while (true)
      pause();
  communicator->member->isAborted = true;
  return remove(communicator);
}

EMULATOR_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error) {
  std::lock_guard held(lock);
  if (!find(communicator) || !error)
    return refuse(ncclInvalidArgument, "no such communicator, or one that is gone");
  settle(*communicator);
  *error = communicator->state;
  return ncclSuccess;
}

EMULATOR_EXPORT ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count) {
  return tell(communicator, count, +[](const ncclComm &one) { return one.member->size; });
}
EMULATOR_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank) {
  return tell(communicator, rank, +[](const ncclComm &one) { return one.member->rank; });
}
EMULATOR_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device) {
  return tell(communicator, device, +[](const ncclComm &one) { return one.device; });
}

EMULATOR_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                           ncclRedOp_t reduction, ncclComm_t communicator, CUstream stream) {
  return call(communicator, stream, {Part::AllReduce, address(from), address(to), count, type, reduction});
}
EMULATOR_EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                                           ncclComm_t communicator, CUstream stream) {
  return call(communicator, stream, {Part::AllGather, address(from), address(to), count, type});
}
EMULATOR_EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                               ncclRedOp_t reduction, ncclComm_t communicator, CUstream stream) {
  return call(communicator, stream, {Part::ReduceScatter, address(from), address(to), count, type, reduction});
}
EMULATOR_EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                                      ncclComm_t communicator, CUstream stream) {
  return call(communicator, stream, {Part::Send, address(from), 0, count, type, ncclSum, peer});
}
EMULATOR_EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                                      CUstream stream) {
  return call(communicator, stream, {Part::Receive, 0, address(to), count, type, ncclSum, peer});
}

EMULATOR_EXPORT ncclResult_t ncclGroupStart() {
  if (groupDepth++ == 0)
    groupError = ncclSuccess;
  return ncclSuccess;
}
EMULATOR_EXPORT ncclResult_t ncclGroupEnd() {
  std::lock_guard held(lock);
  if (groupDepth == 0)
    return refuse(ncclInvalidUsage, "a group ends that was not begun");
  if (--groupDepth > 0)
    return ncclSuccess;
  std::vector<Call> calls = std::exchange(groupCalls, {});
  return groupError != ncclSuccess ? groupError : issue(std::move(calls));
}

} // extern "C"
