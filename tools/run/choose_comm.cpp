// Derives unset communication options from the launcher of this process.
#include "tools/run/choose_comm.h"

#include "format/mesh.h"
#include "runtime/host_name.h"
#include "runtime/launch/topology.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <set>
#include <sys/stat.h>

namespace espalier {
namespace {

using namespace rt::launch;

LaunchOptions launchOptions(const CommArguments &arguments) {
  LaunchOptions options;
  options.nodes = arguments.nodes;
  options.nodeRank = arguments.nodeRank;
  options.rendezvous = arguments.rendezvous;
  if (!arguments.rankTable.empty())
    options.table = readRankTable(arguments.rankTable);
  options.tableFile = arguments.rankTable;
  options.serverId = arguments.serverId;
  options.deviceRange = arguments.deviceRange;
  options.hostName = rt::hostName();
  return options;
}

constexpr const char *makeToken = "head -c 32 /dev/urandom | base64";

/// Throws PlanError if users other than the owner may read or change the file. Pipes and devices have no such users.
void requirePrivate(const std::string &file) {
  struct stat status = {};
  constexpr mode_t others = S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
  if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & others) != 0)
    throw rt::PlanError(fmt::format("--token-file {}: other users may read or change it (mode {:o}); give it to its "
                                    "owner alone: chmod 600 {}",
                                    file, status.st_mode & 0777, file));
}

/// Returns the first line of --token-file ("-": standard input), else ESPALIER_TOKEN, else an empty string.
std::string readToken(const std::string &file) {
  if (file.empty()) {
    const char *token = std::getenv("ESPALIER_TOKEN");
    return token ? token : "";
  }
  std::string token;
  if (file == "-") {
    std::getline(std::cin, token);
  } else {
    requirePrivate(file);
    std::ifstream stream(file);
    std::getline(stream, token);
  }
  if (token.empty())
    throw rt::PlanError(fmt::format("--token-file {}: its first line is empty or cannot be read; write a secret that "
                                    "all hosts of the run know: (umask 077; {} > FILE)",
                                    file, makeToken));
  return token;
}

/// Throws PlanError if a token can be guessed. A random token of this length and alphabet has at least 128 bits; few
/// different characters show that it is not random.
void requireStrong(const std::string &token, const CommArguments &arguments) {
  constexpr double wanted = 128;
  constexpr size_t fewest = 8;
  bool isHex = std::ranges::all_of(token, [](unsigned char c) { return std::isxdigit(c); });
  double bits = (isHex ? 4.0 : 6.0) * static_cast<double>(token.size());
  if (bits >= wanted && std::set<char>(token.begin(), token.end()).size() >= fewest)
    return;
  std::string origin = arguments.tokenFile.empty() ? "ESPALIER_TOKEN" : "--token-file " + arguments.tokenFile;
  std::string command = arguments.tokenFile.empty() || arguments.tokenFile == "-"
                            ? fmt::format("export ESPALIER_TOKEN=$({})", makeToken)
                            : fmt::format("(umask 077; {} > {})", makeToken, arguments.tokenFile);
  throw rt::PlanError(fmt::format("{}: the token can be guessed: {} characters, of which {} differ, are less than the "
                                  "{:.0f} random bits that are needed; make one and give it to all hosts: {}",
                                  origin, token.size(), std::set<char>(token.begin(), token.end()).size(), wanted,
                                  command));
}

/// Returns the communicator of CPU ranks. `wish` is local, shm, mpi or empty.
rt::Comm commOf(const Topology &topology, const std::string &wish, const std::string &file) {
  bool hasMpi = topology.launcher == Topology::Mpi || topology.launcher == Topology::Slurm;
  if (wish == "mpi" && !hasMpi)
    throw rt::PlanError(fmt::format("--comm mpi takes the processes that mpirun or srun starts: mpirun -np {} espalier "
                                    "run {} ...",
                                    topology.world, file));
  if (wish == "shm" && !topology.isOneHost())
    throw rt::PlanError(fmt::format("--comm shm: {} of {} ranks are on this host, and hosts share no memory; leave it "
                                    "out",
                                    topology.hostRanks, topology.world));
  if (wish == "local" && topology.isProcessPerRank())
    throw rt::PlanError(
        fmt::format("a launcher started several processes, and each would run all ranks of {}; leave out "
                    "--comm local or the launcher",
                    file));
  if (wish == "mpi" || wish == "shm")
    return wish == "mpi" ? rt::Comm::mpi : rt::Comm::shm;
  if (!topology.isProcessPerRank())
    return rt::Comm::local;
  bool isMpi = topology.launcher == Topology::Mpi || !topology.isOneHost();
  return isMpi ? rt::Comm::mpi : rt::Comm::shm;
}

