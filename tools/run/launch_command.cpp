// `espalier launch`: starts a run on the hosts of a file. CPU plans use mpirun, which starts the hosts itself. For
// CUDA plans each host runs one command line over ssh or a replacement. mpirun is started on one of the hosts: from a
// machine without ranks it could not be ended while it waits for a host that does not answer.
#include "tools/commands.h"

#include "format/mesh.h"
#include "format/plan_file.h"
#include "messages/counted.h"
#include "runtime/elastic/attempt.h"
#include "runtime/elastic/elastic_run.h"
#include "runtime/host_name.h"
#include "runtime/launch/control_channel.h"
#include "runtime/launch/rank_table.h"
#include "runtime/launch/socket.h"
#include "runtime/train/statement.h"
#include "tools/run/host_lines.h"
#include "tools/run/mpirun.h"
#include "tools/run/quote.h"
#include "tools/run/resume_line.h"
#include "tools/run/run_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

namespace espalier {
namespace {

using rt::launch::Host;

struct LaunchArguments {
  std::string hosts, ssh;
  bool isHere = false;
  std::vector<std::string> run; ///< the words of the run: "run", "X.plan", ...
};

/// Prints a line per host, so that the user sees which host does not answer.
void sayStarts(const std::vector<Host> &hosts) {
  for (const Host &host : hosts)
    fmt::print(stderr, "espalier: starting {} on {}\n", rt::counted(host.slots, "rank"), host.address);
}

std::string ownFile() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// Throws unless the hosts of the file have as many slots as the plan has ranks.
void checkSlots(const std::string &file, const std::vector<Host> &hosts, const std::string &plan, int ranks) {
  int slots = 0;
  for (const Host &host : hosts)
    slots += host.slots;
  if (slots != ranks)
    throw rt::PlanError(fmt::format("{} has {}, {} is a plan for {}; give as many", file, rt::counted(slots, "slot"),
                                    plan, rt::counted(ranks, "rank")));
}

/// Returns the variables of this process that change numbers. All hosts of the run get them.
std::vector<const char *> setVariables() {
  std::vector<const char *> names;
  for (const char *name : rt::numericVariables())
    if (std::getenv(name))
      names.push_back(name);
  return names;
}

int runOverMpi(const LaunchArguments &arguments, const std::vector<Host> &hosts) {
  sayStarts(hosts);
  std::vector<std::string> line = mpirunLine(hosts, arguments.ssh);
  line.insert(line.end(), {"-x", launchedBy});
  for (const char *name : setVariables())
    line.insert(line.end(), {"-x", name});
  if (std::getenv(rt::attemptVariable))
    line.insert(line.end(), {"-x", rt::attemptVariable});
  line.push_back(ownFile());
  line.insert(line.end(), arguments.run.begin(), arguments.run.end());
  return runMpirun(std::move(line));
}

/// Returns the shell line that runs `command` on a host. The first line of its standard input is the token. A second
/// line, or end of file, requests the end of the run. A third line ends it at once.
std::string lineOf(const std::vector<std::string> &command) {
  std::vector<std::string> folder = {std::filesystem::current_path().string()}, resume = {std::getenv(launchedBy)};
  const char *attempt = std::getenv(rt::attemptVariable);
  std::vector<std::string> attempts = {attempt ? attempt : ""};
  std::string more = attempt ? fmt::format(" {}={}", rt::attemptVariable, quote(attempts)) : "";
  for (const char *name : setVariables())
    more += fmt::format(" {}={}", name, quote(std::vector<std::string>{std::getenv(name)}));
  std::string script =
      fmt::format("cd {} && IFS= read -r ESPALIER_TOKEN && export ESPALIER_TOKEN {}={}{} || exit 2; exec 3<&0; "
                  "{} </dev/null & run=$!; "
                  "(read -r word; kill $run; read -r word && kill $run) <&3 2>/dev/null & end=$!; " // it may have ended
                  "wait $run; status=$?; kill $end; exit $status",
                  quote(folder), launchedBy, quote(resume), more, quote(command));
  return quote(std::vector<std::string>{"sh", "-c", script});
}

std::string sshOf(const LaunchArguments &arguments) {
  // The keep-alive options end the wait for a host that does not answer. An address behind `--` is no option.
  return arguments.ssh.empty()
             ? fmt::format("ssh {} -o ServerAliveInterval=1 -o ServerAliveCountMax=3 --", connectOptions)
             : arguments.ssh;
}

/// Whether an address or name belongs to this machine.
bool isHere(const Host &host) {
  if (host.address == rt::hostName())
    return true;
  try {
    rt::launch::listenAt({host.address.substr(host.address.find('@') + 1), 0}); // npos + 1: the whole
    return true;
  } catch (const rt::launch::ChannelError &) {
    return false;
  }
}

/// Runs the same command on the first host, because this machine is not one of the hosts.
int runFromOutside(const LaunchArguments &arguments, const std::vector<Host> &hosts) {
  fmt::print(stderr, "espalier: starting mpirun on {}, because this machine is not one of the hosts\n",
             hosts.front().address);
  std::vector<std::string> command = {ownFile(), "launch", "--here", "--hosts",
                                      std::filesystem::absolute(arguments.hosts).string()};
  if (!arguments.ssh.empty())
    command.insert(command.end(), {"--ssh", arguments.ssh});
  command.push_back("--");
  command.insert(command.end(), arguments.run.begin(), arguments.run.end());
  return runHostLines(sshOf(arguments), {{hosts.front().address, lineOf(command)}}, makeToken());
}

int runOverSsh(const LaunchArguments &arguments, const std::vector<Host> &hosts) {
  for (const Host &host : hosts)
    if (host.slots != hosts.front().slots)
      throw rt::PlanError(fmt::format("{}: {} has {} slots, {} has {}; hosts need equal numbers, or a rank table and a "
                                      "command on each",
                                      arguments.hosts, hosts.front().address, hosts.front().slots, host.address,
                                      host.slots));
  sayStarts(hosts);
  std::string rendezvous = makeRendezvous(hosts.front().address);
  std::vector<HostLine> lines;
  for (size_t node = 0; node < hosts.size(); ++node) {
    std::vector<std::string> command = {ownFile()};
    command.insert(command.end(), arguments.run.begin(), arguments.run.end());
    for (const std::string &word : {std::string("--nodes"), std::to_string(hosts.size()), std::string("--node-rank"),
                                    std::to_string(node), std::string("--rendezvous"), rendezvous})
      command.push_back(word);
    lines.push_back({hosts[node].address, lineOf(command)});
  }
  return runHostLines(sshOf(arguments), lines, makeToken());
}

/// Returns the hosts that run a line within `seconds`. This machine always answers.
std::vector<std::string> answering(const LaunchArguments &arguments, const std::vector<std::string> &addresses) {
  constexpr int seconds = 3;
  std::vector<std::string> alive;
  std::vector<HostLine> asked;
  for (const std::string &address : addresses)
    if (isHere({address, 1, {}}))
      alive.push_back(address);
    else
      asked.push_back({address, "true"});
  for (const std::string &address : hostsThatRun(sshOf(arguments), asked, std::chrono::seconds(seconds)))
    alive.push_back(address);
  return alive;
}

/// Supervises an elastic run: each attempt is this command again, with the hosts and the plan of the attempt.
int launchElastically(const LaunchArguments &arguments, const RunArguments &run, const std::vector<Host> &hosts,
                      const rt::pb::Plan &plan) {
  return rt::runElastic({.limits = run.elastic,
                         .plans = rt::readElasticPlans(run.plan),
                         .hosts = hosts,
                         .isCuda = plan.target() != "cpu",
                         .checkpoint = run.options.checkpoint,
                         .report = run.options.failureReport,
                         .resume = run.options.resume,
                         .answering = [&](const auto &addresses) { return answering(arguments, addresses); },
                         .deathSignal = SIGTERM,
                         .runAttempt = {}});
}

int launch(LaunchArguments arguments, RunArguments run) {
  std::optional<rt::Attempt> attempt = run.isElastic ? rt::attemptOfProcess() : std::nullopt;
  if (attempt) {
    arguments.hosts = attempt->hosts;
    run.plan = attempt->plan;
  }
  std::vector<Host> hosts = rt::launch::readHosts(arguments.hosts);
  rt::pb::Plan plan = rt::readPlan(run.plan);
  setenv(launchedBy, ownLine().c_str(), /*overwrite=*/0); // keeps the value if an outer `launch` has set it
  checkSlots(arguments.hosts, hosts, run.plan, rt::Mesh(plan.mesh()).ranks());
  if (run.isElastic && !attempt)
    return launchElastically(arguments, run, hosts, plan);
  if (plan.target() != "cpu")
    return runOverSsh(arguments, hosts);
  if (arguments.isHere || std::ranges::any_of(hosts, isHere))
    return runOverMpi(arguments, hosts);
  return runFromOutside(arguments, hosts);
}

/// Reads the words of the run as `espalier run` does, so that a mistake is reported once and not by every rank. Then
/// starts the run.
int readRunAndLaunch(const LaunchArguments &arguments) {
  if (arguments.run.empty() || arguments.run[0] != "run")
    throw rt::PlanError("launch starts runs: espalier launch --hosts FILE -- run X.plan ...");
  CommandLine line("espalier", "");
  RunArguments run;
  Verb verb = line.verb("run", "");
  addRunArguments(verb, run);
  verb.action([&] { return launch(arguments, run); });
  std::vector<const char *> pointers = {"espalier"};
  for (const std::string &word : arguments.run)
    pointers.push_back(word.c_str());
  return line.parse(static_cast<int>(pointers.size()), pointers.data());
}

} // namespace

void addLaunchCommand(const Verb &app) {
  Verb verb = app.verb("launch", "Start a run on several hosts: by mpirun for CPU plans, else by ssh");
  auto arguments = std::make_shared<LaunchArguments>();
  verb.option("--hosts", arguments->hosts, "lines ADDRESS slots=N, or a rank table").required();
  verb.option("--ssh", arguments->ssh,
              "what runs a line on a host: COMMAND ADDRESS LINE; default: ssh, which asks "
              "whether the host lives");
  verb.flag("--here", arguments->isHere,
            "start mpirun on this machine; default: on the first host if this machine is not one of the hosts");
  verb.option("command", arguments->run, "behind --: run X.plan ...");
  auto json = std::make_shared<bool>(false);
  verb.flag("--json", *json, "print one JSON object about the run at its end, as run --json does");
  verb.action([arguments, json] {
    if (*json && std::ranges::count(arguments->run, "--json") == 0)
      arguments->run.push_back("--json");
    return readRunAndLaunch(*arguments);
  });
}

} // namespace espalier
