// `espalier preflight`: measures all ranks and their links before a run. Ranks are threads of this process, or
// processes that mpirun started.
#include "tools/commands.h"
#include "tools/machine/preflight.h"
#include "tools/run/mpirun.h"

#include "messages/counted.h"
#include "runtime/comm/local.h"
#include "runtime/comm/mpi.h"
#include "runtime/files/atomic_file.h"
#include "runtime/launch/rank_table.h"
#include "runtime/memory_check.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace espalier {

namespace {

struct PreflightArguments {
  std::string hosts, ssh, output;
  int ranks = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 256U));
  double seconds = 0.1;
  bool json = false;
};

/// Starts this command on the hosts by mpirun.
int preflightOnHosts(const PreflightArguments &arguments) {
  std::vector<rt::launch::Host> hosts = rt::launch::readHosts(arguments.hosts);
  std::vector<std::string> line = mpirunLine(hosts, arguments.ssh);
  line.insert(line.end(), {std::filesystem::read_symlink("/proc/self/exe").string(), "preflight", "--seconds",
                           fmt::format("{}", arguments.seconds)});
  if (!arguments.output.empty())
    line.insert(line.end(), {"-o", std::filesystem::absolute(arguments.output).string()});
  if (arguments.json)
    line.push_back("--json");
  return runMpirun(std::move(line));
}

Preflight measureThreads(const PreflightArguments &arguments) {
  rt::FreeMemory free = rt::freeMemory();
  uint64_t needed = preflightBytes(arguments.ranks) + calibrationBytes(arguments.ranks);
  if (needed > free.bytes)
    throw rt::MemoryError(fmt::format("measuring {} takes {} MiB of memory, {} MiB are free ({}); give fewer with "
                                      "--ranks",
                                      rt::counted(arguments.ranks, "rank"), needed >> 20, free.bytes >> 20,
                                      free.source));
  rt::LocalWorld world(arguments.ranks);
  Preflight result;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < arguments.ranks; ++rank)
    threads.push_back(rt::startThread<std::jthread>([&, rank] {
      try {
        std::unique_ptr<rt::Communicator> communicator = world.communicator(rank);
        Preflight mine = measureRanks(*communicator, /*isFirstHere=*/rank == 0, arguments.seconds);
        if (rank == 0)
          result = std::move(mine);
      } catch (const rt::RankStopped &) {
        // another rank has said why
      } catch (const std::exception &error) {
        rt::Failure failure;
        failure.rank = rank;
        failure.message = error.what();
        world.abort(failure);
      }
    }));
  threads.clear(); // joins
  if (std::optional<rt::Failure> failure = world.failure())
    throw rt::RankFailure(*failure);
  return result;
}

/// Measures as a process that mpirun started. Returns nothing on all ranks but the first.
std::optional<Preflight> measureMpiRank(const PreflightArguments &arguments) {
  rt::MpiWorld world;
  std::unique_ptr<rt::Communicator> communicator = world.communicator();
  try {
    Preflight result = measureRanks(*communicator, /*isFirstHere=*/true, arguments.seconds);
    return world.rank() == 0 ? std::optional(std::move(result)) : std::nullopt;
  } catch (const std::exception &error) {
    rt::Failure failure;
    failure.rank = world.rank();
    failure.message = error.what();
    world.abort(failure);
    throw;
  }
}

void printJson(const PreflightArguments &arguments, const Preflight &preflight,
               const std::vector<std::string> &outliers) {
  using Json = nlohmann::ordered_json;
  Json answer = {{"schema", 1},
                 {"output", arguments.output},
                 {"ranks", Json::array()},
                 {"links", Json::array()},
                 {"slow", outliers}};
  for (size_t rank = 0; rank < preflight.ranks.size(); ++rank)
    answer["ranks"].push_back({{"rank", rank},
                               {"host", preflight.ranks[rank].host},
                               {"flops_per_second", preflight.ranks[rank].machine.f32Flops},
                               {"memory_bytes_per_second", preflight.ranks[rank].machine.memoryBytesPerSecond}});
  for (const PairFigures &pair : preflight.pairs)
    answer["links"].push_back({{"first", pair.first},
                               {"second", pair.second},
                               {"between_hosts", preflight.isBetweenHosts(pair)},
                               {"bytes_per_second", pair.bytesPerSecond},
                               {"latency_seconds", pair.latencySeconds}});
  fmt::print("{}\n", answer.dump(2, ' ', false, Json::error_handler_t::replace));
}

int report(const PreflightArguments &arguments, const Preflight &preflight) {
  MeasuredMachine machine = typicalMachine(preflight);
  std::vector<std::string> outliers = outliersOf(preflight);
  if (!arguments.output.empty())
    rt::writeWhole(arguments.output, clusterYaml(clusterNameOf(arguments.output), machine));
  if (arguments.json) {
    printJson(arguments, preflight, outliers);
    return outliers.empty() ? Success : Failed;
  }
  for (size_t rank = 0; rank < preflight.ranks.size(); ++rank) {
    const RankFigures &one = preflight.ranks[rank];
    fmt::print("rank {} on {}: matrix product {:.3g} FLOP/s, memory {:.3g} B/s\n", rank, one.host, one.machine.f32Flops,
               one.machine.memoryBytesPerSecond);
  }
  for (const PairFigures &pair : preflight.pairs)
    fmt::print("link {}-{}{}: {:.3g} B/s, latency {:.3g} s\n", pair.first, pair.second,
               preflight.isBetweenHosts(pair) ? " between hosts" : "", pair.bytesPerSecond, pair.latencySeconds);
  for (const std::string &outlier : outliers)
    fmt::print("{}\n", outlier);
  fmt::print("{}, {}: {}\n", rt::counted(preflight.ranks.size(), "rank"), rt::counted(preflight.pairs.size(), "link"),
             outliers.empty() ? std::string("none is slow") : rt::counted(outliers.size(), "slow one"));
  return outliers.empty() ? Success : Failed;
}

} // namespace

void addPreflightCommand(const Verb &app) {
  Verb verb = app.verb("preflight", "Measure all ranks and their links before a run, and name the slow ones");
  auto arguments = std::make_shared<PreflightArguments>();
  Option hosts = verb.option("--hosts", arguments->hosts,
                             "lines ADDRESS slots=N, or a rank table; a process per slot is started by mpirun");
  verb.option("--ssh", arguments->ssh, "what mpirun starts its daemons with; default: ssh").needs(hosts);
  verb.option("--ranks", arguments->ranks, "ranks (threads) of this machine; default: its cores")
      .range(1, 256)
      .excludes(hosts);
  verb.option("--seconds", arguments->seconds, "least time of each measurement").range(0.0, 60.0);
  verb.option("-o,--output", arguments->output, "cluster file to write, with the medians, as calibrate does");
  verb.flag("--json", arguments->json, "print the figures as JSON");
  verb.action([arguments] {
    if (!arguments->hosts.empty())
      return preflightOnHosts(*arguments);
    if (!std::getenv("OMPI_COMM_WORLD_SIZE"))
      return report(*arguments, measureThreads(*arguments));
    std::optional<Preflight> result = measureMpiRank(*arguments);
    return result ? report(*arguments, *result) : int(Success);
  });
}

} // namespace espalier
