// Tests the libnccl double through its C interface, with ranks as processes and as threads. Compiled against the real
// header if it is installed.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#ifdef ESPALIER_NCCL_HEADER
#include <cuda.h>
#include <nccl.h>
const ncclConfig_t unsetConfig = NCCL_CONFIG_INITIALIZER;
#else
#include "test/emulator/cuda_calls.h"
#include "test/emulator/nccl_calls.h"
#define cuMemAlloc cuMemAlloc_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#endif

#include "test/emulator/numbers.h"
#include "test/sanitizer.h"

namespace espalier::emulator {
__attribute__((visibility("default"))) int forgetFaults();

namespace {

using testing::ElementsAre;

// Initialized before any call that reads the devices of the process.
[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "4", /*overwrite=*/1);

/// A rank with its device, a stream, device memory, and the communicator of all ranks.
class Rank {
public:
  Rank(int rank, int ranks, const ncclUniqueId &id, int device) : rank(rank), ranks(ranks) {
    CUcontext context;
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&room, roomBytes), CUDA_SUCCESS);
    ncclConfig_t config = unsetConfig;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&all, ranks, id, rank, &config), ncclInProgress);
    EXPECT_EQ(settle(all), ncclSuccess);
  }

  /// Polls until the result is not "in progress".
  static ncclResult_t settle(ncclComm_t communicator) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
      if (ncclResult_t result = ncclCommGetAsyncError(communicator, &state); result != ncclSuccess)
        return result;
    return state;
  }
  /// Polls an accepted call until it is enqueued on its stream.
  void issued(ncclResult_t result) const {
    EXPECT_EQ(result, ncclInProgress);
    EXPECT_EQ(settle(all), ncclSuccess);
  }
  ncclComm_t split(int color, int key) const {
    ncclComm_t child = all;
    EXPECT_EQ(ncclCommSplit(all, color, key, &child, nullptr), ncclInProgress);
    EXPECT_EQ(child, nullptr);
    EXPECT_EQ(settle(all), ncclSuccess);
    if (child)
      EXPECT_EQ(settle(child), ncclSuccess);
    return child;
  }

  CUdeviceptr at(size_t offset) const { return room + offset; }
  void *place(size_t offset) const { return reinterpret_cast<void *>(room + offset); }
  template <class T> void put(size_t offset, const std::vector<T> &values) const {
    EXPECT_EQ(cuMemcpyHtoD(at(offset), values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
  }
  template <class T> std::vector<T> get(size_t offset, size_t count) const {
    std::vector<T> values(count);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoH(values.data(), at(offset), count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }
  /// Returns whether the stream's work ends within a short time.
  bool ends(CUstream asked) const {
    for (int i = 0; i < 200; ++i) {
      if (cuStreamQuery(asked) == CUDA_SUCCESS)
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static constexpr size_t roomBytes = 1 << 20;
  const int rank, ranks;
  CUstream stream = nullptr;
  CUdeviceptr room = 0;
  ncclComm_t all = nullptr;
};

using Body = std::function<void(Rank &)>;

/// Ends a rank process. The exit status is 1 if the test failed in this process.
[[noreturn]] void leave() {
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

void expectEnds(const std::vector<pid_t> &processes) {
  for (pid_t process : processes) {
    int status = -1;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
}

ncclUniqueId makeId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

/// Runs one process per rank.
void inProcesses(int ranks, const Body &body) {
  ncclUniqueId id = makeId();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(fork());
    if (processes.back() == 0) {
      alarm(30 * slowdown);
      Rank self(rank, ranks, id, /*device=*/rank);
      body(self);
      leave();
    }
  }
  expectEnds(processes);
  EXPECT_NE(access(id.internal, F_OK), 0) << id.internal << " is left behind";
}

/// Runs one thread per rank, in one process.
void inThreads(int ranks, const Body &body) {
  ncclUniqueId id = makeId();
  pid_t process = fork();
  if (process == 0) {
    alarm(30 * slowdown);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Rank self(rank, ranks, id, /*device=*/rank);
        body(self);
      });
    for (std::thread &thread : threads)
      thread.join();
    leave();
  }
  expectEnds({process});
}

struct Mode {
  const char *name;
  int ranks;
  void (*run)(int ranks, const Body &body);
};

class Nccl : public testing::TestWithParam<Mode> {
protected:
  void inRanks(const Body &body) const { GetParam().run(GetParam().ranks, body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl,
                         testing::Values(Mode{"TwoProcesses", 2, inProcesses}, Mode{"FourProcesses", 4, inProcesses},
                                         Mode{"FourThreads", 4, inThreads}),
                         [](const auto &info) { return info.param.name; });

/// Returns values whose sum depends on the order of additions.
float valueOf(int rank, size_t i) {
  const float values[] = {1e8f, 1.25f, -1e8f, 3.5f};
  return values[rank] + static_cast<float>(i);
}

std::vector<float> valuesOf(int rank, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(valueOf(rank, i));
  return values;
}

/// Sums the elements of all ranks in ring order: part r begins after rank r.
std::vector<float> sums(int ranks, size_t all, size_t first, size_t count) {
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) {
    size_t part = (first + i) * ranks / all;
    result[i] = valueOf(static_cast<int>((part + 1) % ranks), first + i);
    for (int term = 2; term <= ranks; ++term)
      result[i] += valueOf(static_cast<int>((part + term) % ranks), first + i);
  }
  return result;
}

TEST_P(Nccl, SumsInTheOrderOfARing) {
  inRanks([](Rank &rank) {
    const size_t count = 1000;
    for (size_t to : {size_t(0), size_t(8192)}) { // in place, and not in place
      rank.put(0, valuesOf(rank.rank, count));
      rank.issued(ncclAllReduce(rank.place(0), rank.place(to), count, ncclFloat32, ncclSum, rank.all, rank.stream));
      EXPECT_EQ(rank.get<float>(to, count), sums(rank.ranks, count, 0, count));
    }
  });
}

TEST_P(Nccl, ReducesOtherTypes) {
  inRanks([](Rank &rank) {
    rank.put<int32_t>(0, {rank.rank, 7, -rank.rank});
    rank.issued(ncclAllReduce(rank.place(0), rank.place(0), 3, ncclInt32, ncclSum, rank.all, rank.stream));
    int total = rank.ranks * (rank.ranks - 1) / 2;
    EXPECT_THAT(rank.get<int32_t>(0, 3), ElementsAre(total, 7 * rank.ranks, -total));

    // Each addition is rounded. In bf16, 256 + 1 is 256, so only the part that adds 256 last keeps the sum of the ones.
    rank.put<BF16>(0, std::vector<BF16>(rank.ranks, narrow<BF16>(rank.rank == 0 ? 256 : 1)));
    rank.issued(ncclAllReduce(rank.place(0), rank.place(0), rank.ranks, ncclBfloat16, ncclSum, rank.all, rank.stream));
    EXPECT_EQ(widen(rank.get<BF16>(0, 1)[0]), rank.ranks == 2 ? 256 : 260); // 259 between 258 and 260
    EXPECT_EQ(widen(rank.get<BF16>(0, rank.ranks).back()), 256);

    rank.put<F16>(0, {narrow<F16>(-1.0 - rank.rank), narrow<F16>(rank.rank)});
    rank.issued(ncclAllReduce(rank.place(0), rank.place(0), 2, ncclFloat16, ncclMax, rank.all, rank.stream));
    EXPECT_EQ(widen(rank.get<F16>(0, 2)[0]), -1);
    EXPECT_EQ(widen(rank.get<F16>(0, 2)[1]), rank.ranks - 1);
  });
}

TEST_P(Nccl, ScattersAndGathersInPlace) {
  inRanks([](Rank &rank) {
    const size_t part = 64, all = part * rank.ranks, own = part * rank.rank;
    rank.put(0, valuesOf(rank.rank, all));
    rank.issued(
        ncclReduceScatter(rank.place(0), rank.place(own * 4), part, ncclFloat32, ncclSum, rank.all, rank.stream));
    EXPECT_EQ(rank.get<float>(own * 4, part), sums(rank.ranks, all, own, part));
    rank.issued(ncclAllGather(rank.place(own * 4), rank.place(0), part, ncclFloat32, rank.all, rank.stream));
    EXPECT_EQ(rank.get<float>(0, all), sums(rank.ranks, all, 0, all));
  });
}

TEST_P(Nccl, GroupsOfSendsAndReceivesAdvanceTogether) {
  inRanks([](Rank &rank) {
    // Each rank sends to every rank, itself included: element i of rank j becomes element j of rank i.
    std::vector<int32_t> sent, expected;
    for (int peer = 0; peer < rank.ranks; ++peer) {
      sent.push_back(10 * rank.rank + peer);
      expected.push_back(10 * peer + rank.rank);
    }
    rank.put(0, sent);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < rank.ranks; ++peer) {
      EXPECT_EQ(ncclSend(rank.place(4 * peer), 1, ncclInt32, peer, rank.all, rank.stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(rank.place(256 + 4 * peer), 1, ncclInt32, peer, rank.all, rank.stream), ncclSuccess);
    }
    rank.issued(ncclGroupEnd());
    EXPECT_EQ(rank.get<int32_t>(256, rank.ranks), expected);
  });
}

TEST_P(Nccl, ManyTransfersInFlight) {
  inRanks([](Rank &rank) {
    int next = (rank.rank + 1) % rank.ranks, before = (rank.rank + rank.ranks - 1) % rank.ranks;
    rank.put<int32_t>(0, {rank.rank});
    for (int turn = 0; turn < 50; ++turn) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclSend(rank.place(0), 1, ncclInt32, next, rank.all, rank.stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(rank.place(4), 1, ncclInt32, before, rank.all, rank.stream), ncclSuccess);
      rank.issued(ncclGroupEnd());
      rank.issued(ncclAllReduce(rank.place(4), rank.place(0), 1, ncclInt32, ncclMax, rank.all, rank.stream));
    }
    EXPECT_EQ(rank.get<int32_t>(0, 1)[0], rank.ranks - 1);
  });
}

// A rank that waits for one transfer still executes its part of another one.
TEST_P(Nccl, TransfersOfOtherStreamsAdvance) {
  inRanks([](Rank &rank) {
    CUstream other = nullptr;
    EXPECT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ncclComm_t second = rank.split(0, rank.rank);
    rank.put<int32_t>(0, {1, 1});
    rank.issued(ncclAllReduce(rank.place(0), rank.place(0), 1, ncclInt32, ncclSum, rank.all, rank.stream));
    EXPECT_EQ(ncclAllReduce(rank.place(4), rank.place(4), 1, ncclInt32, ncclSum, second, other), ncclInProgress);
    EXPECT_EQ(Rank::settle(second), ncclSuccess);
    // Half of the ranks wait for the second transfer first.
    EXPECT_EQ(cuStreamSynchronize(rank.rank % 2 ? other : rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(rank.rank % 2 ? rank.stream : other), CUDA_SUCCESS);
    EXPECT_THAT(rank.get<int32_t>(0, 2), ElementsAre(rank.ranks, rank.ranks));
  });
}

TEST_P(Nccl, SplitsByColorInTheOrderOfKeys) {
  inRanks([](Rank &rank) {
    ncclComm_t half = rank.split(rank.rank / 2, /*key=*/-rank.rank);
    int count = 0, own = -1;
    EXPECT_EQ(ncclCommCount(half, &count), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(half, &own), ncclSuccess);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(own, rank.rank % 2 ? 0 : 1);
    // Even ranks only.
    ncclComm_t even = rank.split(rank.rank % 2 ? NCCL_SPLIT_NOCOLOR : 5, rank.rank);
    EXPECT_EQ(even == nullptr, rank.rank % 2 == 1);
    if (even) {
      rank.put<int32_t>(0, {1});
      EXPECT_EQ(ncclAllReduce(rank.place(0), rank.place(0), 1, ncclInt32, ncclSum, even, rank.stream), ncclInProgress);
      EXPECT_EQ(Rank::settle(even), ncclSuccess);
      EXPECT_THAT(rank.get<int32_t>(0, 1), ElementsAre(rank.ranks / 2));
      EXPECT_EQ(ncclCommDestroy(even), ncclSuccess);
    }
    EXPECT_EQ(ncclCommFinalize(rank.all), ncclInProgress);
    EXPECT_EQ(Rank::settle(rank.all), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(rank.all), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(rank.all), ncclInvalidArgument);
  });
}

/// Runs two processes, for effects that ranks of one process would share.
class NcclPair : public testing::Test {};

// An event recorded while the call is in progress does not cover the transfer.
TEST_F(NcclPair, AnEventRecordedTooEarlyIsARace) {
  inProcesses(2, [](Rank &rank) {
    for (bool asks : {true, false}) {
      CUstream other = nullptr;
      CUevent event = nullptr;
      EXPECT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      EXPECT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
      rank.put<float>(0, {1});
      EXPECT_EQ(ncclAllReduce(rank.place(0), rank.place(0), 1, ncclFloat32, ncclSum, rank.all, rank.stream),
                ncclInProgress);
      if (asks)
        EXPECT_EQ(Rank::settle(rank.all), ncclSuccess);
      EXPECT_EQ(cuEventRecord(event, rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyDtoDAsync(rank.at(64), rank.at(0), 4, other), CUDA_SUCCESS);
      EXPECT_EQ(Rank::settle(rank.all), ncclSuccess);
      bool isFine = cuStreamSynchronize(other) == CUDA_SUCCESS && cuStreamSynchronize(rank.stream) == CUDA_SUCCESS;
      EXPECT_EQ(isFine, asks);
      if (!asks)
        forgetFaults();
    }
  });
}

TEST_F(NcclPair, RefusesWhatTheHeaderForbids) {
  inProcesses(2, [](Rank &rank) {
    void *place = rank.place(0);
    int peer = 1 - rank.rank;
    EXPECT_EQ(ncclAllReduce(nullptr, place, 1, ncclFloat32, ncclSum, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(place, place, 1, ncclFloat32, ncclProd, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(place, 1, ncclFloat32, 2, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(place, 1, ncclFloat32, -1, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(place, 1, ncclFloat32, rank.rank, rank.all, rank.stream), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    // A rejected call makes its group fail.
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(place, 1, ncclFloat32, 7, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(place, 1, ncclFloat32, peer, rank.all, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    // The previous call is in progress.
    EXPECT_EQ(ncclAllReduce(place, place, 1, ncclFloat32, ncclSum, rank.all, rank.stream), ncclInProgress);
    EXPECT_EQ(ncclAllReduce(place, place, 1, ncclFloat32, ncclSum, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(rank.all), ncclInvalidArgument);
    EXPECT_EQ(Rank::settle(rank.all), ncclSuccess);
    EXPECT_EQ(cuStreamSynchronize(rank.stream), CUDA_SUCCESS);

    ncclConfig_t config = unsetConfig;
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(rank.all, 0, 0, &child, &config), ncclInvalidUsage); // a blocking split is rejected
    config.blocking = 0;
    config.magic = 1;
    EXPECT_EQ(ncclCommSplit(rank.all, 0, 0, &child, &config), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(rank.all, -2, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(rank.all), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(place, place, 1, ncclFloat32, ncclSum, rank.all, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(rank.all), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr), "no such communicator, or one that is gone");
  });
}

TEST_F(NcclPair, UnequalCountsAreAFault) {
  inProcesses(2, [](Rank &rank) {
    size_t count = rank.rank ? 8 : 4;
    rank.issued(ncclAllReduce(rank.place(0), rank.place(0), count, ncclFloat32, ncclSum, rank.all, rank.stream));
    EXPECT_NE(cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(forgetFaults(), 1);
  });
  // Only the receiver can detect this.
  inProcesses(2, [](Rank &rank) {
    rank.put<float>(0, {1, 2});
    rank.issued(rank.rank ? ncclRecv(rank.place(0), 1, ncclFloat32, 0, rank.all, rank.stream)
                          : ncclSend(rank.place(0), 2, ncclFloat32, 1, rank.all, rank.stream));
    if (rank.rank) {
      EXPECT_NE(cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(forgetFaults(), 1);
    } else {
      EXPECT_FALSE(rank.ends(rank.stream));
    }
  });
}

TEST_F(NcclPair, ResultsLieInPlaceOrApart) {
  inProcesses(2, [](Rank &rank) {
    rank.issued(ncclAllReduce(rank.place(0), rank.place(4), 4, ncclFloat32, ncclSum, rank.all, rank.stream));
    EXPECT_NE(cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(forgetFaults(), 1);
  });
}

// In one stream, a receive waits for the send before it. Two ranks that both send first deadlock until the timeout.
TEST_F(NcclPair, ASendLastsUntilItIsReceived) {
  inProcesses(2, [](Rank &rank) {
    rank.put<float>(0, {1});
    EXPECT_EQ(ncclGroupStart(), ncclSuccess); // connects the ranks
    EXPECT_EQ(ncclSend(rank.place(0), 1, ncclFloat32, 1 - rank.rank, rank.all, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(rank.place(4), 1, ncclFloat32, 1 - rank.rank, rank.all, rank.stream), ncclSuccess);
    rank.issued(ncclGroupEnd());
    rank.issued(ncclSend(rank.place(0), 1, ncclFloat32, 1 - rank.rank, rank.all, rank.stream));
    rank.issued(ncclRecv(rank.place(4), 1, ncclFloat32, 1 - rank.rank, rank.all, rank.stream));
    EXPECT_FALSE(rank.ends(rank.stream));
    EXPECT_EQ(ncclCommAbort(rank.all), ncclSuccess);
    EXPECT_TRUE(rank.ends(rank.stream));
  });
}

// The first transfer between two ranks allocates memory, and its call is in progress until both hosts have reached it.
// Later transfers allocate nothing.
TEST_F(NcclPair, TheFirstTransferOfAKindConnects) {
  inProcesses(2, [](Rank &rank) {
    auto freeBytes = [] {
      size_t free = 0, total = 0;
      EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
      return free;
    };
    auto isConnecting = [&] {
      ncclResult_t state = ncclInProgress;
      for (int i = 0; i < 200 && state == ncclInProgress; ++i) {
        EXPECT_EQ(ncclCommGetAsyncError(rank.all, &state), ncclSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return state == ncclInProgress;
    };
    size_t before = freeBytes();
    ncclComm_t line = rank.split(0, rank.rank);
    size_t unconnected = freeBytes();
    EXPECT_LT(unconnected, before);
    for (bool isFirst : {true, false}) {
      CUstream other = nullptr;
      EXPECT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      if (isFirst != (rank.rank == 0))
        EXPECT_EQ(ncclRecv(rank.place(0), 1, ncclFloat32, 1 - rank.rank, line, other), ncclInProgress);
      else
        EXPECT_EQ(ncclSend(rank.place(4), 1, ncclFloat32, 1 - rank.rank, line, other), ncclInProgress);
      EXPECT_EQ(Rank::settle(line), ncclSuccess);
      EXPECT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    }
    size_t connected = freeBytes();
    EXPECT_LT(connected, unconnected);
    EXPECT_EQ(ncclRecv(rank.place(0), 1, ncclFloat32, 1 - rank.rank, line, rank.stream), ncclInProgress);
    EXPECT_EQ(Rank::settle(line), ncclSuccess);
    EXPECT_EQ(freeBytes(), connected);
    EXPECT_EQ(ncclCommAbort(line), ncclSuccess);
    EXPECT_EQ(freeBytes(), before);
    // Both ranks receive first; each waits for the other host to send.
    EXPECT_EQ(ncclRecv(rank.place(0), 1, ncclFloat32, 1 - rank.rank, rank.all, rank.stream), ncclInProgress);
    EXPECT_TRUE(isConnecting());
  });
}

// Work that no host waits for is executed because other ranks need it.
TEST_F(NcclPair, ABusyRankExecutesItsPart) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  inProcesses(2, [&](Rank &rank) {
    if (rank.rank == 0) {
      rank.put<float>(4, {5});
      EXPECT_EQ(cuMemcpyDtoDAsync(rank.at(0), rank.at(4), 4, rank.stream), CUDA_SUCCESS);
      rank.issued(ncclSend(rank.place(0), 1, ncclFloat32, 1, rank.all, rank.stream));
      char byte;
      EXPECT_EQ(read(ends[0], &byte, 1), 1);
    } else {
      rank.issued(ncclRecv(rank.place(0), 1, ncclFloat32, 0, rank.all, rank.stream));
      EXPECT_THAT(rank.get<float>(0, 1), ElementsAre(5));
      EXPECT_EQ(write(ends[1], "", 1), 1);
    }
  });
}

TEST_F(NcclPair, TwoRanksOnOneDeviceAreRefused) {
  ncclUniqueId id = makeId();
  pid_t process = fork();
  if (process == 0) {
    alarm(30 * slowdown);
    CUcontext context;
    ncclConfig_t config = unsetConfig;
    config.blocking = 0;
    ncclComm_t first = nullptr, second = nullptr;
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclUnhandledCudaError); // no context
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 2, &config), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
    EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("duplicate GPU"));
    leave();
  }
  expectEnds({process});
}

/// Ranks may share a device from NCCL 2.30 on if this is enabled.
TEST_F(NcclPair, TwoProcessesShareADeviceOfANewerLibrary) {
  ncclUniqueId id = makeId();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.push_back(fork());
    if (processes.back() == 0) {
      alarm(30 * slowdown);
      setenv("ESPALIER_EMULATOR_NCCL_VERSION", "23000", /*overwrite=*/1);
      setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", /*overwrite=*/1);
      Rank self(rank, 2, id, /*device=*/0);
      self.put<float>(0, {1.5f + rank});
      self.issued(ncclAllReduce(self.place(0), self.place(256), 1, ncclFloat32, ncclSum, self.all, self.stream));
      EXPECT_THAT(self.get<float>(256, 1), ElementsAre(4));
      leave();
    }
  }
  expectEnds(processes);
}

TEST_F(NcclPair, ReportsItsVersionAndErrors) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_STREQ(ncclGetErrorString(ncclInProgress), "NCCL operation in progress");
  EXPECT_STREQ(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error");
}

} // namespace
} // namespace espalier::emulator
