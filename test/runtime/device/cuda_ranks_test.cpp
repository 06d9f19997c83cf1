// Tests several ranks with one GPU each through the interface of the executor: two stages of two ranks, as threads of
// one process and as processes.
#include "format/mesh.h"
#include "runtime/comm/local.h"
#include "runtime/device/device.h"
#include "runtime/processes/processes.h"
#include "test/sanitizer.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" espalier::rt::Backend *espalierCudaBackend(const espalier::rt::pb::Plan &plan);

namespace espalier::emulator {
__attribute__((visibility("default"))) uint64_t timesMemoryWasTaken();
}

namespace espalier::rt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Set before the driver loads.
[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "4", /*overwrite=*/1);

constexpr int ranks = 4;
constexpr uint32_t replicas = 0, everybody = 1; // groups
constexpr uint32_t gradients = 1, collectives = 2, out = 3, in = 4;

void addCommunicator(pb::Plan &plan, uint32_t group, uint32_t queue) {
  pb::Communicator *communicator = plan.add_communicators();
  communicator->set_group(group);
  communicator->set_queue(queue);
}

void addLine(pb::Plan &plan, uint32_t channel, uint32_t sender, uint32_t receiver) {
  pb::Communicator *communicator = plan.add_communicators();
  communicator->set_is_line(true);
  communicator->set_line(channel);
  communicator->set_sender(sender);
  communicator->set_receiver(receiver);
}

void addCollective(pb::Plan &plan, pb::Transfer::Kind kind, uint32_t group, uint32_t queue, int32_t shift = 0) {
  pb::Transfer *transfer = plan.add_transfers();
  transfer->set_kind(kind);
  transfer->set_group(group);
  transfer->set_queue(queue);
  transfer->set_shift(shift);
}

pb::Plan samplePlan() {
  pb::Plan plan;
  plan.set_target("cuda");
  pb::Mesh *mesh = plan.mutable_mesh();
  mesh->set_pp(2);
  mesh->set_dp(2);
  mesh->set_cp(1);
  mesh->set_ep(1);
  mesh->set_tp(1);
  mesh->set_ranks_per_host(ranks);
  for (const char *name : {"compute", "gradients", "collectives", "out", "in"})
    plan.add_queues()->set_name(name);
  plan.add_groups()->set_axes(DP);
  plan.add_groups()->set_axes(PP | DP);
  addCommunicator(plan, replicas, gradients);
  addLine(plan, /*line=*/0, /*sender=*/0, /*receiver=*/1);
  addCommunicator(plan, everybody, collectives);
  addLine(plan, /*line=*/1, /*sender=*/1, /*receiver=*/0);
  addCollective(plan, pb::Transfer::REDUCE_SCATTER, replicas, gradients);
  addCollective(plan, pb::Transfer::ALL_GATHER, replicas, gradients);
  addCollective(plan, pb::Transfer::ALL_REDUCE, everybody, collectives);
  addCollective(plan, pb::Transfer::ALL_TO_ALL, everybody, collectives);
  addCollective(plan, pb::Transfer::SHIFT, everybody, collectives, /*shift=*/-1);
  for (uint32_t stage : {0, 1}) {
    pb::Stage *made = plan.add_stages();
    made->add_arena_bytes(1 << 16);
    made->add_arena_bytes(stage); // one of the stages has no host arena
  }
  return plan;
}

/// A rank and its device.
class Rank {
public:
  Rank(Backend &backend, const pb::Plan &plan, Communicator &communicator)
      : number(communicator.rank()), stage(number / 2), replica(number % 2), communicator(communicator),
        device(backend.open(plan.stages(stage), {communicator, pool, /*spins=*/0})) {}

  std::vector<float> read(uint64_t from, size_t count) const {
    std::vector<float> values(count);
    device->copyOut(values.data(), from, 4 * count);
    return values;
  }
  void write(uint64_t to, const std::vector<float> &values) const {
    device->copyIn(to, values.data(), 4 * values.size());
  }
  /// Adds a collective of f32 with buffers of the given sizes.
  uint32_t collective(pb::Transfer::Kind kind, uint32_t queue, std::vector<int> members, std::vector<int64_t> elements,
                      int32_t shift = 0) const {
    TransferShape shape = {.kind = kind, .queue = queue, .members = std::move(members)};
    shape.shape = {.kind = kind, .elements = elements, .shift = shift};
    for (int64_t count : elements)
      shape.bytes.push_back(4 * count);
    return device->addTransfer(shape);
  }
  TransferTicket start(uint32_t transfer, const std::vector<Place> &from, const std::vector<Place> &to) const {
    return device->start({transfer, from, to});
  }
  void finish() const {
    device->endTurn();
    device->finishTurns(0);
  }
  std::vector<int> own() const { return {2 * stage, 2 * stage + 1}; } ///< the replicas of the stage

