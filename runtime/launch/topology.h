// Determines the ranks of this process and its peers from what started the process: nothing, mpirun, torchrun, srun, a
// Kubernetes job, a rank table, or options. Contradictions are errors; nothing is guessed.
#pragma once

#include "runtime/launch/rank_table.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::rt::launch {

/// The launcher and the options contradict each other. The text is a user error.
class LaunchError : public PlanError {
public:
  using PlanError::PlanError;
};

/// Environment variables by name. Tests pass their own.
using Environment = std::map<std::string, std::string>;

/// Returns the variables of this process that launchers set.
Environment environmentOfProcess();

/// The command-line options for the topology.
struct LaunchOptions {
  std::optional<int> nodes, nodeRank; ///< --nodes, --node-rank
  std::string rendezvous;             ///< --rendezvous HOST:PORT
  std::optional<RankTable> table;     ///< --rank-table
  std::string tableFile;              ///< its file name, for errors
  std::string serverId;               ///< --server-id
  std::string deviceRange;            ///< --device-range; '[8,16]' means ranks 8 to 15
  std::string hostName;               ///< this host's name, which finds its server in a table without --server-id
};

/// The requirements of the plan.
struct PlanNeeds {
  int ranks = 1; ///< 0: unknown
  bool isCuda = false;
  std::string name; ///< the plan's file name, for errors
};

/// A fact with its source, for example {"world", "8", "WORLD_SIZE of torchrun"}.
struct Fact {
  std::string name, value, source;
};

/// The ranks that this process starts, and how they find their peers.
struct Topology {
  /// What started the process.
  enum Launcher { Alone, Mpi, Torchrun, Slurm, Kubernetes, Table, Options };
  Launcher launcher = Alone;
  int node = 0, nodes = 1;
  /// Ranks of this process in ascending order: all ranks of the host if the launcher starts a process per host, one
  /// rank if it starts a process per rank.
  std::vector<int> ranks;
  std::vector<int> devices; ///< device index on this host, for each of `ranks`
  int world = 1;
  int hostRanks = 1;      ///< number of the plan's ranks on this host
  std::string rendezvous; ///< HOST:PORT; empty if this process has all ranks, or if MPI connects them
  /// The name under which separately started processes of this host find each other. It is empty if this process has
  /// all ranks of the host.
  std::string hostRendezvous;
  std::vector<Fact> facts;

  /// Returns whether all ranks of the run are on this host.
  bool isOneHost() const { return nodes == 1 && hostRanks == world; }
  /// Returns whether the launcher starts one process per rank.
  bool isProcessPerRank() const { return launcher == Mpi || launcher == Torchrun || launcher == Slurm; }
  /// Returns the number of processes that were started.
  int processes() const { return isProcessPerRank() ? world : nodes; }
  /// Returns the index of this process among them.
  int process() const { return isProcessPerRank() ? ranks.front() : node; }
};

/// Returns the topology. Throws LaunchError for contradictions. The backend checks that the host has the devices.
Topology findTopology(const Environment &environment, const LaunchOptions &options, const PlanNeeds &plan);

/// Returns the topology that is known without a plan, which is enough for the rendezvous. A process with all ranks of
/// its host counts as one rank. Throws LaunchError.
Topology findRendezvous(const Environment &environment, const LaunchOptions &options);

/// Formats the facts, one per line, for example "world 8 (WORLD_SIZE of torchrun)".
std::string describe(const Topology &topology);

} // namespace espalier::rt::launch
