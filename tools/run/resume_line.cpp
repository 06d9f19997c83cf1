#include "tools/run/resume_line.h"

#include "tools/run/quote.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>
#include <vector>

namespace espalier {
namespace {

using rt::launch::Topology;
using Words = std::vector<std::string>;

Words wordsOf(const std::string &process) {
  std::ifstream file("/proc/" + process + "/cmdline", std::ios::binary);
  Words words;
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(word);
  return words;
}

/// Whether `line` ends with `end`, ignoring the folder of its program.
bool endsWith(const Words &line, const Words &end) {
  if (end.empty() || line.size() <= end.size())
    return false;
  auto rest = line.end() - static_cast<std::ptrdiff_t>(end.size());
  bool isProgram = end.front() == *rest || end.front().ends_with("/" + *rest);
  return isProgram && std::equal(rest + 1, line.end(), end.begin() + 1);
}

/// Returns the least arguments that an unknown launcher was given.
Words wordsOfLauncher(const Topology &topology) {
  std::string world = std::to_string(topology.world), nodes = std::to_string(topology.nodes);
  if (topology.launcher == Topology::Mpi)
    return {"mpirun", "-np", world};
  if (topology.launcher == Topology::Slurm)
    return {"srun", "-K", "-N", nodes, "-n", world};
  Words words = {"torchrun", "--nproc-per-node", std::to_string(topology.hostRanks), "--no-python"};
  if (topology.nodes > 1)
    words.insert(words.begin() + 1, {"--nnodes", nodes, "--node-rank", std::to_string(topology.node), "--master-addr",
                                     topology.rendezvous.substr(0, topology.rendezvous.rfind(':'))});
  return words;
}

std::string withResume(Words words) {
  if (std::ranges::find(words, "--resume") == words.end())
    words.push_back("--resume");
  return quote(words);
}

} // namespace

std::string ownLine() { return withResume(wordsOf("self")); }

std::string resumeLine(const Topology &topology) {
  if (const char *launch = std::getenv(launchedBy))
    return launch;
  Words own = wordsOf("self");
  if (!topology.isProcessPerRank())
    return withResume(std::move(own));
  Words line = wordsOf(std::to_string(getppid()));
  if (!endsWith(line, own)) {
    line = wordsOfLauncher(topology);
    line.insert(line.end(), own.begin(), own.end());
  }
  return withResume(std::move(line));
}

} // namespace espalier