  const int number, stage, replica;
  Communicator &communicator;
  ThreadPool pool{1, /*spins=*/0};
  std::unique_ptr<Device> device;
};

std::unique_ptr<Backend> load(const pb::Plan &plan) { return std::unique_ptr<Backend>(espalierCudaBackend(plan)); }

using Body = std::function<void(Rank &)>;

std::string failureOf(const std::optional<Failure> &failure) { return failure ? failure->message : ""; }

/// Runs the body on a rank. Aborts the other ranks if it fails.
void run(World &world, int rank, Backend &backend, const pb::Plan &plan, const Body &body) {
  std::unique_ptr<Communicator> communicator = world.communicator(rank);
  try {
    Rank self(backend, plan, *communicator);
    body(self);
  } catch (const RankStopped &) {
  } catch (const std::exception &error) {
    Failure failure;
    failure.rank = rank;
    failure.message = error.what();
    communicator->abort(failure);
  }
}

/// Runs each rank as a process. Returns the message of the first failure, or an empty string.
std::string inProcesses(const pb::Plan &plan, const Body &body) {
  ShmWorld world(ranks, 1 << 20);
  std::vector<Process> processes = spawn(world, [&](int rank) {
    run(world, rank, *load(plan), plan, body);
    std::fflush(nullptr);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  return failureOf(supervise(processes, world));
}

/// Runs the ranks as threads of one child process, which returns the message of the first failure through a pipe.
std::string inThreads(const pb::Plan &plan, const Body &body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t process = fork();
  if (process == 0) {
    alarm(60 * slowdown);
    LocalWorld world(ranks);
    std::unique_ptr<Backend> backend = load(plan);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { run(world, rank, *backend, plan, body); });
    for (std::thread &thread : threads)
      thread.join();
    std::string message = failureOf(world.failure());
    EXPECT_EQ(write(ends[1], message.data(), message.size()), static_cast<ssize_t>(message.size()));
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(ends[1]);
  std::string message(4096, '\0');
  message.resize(std::max<ssize_t>(0, read(ends[0], message.data(), message.size())));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
  return message;
}

struct Mode {
  const char *name;
  std::string (*run)(const pb::Plan &plan, const Body &body);
};

class CudaRanks : public testing::TestWithParam<Mode> {
protected:
  std::string inRanks(const Body &body, const pb::Plan &plan = samplePlan()) const {
    return GetParam().run(plan, body);
  }
};

INSTANTIATE_TEST_SUITE_P(As, CudaRanks, testing::Values(Mode{"Processes", inProcesses}, Mode{"Threads", inThreads}),
                         [](const auto &info) { return info.param.name; });

TEST_P(CudaRanks, SumBuffersOfAll) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              uint32_t sum = rank.collective(pb::Transfer::ALL_REDUCE, collectives, {0, 1, 2, 3}, {2, 1});
              auto own = static_cast<float>(rank.number);
              rank.write(0, {own, 1});
              rank.write(256, {10 * own});
              rank.device->wait(rank.start(sum, {{0}, {256}}, {{0}, {512}})); // one buffer in place, the other not
              EXPECT_THAT(rank.read(0, 2), ElementsAre(6, 4));
              EXPECT_THAT(rank.read(512, 1), ElementsAre(60));
            }),
            "");
}

// A transfer may read the result of an earlier transfer on the same queue without a wait between the two.
TEST_P(CudaRanks, ScatterAndGatherInPlaceOnOneQueue) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              uint32_t scatter = rank.collective(pb::Transfer::REDUCE_SCATTER, gradients, rank.own(), {4});
              uint32_t gather = rank.collective(pb::Transfer::ALL_GATHER, gradients, rank.own(), {4});
              auto first = static_cast<float>(rank.stage);
              rank.write(0, {first, 1, 2, static_cast<float>(rank.replica)});
              Place own = {8u * rank.replica};
              TransferTicket scattered = rank.start(scatter, {{0}}, {own});
              TransferTicket gathered = rank.start(gather, {own}, {{0}});
              rank.device->wait(scattered);
              rank.device->wait(gathered);
              EXPECT_THAT(rank.read(0, 4), ElementsAre(2 * first, 2, 4, 1));
            }),
            "");
}

TEST_P(CudaRanks, ExchangeShardsByAllToAllAndShift) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              std::vector<int> all = {0, 1, 2, 3};
              uint32_t toAll = rank.collective(pb::Transfer::ALL_TO_ALL, collectives, all, {4});
              uint32_t shift = rank.collective(pb::Transfer::SHIFT, collectives, all, {1}, /*shift=*/-1);
              auto own = static_cast<float>(10 * rank.number);
              rank.write(0, {own, own + 1, own + 2, own + 3});
              TransferTicket exchanged = rank.start(toAll, {{0}}, {{256}});
              TransferTicket shifted = rank.start(shift, {{0}}, {{512}});
              rank.device->wait(exchanged);
              rank.device->wait(shifted);
              float part = static_cast<float>(rank.number);
              EXPECT_THAT(rank.read(256, 4), ElementsAre(part, 10 + part, 20 + part, 30 + part));
              EXPECT_THAT(rank.read(512, 1), ElementsAre((rank.number + 1) % ranks * 10));
            }),
            "");
}