/// Returns the communicator of GPU ranks: processes, or threads if one process must access all tensors.
rt::Comm cudaCommOf(const Topology &topology, const std::string &wish, const rt::RunOptions &options) {
  if (!topology.isOneHost())
    return rt::Comm::hosts;
  bool isAlone = topology.world == 1 || options.keepGradients || options.keepParameters;
  bool isLocal = wish == "local" || (isAlone && wish.empty());
  return isLocal && !topology.isProcessPerRank() ? rt::Comm::local : rt::Comm::shm;
}

std::string wishOf(const CommArguments &arguments, const Topology &topology, const std::string &file) {
  if (!arguments.processes)
    return arguments.comm;
  if (!arguments.comm.empty() && arguments.comm != "shm")
    throw rt::PlanError(fmt::format("--processes means --comm shm, not --comm {}; give one of them", arguments.comm));
  if (topology.isProcessPerRank())
    throw rt::PlanError(
        fmt::format("a launcher started several processes, and each would run all ranks of {}; leave out "
                    "--processes or the launcher",
                    file));
  return "shm";
}

} // namespace

void addCommOptions(const Verb &run, CommArguments &arguments) {
  run.flag("--processes", arguments.processes,
           "ranks as processes of this host, as those of CUDA plans always are; --comm shm");
  run.option("--comm", arguments.comm,
             "local (threads), shm (processes of this host), mpi or, of CUDA plans, nccl; default: what started this "
             "process says it")
      .oneOf({"local", "shm", "mpi", "nccl"});
  run.option("--nodes", arguments.nodes, "hosts of the run, each of which starts this command").range(1, 1 << 20);
  run.option("--node-rank", arguments.nodeRank, "which of --nodes this host is, from 0").range(0, 1 << 20);
  run.option("--rendezvous", arguments.rendezvous, "HOST:PORT of the first host, at which hosts find each other");
  run.option("--token-file", arguments.tokenFile,
             "its first line is a secret that all hosts know; - for standard input; default: ESPALIER_TOKEN");
  run.option("--rank-table", arguments.rankTable, "hosts, devices and ranks, as `cluster generate` writes them");
  Option server = run.option("--server-id", arguments.serverId, "which server of --rank-table this host is");
  run.option("--device-range", arguments.deviceRange, "the same by its ranks: '[8,16]' for 8 to 15").excludes(server);
  run.flag("--share-devices", arguments.sharesDevices, "several ranks may use one device");
}

void chooseRendezvous(const CommArguments &arguments, rt::RunOptions &options) {
  options.token = readToken(arguments.tokenFile);
  Topology topology = findRendezvous(environmentOfProcess(), launchOptions(arguments));
  bool isSlurm = topology.launcher == Topology::Slurm;
  if (topology.launcher == Topology::Mpi) // mpirun aborts all ranks if this process fails
    options.comm = rt::Comm::mpi;
  else if (topology.isOneHost())
    options.comm = topology.hostRendezvous.empty() ? rt::Comm::local : rt::Comm::shm;
  else // without a secret, only CPU plans of several hosts can meet
    options.comm = options.token.empty() && isSlurm ? rt::Comm::mpi : rt::Comm::hosts;
  if (options.comm == rt::Comm::hosts && !options.token.empty())
    requireStrong(options.token, arguments);
  options.topology = std::move(topology);
}

std::string chooseComm(const CommArguments &arguments, const rt::pb::Plan &plan, const std::string &file,
                       rt::RunOptions &options) {
  bool isCuda = plan.target() != "cpu";
  PlanNeeds needs{rt::Mesh(plan.mesh()).ranks(), isCuda, file};
  Topology topology = findTopology(environmentOfProcess(), launchOptions(arguments), needs);
  std::string wish = wishOf(arguments, topology, file);
  if (isCuda && wish == "mpi")
    throw rt::PlanError(
        fmt::format("{} is a plan for {}, whose ranks talk over NCCL; leave out --comm mpi", file, plan.target()));
  if (!isCuda && wish == "nccl")
    throw rt::PlanError(fmt::format("--comm nccl is for plans for CUDA, {} is one for {}", file, plan.target()));
  options.comm = isCuda ? cudaCommOf(topology, wish, options) : commOf(topology, wish, file);
  if (options.comm == rt::Comm::mpi || options.comm == rt::Comm::hosts)
    topology.hostRendezvous.clear();
  options.sharesDevices = arguments.sharesDevices;
  options.log = topology.ranks.front() == 0;
  std::string text = topology.launcher == Topology::Alone ? "" : describe(topology);
  options.topology = std::move(topology);
  return text;
}

} // namespace espalier
