// The back ends that are always available: threads, and processes of one host.
#include "test/runtime/comm_back_ends.h"

#include "runtime/comm/local.h"
#include "runtime/processes/processes.h"

#include <gtest/gtest.h>
#include <thread>

namespace espalier::rt {
namespace {

std::optional<Failure> runThreads(int ranks, const Rank &rank) {
  LocalWorld world(ranks);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < ranks; ++i)
      threads.emplace_back([&, i] {
        try {
          rank(*world.communicator(i));
        } catch (const std::exception &error) {
          ADD_FAILURE() << "rank " << i << ": " << error.what();
        }
      });
  }
  return world.failure();
}

std::optional<Failure> runProcesses(int ranks, const Rank &rank) {
  ShmWorld world(ranks, size_t{128} << 20);
  std::vector<Process> processes = spawn(world, [&](int i) {
    rank(*world.communicator(i));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  std::optional<Failure> failure = supervise(processes, world);
  for (const Process &process : processes)
    EXPECT_EQ(process.status, 0) << "rank " << process.rank << "; what it expected stands above";
  return failure;
}

std::string nothing() { return ""; }

constexpr BackEnd all[] = {{"local", nothing, runThreads}, {"shm", nothing, runProcesses}};

} // namespace

std::span<const BackEnd> backEnds() { return all; }

} // namespace espalier::rt