// Each direction has its own channel. A receive starts long before its value exists.
TEST_P(CudaRanks, SendToTheNextStageAndBack) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              int peer = (rank.number + 2) % ranks;
              uint32_t forth = static_cast<uint32_t>(rank.stage), back = 1 - forth;
              uint32_t send = rank.device->addTransfer(
                  {.kind = pb::Transfer::SEND, .queue = out, .peer = peer, .channel = forth, .bytes = {8}});
              uint32_t receive = rank.device->addTransfer(
                  {.kind = pb::Transfer::RECEIVE, .queue = in, .peer = peer, .channel = back, .bytes = {8}});
              for (int turn = 0; turn < 5; ++turn) {
                rank.write(0, {static_cast<float>(rank.number), static_cast<float>(turn)});
                TransferTicket received = rank.start(receive, {}, {{256}});
                TransferTicket sent = rank.start(send, {{0}}, {});
                rank.device->wait(received);
                rank.device->wait(sent);
                rank.finish();
                EXPECT_THAT(rank.read(256, 2), ElementsAre(peer, turn));
              }
            }),
            "");
}

// NCCL allocates memory for the first transfer of each kind while the communicators are created. An open rank allocates
// nothing.
TEST(CudaRanksAsProcesses, AllocateNothingOnceTheyAreOpen) {
  EXPECT_EQ(inProcesses(samplePlan(),
                        [](Rank &rank) {
                          uint64_t before = emulator::timesMemoryWasTaken();
                          std::vector<int> all = {0, 1, 2, 3};
                          using Shape = pb::Transfer;
                          uint32_t sum = rank.collective(Shape::ALL_REDUCE, collectives, all, {4});
                          uint32_t toAll = rank.collective(Shape::ALL_TO_ALL, collectives, all, {4});
                          uint32_t shift = rank.collective(Shape::SHIFT, collectives, all, {4}, /*shift=*/-1);
                          uint32_t scatter = rank.collective(Shape::REDUCE_SCATTER, gradients, rank.own(), {4});
                          uint32_t gather = rank.collective(Shape::ALL_GATHER, gradients, rank.own(), {4});
                          bool sends = rank.stage == 0;
                          uint32_t channel = rank.device->addTransfer({.kind = sends ? Shape::SEND : Shape::RECEIVE,
                                                                       .queue = out,
                                                                       .peer = (rank.number + 2) % ranks,
                                                                       .bytes = {16}});
                          rank.write(0, std::vector<float>(4));
                          for (uint32_t transfer : {sum, toAll, shift, scatter, gather})
                            rank.device->wait(rank.start(transfer, {{0}}, {{256}}));
                          rank.device->wait(sends ? rank.start(channel, {{0}}, {}) : rank.start(channel, {}, {{512}}));
                          rank.finish();
                          EXPECT_EQ(emulator::timesMemoryWasTaken(), before);
                        }),
            "");
}

// An empty collective is a barrier of the hosts. It needs no communicator of the plan.
TEST_P(CudaRanks, RunABarrier) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              uint32_t barrier = rank.collective(pb::Transfer::ALL_REDUCE, /*queue=*/5, {0, 1, 2, 3}, {});
              for (int turn = 0; turn < 3; ++turn)
                rank.device->wait(rank.start(barrier, {}, {}));
            }),
            "");
}

TEST_P(CudaRanks, RejectUnlistedCommunicators) {
  EXPECT_THAT(inRanks([](Rank &rank) { rank.collective(pb::Transfer::ALL_REDUCE, gradients, {0, 1, 2, 3}, {1}); }),
              HasSubstr("the plan lists no communicator of ranks [0, 1, 2, 3] on queue 1"));
  EXPECT_THAT(inRanks([](Rank &rank) {
                int peer = (rank.number + 2) % ranks;
                rank.device->addTransfer({.kind = pb::Transfer::SEND, .queue = out, .peer = peer, .channel = 7});
              }),
              HasSubstr("on line 7"));
}

// Ranks whose devices wait for a failed rank stop.
TEST_P(CudaRanks, AFailureStopsWaitingRanks) {
  EXPECT_EQ(inRanks([](Rank &rank) {
              uint32_t sum = rank.collective(pb::Transfer::ALL_REDUCE, collectives, {0, 1, 2, 3}, {1});
              if (rank.number == 3)
                throw std::runtime_error("gave up");
              rank.device->wait(rank.start(sum, {{0}}, {{0}}));
              EXPECT_THROW(rank.finish(), RankStopped);
            }),
            "gave up");
}

} // namespace
} // namespace espalier::rt
