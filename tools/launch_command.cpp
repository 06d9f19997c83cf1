// `espalier launch`: starts a run on the hosts of a file. CPU plans go to mpirun, which starts the hosts itself; for
// CUDA plans each host gets a line to run by ssh or what takes its place.
#include "tools/commands.h"

#include "runtime/launch/rank_table.h"
#include "runtime/mesh.h"
#include "runtime/plan_file.h"
#include "tools/host_lines.h"
#include "tools/mpirun.h"
#include "tools/quote.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <unistd.h>

namespace espalier {
namespace {

using rt::launch::Host;

struct LaunchWords {
  std::string hosts, ssh;
  std::vector<std::string> run; ///< "run", "X.plan", ...
};

std::string ownFile() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// The hosts have as many slots as the plan has ranks, or a sentence says what they have.
void checkSlots(const LaunchWords &words, const std::vector<Host> &hosts, int ranks) {
  int slots = 0;
  for (const Host &host : hosts)
    slots += host.slots;
  if (slots != ranks)
    throw rt::PlanError(fmt::format("{} has {} slots, {} is a plan for {} ranks; give as many", words.hosts, slots,
                                    words.run[1], ranks));
}

int runOverMpi(const LaunchWords &words, const std::vector<Host> &hosts, int ranks) {
  std::vector<std::string> places;
  for (const Host &host : hosts)
    places.push_back(fmt::format("{}:{}", host.address, host.slots));
  // Ranks of several threads are bound to no core.
  std::vector<std::string> line = {
      "mpirun", "-np", std::to_string(ranks), "--host", fmt::format("{}", fmt::join(places, ",")), "--bind-to", "none"};
  if (!words.ssh.empty())
    line.insert(line.end(), {"--mca", "plm_rsh_agent", words.ssh});
  line.push_back(ownFile());
  line.insert(line.end(), words.run.begin(), words.run.end());
  return runMpirun(std::move(line));
}

/// What host `node` runs. The token is the first line of its standard input; a second one, or the end, asks for the
/// run's end.
std::string lineOf(const LaunchWords &words, int node, size_t nodes, const std::string &rendezvous) {
  std::vector<std::string> run = {ownFile()};
  run.insert(run.end(), words.run.begin(), words.run.end());
  for (const std::string &word : {std::string("--nodes"), std::to_string(nodes), std::string("--node-rank"),
                                  std::to_string(node), std::string("--rendezvous"), rendezvous})
    run.push_back(word);
  std::vector<std::string> folder = {std::filesystem::current_path().string()};
  std::string script =
      fmt::format("cd {} && IFS= read -r ESPALIER_TOKEN && export ESPALIER_TOKEN || exit 2; exec 3<&0; "
                  "{} </dev/null & run=$!; (read -r word; kill $run) <&3 & end=$!; "
                  "wait $run; status=$?; kill $end; exit $status",
                  quote(folder), quote(run));
  return quote(std::vector<std::string>{"sh", "-c", script});
}

int runOverSsh(const LaunchWords &words, const std::vector<Host> &hosts) {
  for (const Host &host : hosts)
    if (host.slots != hosts.front().slots)
      throw rt::PlanError(fmt::format("{}: {} has {} slots, {} has {}; hosts need equal numbers, or a rank table and a "
                                      "command on each",
                                      words.hosts, hosts.front().address, hosts.front().slots, host.address,
                                      host.slots));
  std::string rendezvous = makeRendezvous(hosts.front().address);
  std::vector<HostLine> lines;
  for (size_t node = 0; node < hosts.size(); ++node)
    lines.push_back({hosts[node].address, lineOf(words, static_cast<int>(node), hosts.size(), rendezvous)});
  return runHostLines(words.ssh.empty() ? "ssh" : words.ssh, lines, makeToken());
}

int launch(const LaunchWords &words) {
  if (words.run.size() < 2 || words.run[0] != "run")
    throw rt::PlanError("launch starts runs: espalier launch --hosts FILE -- run X.plan ...");
  std::vector<Host> hosts = rt::launch::readHosts(words.hosts);
  rt::pb::Plan plan = rt::readPlan(words.run[1]);
  int ranks = rt::Mesh(plan.mesh()).ranks();
  checkSlots(words, hosts, ranks);
  if (plan.target() == "cpu")
    return runOverMpi(words, hosts, ranks);
  return runOverSsh(words, hosts);
}

} // namespace

void addLaunchCommand(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand("launch", "Start a run on several hosts: by mpirun for CPU plans, else by ssh");
  auto words = std::make_shared<LaunchWords>();
  verb->add_option("--hosts", words->hosts, "lines ADDRESS slots=N")->required();
  verb->add_option("--ssh", words->ssh, "what runs a line on a host: COMMAND ADDRESS LINE; default: ssh");
  verb->add_option("command", words->run, "behind --: run X.plan ..., the plan first");
  verb->callback([words, &exitCode] { exitCode = launch(*words); });
}

} // namespace espalier
