#include "runtime/launch/topology.h"

#include "messages/counted.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <numeric>

namespace espalier::rt::launch {
namespace {

constexpr int mostRanks = 1 << 20;

/// The environment variables of a launcher that starts one process per rank.
struct RankVariables {
  Topology::Launcher launcher;
  const char *name;      ///< of the launcher, for messages
  const char *signature; ///< a variable that only this launcher sets
  const char *rank, *world, *localRank, *localWorld, *node, *nodes;
  const char *run[2]; ///< together they identify a run among those on this host
};

// The innermost launcher comes first: mpirun inside a Slurm job inherits Slurm's variables, and either may start
// torchrun. Slurm sets SLURM_STEP_ID only for processes that srun starts; a batch script has all other variables too.
constexpr RankVariables perRank[] = {
    {Topology::Torchrun,
     "torchrun",
     "LOCAL_RANK",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     "GROUP_RANK",
     "GROUP_WORLD_SIZE",
     {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
    {Topology::Mpi,
     "mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     nullptr,
     {"PMIX_NAMESPACE", nullptr}},
    {Topology::Slurm,
     "srun",
     "SLURM_STEP_ID",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_NODEID",
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

constexpr const char *otherVariables[] = {"MASTER_ADDR",
                                          "MASTER_PORT",
                                          "RANK",
                                          "WORLD_SIZE",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_STEP_TASKS_PER_NODE",
                                          "SLURMD_NODENAME",
                                          "OMPI_MCA_orte_local_daemon_uri"};

/// The range of rendezvous ports if the launcher gives only a host. All processes of a job use the same port.
constexpr int firstPort = 20000, ports = 20000;

/// Returns the first host of a Slurm list: "node03" for "node[03-07,9],other".
std::string firstHost(const std::string &list) {
  size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',')
    return list.substr(0, open);
  size_t end = list.find_first_of("-,]", open);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

/// Returns the tasks of node `node` in Slurm's notation: "2(x3),1" means 2, 2, 2, 1.
std::optional<int> tasksOfNode(const std::string &text, int node) {
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int tasks = 0, times = 1;
    auto [next, error] = std::from_chars(at, end, tasks);
    if (error != std::errc())
      return std::nullopt;
    at = next;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      auto [closing, bad] = std::from_chars(at + 2, end, times);
      if (bad != std::errc() || closing == end || *closing != ')')
        return std::nullopt;
      at = closing + 1;
    }
    if (node < times)
      return tasks;
    node -= times;
    if (at < end && *at++ != ',')
      return std::nullopt;
  }
  return std::nullopt;
}

/// Reads the variables of a launcher.
class LauncherVariables {
public:
  explicit LauncherVariables(const Environment &environment) : environment(environment) {}

  /// Returns a variable, or nothing if it is unset or empty.
  std::optional<std::string> text(const char *name) const {
    auto entry = name ? environment.find(name) : environment.end();
    return entry == environment.end() || entry->second.empty() ? std::nullopt : std::optional(entry->second);
  }

  /// Returns a variable as a number. Throws LaunchError if it is not a number from 0 to 2^20.
  std::optional<int> number(const char *name) const {
    std::optional<std::string> value = text(name);
    if (!value)
      return std::nullopt;
    int result = -1;
    auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (error != std::errc() || end != value->data() + value->size() || result < 0 || result > mostRanks)
      throw LaunchError(fmt::format("{} is \"{}\", wanted a number from 0 to {}", name, *value, mostRanks));
    return result;
  }

  /// Returns a variable that the launcher must have set.
  int needed(const RankVariables &launcher, const char *name) const {
    std::optional<int> value = number(name);
    if (!value)
      throw LaunchError(fmt::format("{} is set, as by {}, but {} is not; start this by {}, or unset {}",
                                    launcher.signature, launcher.name, name, launcher.name, launcher.signature));
    return *value;
  }

private:
  const Environment &environment;
};

/// Finds this host's server in the rank table.
class ServerFinder {
public:
  explicit ServerFinder(const LaunchOptions &options) : options(options), servers(options.table->servers) {}

  /// Returns the index of this host's server in the rank table.
  size_t find() const {
    auto named = [&](const std::string &id) {
      return std::ranges::find(servers, id, &TableServer::id) - servers.begin();
    };
    if (!options.serverId.empty()) {
      size_t server = named(options.serverId);
      if (server == servers.size())
        throw LaunchError(fmt::format("{} has no server {}; it has {}", options.tableFile, options.serverId,
                                      listServers(&TableServer::id)));
      return server;
    }
    if (!options.deviceRange.empty()) {
      auto [first, last] = rangeOf(options.deviceRange);
      for (size_t i = 0; i < servers.size(); ++i)
        if (servers[i].devices.front().rank == first && servers[i].devices.back().rank + 1 == last)
          return i;
      throw LaunchError(fmt::format("no server of {} has exactly ranks {} to {}; they have {}", options.tableFile,
                                    first, last - 1, listServers([](const TableServer &server) {
                                      return fmt::format("[{},{}]", server.devices.front().rank,
                                                         server.devices.back().rank + 1);
                                    })));
    }
    if (servers.size() == 1)
      return 0;
    size_t server = named(options.hostName);
    if (server == servers.size())
      throw LaunchError(fmt::format("{0} does not say which of {1} this host is; `espalier launch --hosts {0} -- run "
                                    "X.plan ...` starts the run on "
                                    "all of them, --server-id or --device-range on this one",
                                    options.tableFile, listServers(&TableServer::id)));
    return server;
  }

private:
  /// Parses a device range in the format of MindFormers' run_distribute: "[8,16]" means ranks 8 to 15.
  static std::pair<int, int> rangeOf(const std::string &range) {
    int first = 0, last = 0;
    const char *end = range.data() + range.size();
    bool isGood = range.size() >= 5 && range.front() == '[' && (range.back() == ']' || range.back() == ')');
    if (isGood) {
      auto [comma, bad] = std::from_chars(range.data() + 1, end, first);
      isGood = bad == std::errc() && comma < end && *comma == ',';
      if (isGood) {
        auto [closing, error] = std::from_chars(comma + 1, end, last);
        isGood = error == std::errc() && closing + 1 == end;
      }
    }
    if (!isGood || first < 0 || last <= first)
      throw LaunchError(fmt::format("--device-range is \"{}\", wanted '[8,16]' for ranks 8 to 15", range));
    return {first, last};
  }

  /// Lists the names of the first servers.
  std::string listServers(const std::function<std::string(const TableServer &)> &name) const {
    constexpr size_t shown = 8;
    std::vector<std::string> names;
    for (const TableServer &server : servers)
      if (names.size() < shown)
        names.push_back(name(server));
    return fmt::format("{}{}", fmt::join(names, ", "), servers.size() > shown ? ", ..." : "");
  }

  const LaunchOptions &options;
  const std::vector<TableServer> &servers;
};

/// Finds the topology from one of its sources.
class TopologyFinder {
public:
  TopologyFinder(const Environment &environment, const LaunchOptions &options, const PlanNeeds &plan)
      : variables(environment), options(options), plan(plan) {}

  Topology find() {
    checkOptions();
    const RankVariables *launcher = launcherOf();
    if (options.table)
      fromTable();
    else if (options.nodes)
      fromOptions();
    else if (launcher)
      fromRankVariables(*launcher);
    else if (variables.text("WORLD_SIZE") && variables.text("RANK") && variables.text("MASTER_ADDR") &&
             variables.number("WORLD_SIZE") != 1)
      fromKubernetes();
    else
      alone();
    if ((options.table || options.nodes) && launcher)
      throw LaunchError(fmt::format("{} and the variables of {} ({}) both say who this process is; give one of them",
                                    options.table ? "--rank-table" : "--nodes", launcher->name, launcher->rank));
    return std::move(found);
  }

private:
  void fact(const char *name, const std::string &value, const std::string &source) {
    found.facts.push_back({name, value, source});
  }

  void checkOptions() const {
    if (options.table && options.nodes)
      throw LaunchError("--rank-table and --nodes both say which hosts there are; give one of them");
    if (options.nodes.has_value() != options.nodeRank.has_value())
      throw LaunchError(fmt::format("{} needs {}", options.nodes ? "--nodes" : "--node-rank",
                                    options.nodes ? "--node-rank, from 0" : "--nodes, how many hosts there are"));
    if (options.nodes && (*options.nodes < 1 || *options.nodeRank < 0 || *options.nodeRank >= *options.nodes))
      throw LaunchError(
          fmt::format("--node-rank {} of --nodes {}: wanted 0 to nodes - 1", *options.nodeRank, *options.nodes));
    if (options.nodes && *options.nodes > 1 && options.rendezvous.empty())
      throw LaunchError("--nodes above 1 needs --rendezvous HOST:PORT, an address of node 0 that all nodes reach");
    if (!options.table && (!options.serverId.empty() || !options.deviceRange.empty()))
      throw LaunchError(
          fmt::format("{} needs --rank-table", options.serverId.empty() ? "--device-range" : "--server-id"));
  }

  const RankVariables *launcherOf() const {
    const RankVariables *first = nullptr;
    for (const RankVariables &launcher : perRank) {
      // A launcher of one process is ignored, because that process has all ranks.
      if (!variables.text(launcher.signature) || !variables.text(launcher.rank) ||
          variables.number(launcher.world) == 1)
        continue;
      if (!first) {
        first = &launcher;
        continue;
      }
      // If one launcher runs inside another, both must assign this process the same rank.
      std::optional<int> world = variables.number(launcher.world);
      if (world && variables.number(launcher.rank) != variables.number(first->rank) &&
          *world == variables.number(first->world))
        throw LaunchError(fmt::format("{} gives rank {} ({}), {} gives rank {} ({}); unset one", first->name,
                                      *variables.number(first->rank), first->rank, launcher.name,
                                      *variables.number(launcher.rank), launcher.rank));
    }
    return first;
  }

  void checkWorld(int world, const std::string &source) const {
    if (plan.ranks != 0 && world != plan.ranks)
      throw LaunchError(fmt::format("{} says {}, {} is a plan for {}: start {}, or compile for {}", source,
                                    counted(world, "rank"), plan.name, plan.ranks, plan.ranks,
                                    counted(world, "device")));
  }

  static void checkRank(const char *rankName, int rank, const char *worldName, int world) {
    if (world < 1)
      throw LaunchError(fmt::format("{} is {}, wanted a number from 1", worldName, world));
    if (rank >= world)
      throw LaunchError(
          fmt::format("{} is {}, wanted 0 to {}, as {} is {}", rankName, rank, world - 1, worldName, world));
  }

  void fromRankVariables(const RankVariables &v) {
    auto source = [&](const char *name) { return fmt::format("{} of {}", name, v.name); };
    found.launcher = v.launcher;
    found.world = variables.needed(v, v.world);
    checkWorld(found.world, source(v.world));
    int rank = variables.needed(v, v.rank), local = variables.needed(v, v.localRank);
    checkRank(v.rank, rank, v.world, found.world);
    found.ranks = {rank};
    found.devices = {local};
    fact("world", std::to_string(found.world), source(v.world));
    fact("rank", std::to_string(rank), source(v.rank));
    fact("device", std::to_string(local), source(v.localRank));
    found.node = variables.number(v.node).value_or(0);
    found.nodes = std::max(1, variables.number(v.nodes).value_or(1));
    found.hostRanks = variables.number(v.localWorld).value_or(0);
    if (v.launcher == Topology::Slurm)
      found.hostRanks = tasksOfNode(variables.text("SLURM_STEP_TASKS_PER_NODE").value_or(""), found.node).value_or(0);
    if (found.hostRanks == 0)
      found.hostRanks = found.world / found.nodes;
    if (local >= found.hostRanks)
      throw LaunchError(fmt::format("{} is {}, wanted 0 to {}, as this host has {} ranks", v.localRank, local,
                                    found.hostRanks - 1, found.hostRanks));
    fact("ranks of this host", std::to_string(found.hostRanks),
         v.localWorld && variables.text(v.localWorld) ? source(v.localWorld) : fmt::format("variables of {}", v.name));
    found.hostRendezvous = v.name;
    for (const char *name : v.run)
      found.hostRendezvous += "-" + variables.text(name).value_or("");
    findMaster(v);
  }

  void findMaster(const RankVariables &v) {
    if (!options.rendezvous.empty()) {
      found.rendezvous = options.rendezvous;
      fact("rendezvous", found.rendezvous, "--rendezvous");
    } else if (v.launcher == Topology::Torchrun || variables.text("MASTER_ADDR")) {
      std::optional<std::string> host = variables.text("MASTER_ADDR"), port = variables.text("MASTER_PORT");
      if (!host || !port)
        throw LaunchError(fmt::format("{} is not set: ranks do not know where to meet; give --rendezvous HOST:PORT",
                                      host ? "MASTER_PORT" : "MASTER_ADDR"));
      // torchrun's own store uses MASTER_PORT, so the run uses the next port.
      int shifted = *variables.number("MASTER_PORT") + (v.launcher == Topology::Torchrun ? 1 : 0);
      found.rendezvous = fmt::format("{}:{}", *host, shifted);
      fact("rendezvous", found.rendezvous,
           v.launcher == Topology::Torchrun ? "MASTER_ADDR, and the port behind MASTER_PORT"
                                            : "MASTER_ADDR, MASTER_PORT");
    } else if (v.launcher == Topology::Slurm) {
      std::optional<std::string> hosts = variables.text("SLURM_STEP_NODELIST");
      if (!hosts)
        throw LaunchError(
            "SLURM_STEP_NODELIST is not set: ranks do not know where to meet; give --rendezvous HOST:PORT");
      found.rendezvous =
          fmt::format("{}:{}", firstHost(*hosts), firstPort + variables.number("SLURM_JOB_ID").value_or(0) % ports);
      fact("rendezvous", found.rendezvous, "first of SLURM_STEP_NODELIST, port of SLURM_JOB_ID");
    }
  }

  /// Assigns consecutive ranks to the process of a host.
  void takeHost(int node, int nodes) {
    int ranks = plan.ranks != 0 ? plan.ranks : nodes;
    if (ranks % nodes != 0)
      throw LaunchError(fmt::format("{} is a plan for {} ranks, which {} nodes cannot share equally; a rank table can "
                                    "say who has how many",
                                    plan.name, plan.ranks, nodes));
    found.node = node;
    found.nodes = nodes;
    found.world = ranks;
    found.hostRanks = ranks / nodes;
    found.ranks.resize(found.hostRanks);
    std::iota(found.ranks.begin(), found.ranks.end(), node * found.hostRanks);
    found.devices.resize(found.hostRanks);
    std::iota(found.devices.begin(), found.devices.end(), 0);
  }

  void fromOptions() {
    found.launcher = Topology::Options;
    takeHost(*options.nodeRank, *options.nodes);
    found.rendezvous = options.rendezvous;
    fact("nodes", std::to_string(found.nodes), "--nodes");
    fact("node", std::to_string(found.node), "--node-rank");
    if (!found.rendezvous.empty())
      fact("rendezvous", found.rendezvous, "--rendezvous");
  }

  /// PyTorchJob starts one pod per host. It sets torch's variables except LOCAL_RANK.
  void fromKubernetes() {
    found.launcher = Topology::Kubernetes;
    int nodes = *variables.number("WORLD_SIZE"), node = *variables.number("RANK");
    checkRank("RANK", node, "WORLD_SIZE", nodes);
    takeHost(node, nodes);
    fact("nodes", std::to_string(nodes), "WORLD_SIZE of the job (no LOCAL_RANK: a process per host)");
    fact("node", std::to_string(node), "RANK of the job");
    if (!variables.text("MASTER_PORT"))
      throw LaunchError("MASTER_PORT is not set: ranks do not know where to meet; give --rendezvous HOST:PORT");
    found.rendezvous = options.rendezvous.empty()
                           ? fmt::format("{}:{}", *variables.text("MASTER_ADDR"), *variables.number("MASTER_PORT"))
                           : options.rendezvous;
    fact("rendezvous", found.rendezvous, options.rendezvous.empty() ? "MASTER_ADDR, MASTER_PORT" : "--rendezvous");
  }

  void alone() {
    takeHost(0, 1);
    fact("world", std::to_string(found.world), "the plan; nothing started this process as one of several");
  }

  void fromTable() {
    checkWorld(options.table->ranks(), options.tableFile);
    found.launcher = Topology::Table;
    size_t own = ServerFinder(options).find();
    const TableServer &server = options.table->servers[own];
    found.node = static_cast<int>(own);
    found.nodes = static_cast<int>(options.table->servers.size());
    found.world = options.table->ranks();
    found.hostRanks = static_cast<int>(server.devices.size());
    for (const TableDevice &device : server.devices) {
      found.ranks.push_back(device.rank);
      found.devices.push_back(device.device);
    }
    fact("world", std::to_string(found.world), options.tableFile);
    fact("node", std::to_string(found.node),
         !options.serverId.empty()      ? "--server-id"
         : !options.deviceRange.empty() ? "--device-range"
         : found.nodes == 1             ? options.tableFile
                                        : "this host's name in " + options.tableFile);
    if (found.nodes == 1)
      return;
    found.rendezvous = options.rendezvous.empty() ? fmt::format("{}:{}", options.table->servers.front().id, firstPort)
                                                  : options.rendezvous;
    fact("rendezvous", found.rendezvous,
         options.rendezvous.empty() ? "first server of " + options.tableFile : "--rendezvous");
  }

  const LauncherVariables variables;
  const LaunchOptions &options;
  const PlanNeeds &plan;
  Topology found;
};

} // namespace

Environment environmentOfProcess() {
  Environment environment;
  auto take = [&](const char *name) {
    if (const char *value = name ? std::getenv(name) : nullptr)
      environment[name] = value;
  };
  for (const RankVariables &v : perRank)
    for (const char *name :
         {v.signature, v.rank, v.world, v.localRank, v.localWorld, v.node, v.nodes, v.run[0], v.run[1]})
      take(name);
  for (const char *name : otherVariables)
    take(name);
  return environment;
}

Topology findTopology(const Environment &environment, const LaunchOptions &options, const PlanNeeds &plan) {
  Topology topology = TopologyFinder(environment, options, plan).find();
  // CPU ranks on several hosts communicate over MPI, so mpirun or srun must have started them.
  bool hasMpi = topology.launcher == Topology::Mpi || topology.launcher == Topology::Slurm;
  if (!plan.isCuda && !topology.isOneHost() && !hasMpi)
    throw LaunchError(fmt::format("{} is a plan for CPUs on {} hosts, whose ranks talk over MPI: mpirun -np {} --host "
                                  "HOST:{},... espalier run {}",
                                  plan.name, topology.nodes, plan.ranks, topology.hostRanks, plan.name));
  return topology;
}

Topology findRendezvous(const Environment &environment, const LaunchOptions &options) {
  return TopologyFinder(environment, options, {.ranks = 0, .name = ""}).find();
}

std::string describe(const Topology &topology) {
  std::string text;
  for (const Fact &fact : topology.facts)
    text += fmt::format("  {} {} ({})\n", fact.name, fact.value, fact.source);
  return text;
}

} // namespace espalier::rt::launch
