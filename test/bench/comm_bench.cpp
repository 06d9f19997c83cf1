// Measures in-place sums over ranks of this host: threads, processes, our sums over OpenMPI's messages, and OpenMPI's
// MPI_Allreduce for comparison. Prints a line per number of ranks and size. Usage: comm_bench. Nothing else should run
// at the same time.
#include "runtime/comm/local.h"
#include "runtime/comm/mpi.h"
#include "runtime/processes/processes.h"
#include "runtime/run/rank.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <thread>

namespace {

using namespace espalier::rt;

constexpr size_t sizes[] = {size_t{1} << 20, size_t{124'000'000}};

/// Sums `bytes` bytes at `place` over all ranks.
using Sum = std::function<void(void *place, size_t bytes)>;

/// Returns the median seconds of a sum on this rank.
double medianSeconds(void *place, size_t bytes, const Sum &sum) {
  std::vector<double> seconds;
  std::memset(place, 0, bytes);
  for (int turn = 0; turn < (bytes > (16 << 20) ? 7 : 101); ++turn) {
    auto begin = std::chrono::steady_clock::now();
    sum(place, bytes);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + seconds.size() / 2);
  return seconds[seconds.size() / 2];
}

/// Measures a sum on one rank; rank 0 prints.
void measure(const char *name, int rank, int ranks, void *place, const Sum &sum) {
  for (size_t bytes : sizes) {
    double seconds = medianSeconds(place, bytes, sum);
    if (rank == 0)
      fmt::print("{:<24} {} ranks {:>6.1f} MB {:>9.3f} ms {:>6.2f} GB/s\n", name, ranks, bytes / 1e6, seconds * 1e3,
                 bytes / seconds / 1e9);
  }
}

void measureRank(const char *name, Communicator &comm) {
  std::vector<int> members(comm.ranks());
  std::iota(members.begin(), members.end(), 0);
  uint32_t group = comm.joinGroup(members, 1);
  CollectiveShape shape;
  measure(name, comm.rank(), comm.ranks(), comm.allocate(sizes[1]), [&](void *place, size_t bytes) {
    shape.elements = {static_cast<int64_t>(bytes / sizeof(float))};
    Ticket ticket = comm.startCollective(group, shape, &place, &place);
    comm.wait(ticket, spinsFor(comm.ranks()));
  });
}

void measureThreads(int ranks) {
  LocalWorld world(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&world, rank] { measureRank("local (threads)", *world.communicator(rank)); });
}

void measureProcesses(int ranks) {
  ShmWorld world(ranks, ranks * (sizes[1] + (1 << 20)));
  std::vector<Process> processes = spawn(world, [&world](int rank) {
    measureRank("shm (processes)", *world.communicator(rank));
    return 0;
  });
  supervise(processes, world);
}

/// Runs one rank under mpirun.
void measureMpi() {
  MpiWorld world;
  std::unique_ptr<Communicator> comm = world.communicator();
  measureRank("mpi (rank-order sums)", *comm);
  auto *allReduce = reinterpret_cast<int (*)(const void *, void *, int, void *, void *, void *)>(
      dlsym(RTLD_DEFAULT, "MPI_Allreduce"));
  void *type = dlsym(RTLD_DEFAULT, "ompi_mpi_float"), *add = dlsym(RTLD_DEFAULT, "ompi_mpi_op_sum");
  void *everybody = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"), *inPlace = reinterpret_cast<void *>(1);
  measure("OpenMPI's MPI_Allreduce", world.rank(), world.ranks(), comm->allocate(sizes[1]),
          [&](void *place, size_t bytes) {
            allReduce(inPlace, place, static_cast<int>(bytes / sizeof(float)), type, add, everybody);
          });
}

void runUnderMpi(int ranks) {
  std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  std::fflush(stdout);
  std::string command = fmt::format("mpirun --oversubscribe --bind-to none -np {} {} mpi", ranks, self);
  if (std::system(command.c_str()) != 0)
    fmt::print("(no OpenMPI to compare with)\n");
}

} // namespace

int main(int count, char **) {
  if (count > 1) {
    measureMpi();
    return 0;
  }
  for (int ranks : {2, 4}) {
    measureThreads(ranks);
    measureProcesses(ranks);
    runUnderMpi(ranks);
  }
}
