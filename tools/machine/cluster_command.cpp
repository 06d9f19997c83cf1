// `espalier cluster`: generates, merges and checks rank tables.
#include "tools/commands.h"

#include "format/mesh.h"
#include "format/plan_file.h"
#include "messages/counted.h"
#include "messages/error_line.h"
#include "runtime/files/atomic_file.h"
#include "runtime/launch/rank_table.h"

#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

namespace launch = rt::launch;

struct ClusterArguments {
  std::string hosts, output, table, plan;
  std::vector<std::string> tables;
  bool json = false;
};

/// Prints the size of a table, or a fault of it, as JSON.
void printJson(const std::string &file, const launch::RankTable &table, const std::string &fault) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  if (!fault.empty())
    errors.push_back(fault);
  fmt::print("{}\n", nlohmann::ordered_json({{"schema", 1},
                                             {"file", file},
                                             {"ok", fault.empty()},
                                             {"hosts", table.servers.size()},
                                             {"ranks", table.ranks()},
                                             {"errors", errors}})
                         .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Formats the size of a table: "1 host, 8 ranks".
std::string sizeOf(const launch::RankTable &table) {
  return rt::counted(static_cast<int64_t>(table.servers.size()), "host") + ", " + rt::counted(table.ranks(), "rank");
}

void write(const ClusterArguments &arguments, const launch::RankTable &table) {
  rt::writeWhole(arguments.output, launch::printRankTable(table));
  if (arguments.json)
    printJson(arguments.output, table, "");
  else
    fmt::print("{}: {}\n", arguments.output, sizeOf(table));
}

void addJson(const Verb &verb, ClusterArguments &arguments) {
  verb.flag("--json", arguments.json, "print the result as JSON");
}

void addGenerate(const Verb &cluster, std::shared_ptr<ClusterArguments> arguments) {
  Verb verb = cluster.verb("generate", "A rank table for the hosts of a file");
  verb.option("--hosts", arguments->hosts, "lines ADDRESS slots=N [device_ips=A,B]").required();
  verb.option("-o,--output", arguments->output, "the table to write").required();
  addJson(verb, *arguments);
  verb.action([arguments] { write(*arguments, launch::tableOf(launch::readHosts(arguments->hosts))); });
}

void addMerge(const Verb &cluster, std::shared_ptr<ClusterArguments> arguments) {
  Verb verb = cluster.verb("merge", "One table of several, ranks counted anew in the order given");
  verb.option("tables", arguments->tables, "rank tables").required();
  verb.option("-o,--output", arguments->output, "the table to write").required();
  addJson(verb, *arguments);
  verb.action([arguments] {
    std::vector<launch::RankTable> tables;
    for (const std::string &file : arguments->tables)
      tables.push_back(launch::readRankTable(file));
    write(*arguments, launch::mergeRankTables(tables));
  });
}

ExitCode check(const ClusterArguments &arguments) {
  launch::RankTable table = launch::readRankTable(arguments.table);
  if (!arguments.plan.empty()) {
    int ranks = rt::Mesh(rt::readPlan(arguments.plan).mesh()).ranks();
    if (ranks != table.ranks()) {
      std::string fault =
          fmt::format("has {}, {} is a plan for {}; make a table of as many, or compile for {}",
                      rt::counted(table.ranks(), "rank"), arguments.plan, ranks, rt::counted(table.ranks(), "device"));
      printError(arguments.table, fault);
      if (arguments.json)
        printJson(arguments.table, table, fault);
      return UserError;
    }
  }
  if (arguments.json)
    printJson(arguments.table, table, "");
  else
    fmt::print("{}: {}; holds\n", arguments.table, sizeOf(table));
  return Success;
}

void addCheck(const Verb &cluster, std::shared_ptr<ClusterArguments> arguments) {
  Verb verb = cluster.verb("check", "Whether a rank table holds, and fits a plan");
  verb.option("table", arguments->table, "the rank table").required();
  verb.option("--plan", arguments->plan, "a plan that it must fit");
  addJson(verb, *arguments);
  verb.action([arguments] { return check(*arguments); });
}

} // namespace

void addClusterCommand(const Verb &app) {
  Verb cluster = app.verb("cluster", "Make, merge and check rank tables");
  cluster.requireVerb();
  auto arguments = std::make_shared<ClusterArguments>();
  addGenerate(cluster, arguments);
  addMerge(cluster, arguments);
  addCheck(cluster, arguments);
}

} // namespace espalier
