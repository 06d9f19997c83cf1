// Who am I and who are the others: read from what started this process (nothing, mpirun, torchrun, srun, a Kubernetes
// job, a rank table, options), never guessed. Contradictions are refused in a sentence.
#pragma once

#include "runtime/launch/rank_table.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::rt::launch {

/// What started this process and what it was told contradict each other; the text is a user error.
class LaunchError : public PlanError {
public:
  using PlanError::PlanError;
};

/// Variables by name; of a process or, in tests, made up.
using Environment = std::map<std::string, std::string>;

/// The variables of this process that the launchers set.
Environment environmentOfProcess();

/// What the command line says about the topology.
struct LaunchOptions {
  std::optional<int> nodes, nodeRank; ///< --nodes, --node-rank
  std::string rendezvous;             ///< --rendezvous HOST:PORT
  std::optional<RankTable> table;     ///< --rank-table
  std::string tableFile;              ///< its name, for errors
  std::string serverId;               ///< --server-id
  std::string deviceRange;            ///< --device-range '[8,16]': ranks 8 to 15
  std::string hostName;               ///< this host's, to find the server of a table where nothing says which
};

/// What the plan asks for.
struct PlanNeeds {
  int ranks = 1; ///< 0: not known
  bool isCuda = false;
  std::string name; ///< its file, for errors
};

/// A fact and what said so: {"world", "8", "WORLD_SIZE of torchrun"}.
struct Fact {
  std::string name, value, source;
};

/// Which ranks this process starts, and how they find the others.
struct Topology {
  enum Launcher { Alone, Mpi, Torchrun, Slurm, Kubernetes, Table, Options };
  Launcher launcher = Alone;
  int node = 0, nodes = 1;
  /// Ranks of this process in ascending order: all of the host's where the launcher starts a process per host, one
  /// where it starts a process per rank.
  std::vector<int> ranks;
  std::vector<int> devices; ///< of each of `ranks`, a number on this host
  int world = 1;
  int hostRanks = 1;      ///< how many ranks of the plan share this host
  std::string rendezvous; ///< HOST:PORT; empty where all ranks are in this process, or MPI brings them together
  /// Under which name the processes of this host meet, which were started apart; empty where this one has all of the
  /// host's ranks.
  std::string meeting;
  std::vector<Fact> facts;

  bool isOneHost() const { return nodes == 1 && hostRanks == world; }
  bool isProcessPerRank() const { return launcher == Mpi || launcher == Torchrun || launcher == Slurm; }
  /// How many processes were started, and which of them this one is.
  int processes() const { return isProcessPerRank() ? world : nodes; }
  int process() const { return isProcessPerRank() ? ranks.front() : node; }
};

/// The topology, or LaunchError. Whether the host has its devices is the back end's to say.
Topology findTopology(const Environment &environment, const LaunchOptions &options, const PlanNeeds &plan);

/// What is known of it without a plan: who meets whom and where. A process that has all ranks of its host counts as one
/// rank. Throws LaunchError.
Topology findMeeting(const Environment &environment, const LaunchOptions &options);

/// Lines "world 8 (WORLD_SIZE of torchrun)" for people.
std::string describe(const Topology &topology);

} // namespace espalier::rt::launch
