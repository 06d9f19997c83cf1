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

struct ClusterWords {
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

void write(const ClusterWords &words, const launch::RankTable &table) {
  rt::writeWhole(words.output, launch::printRankTable(table));
  if (words.json)
    printJson(words.output, table, "");
  else
    fmt::print("{}: {}\n", words.output, sizeOf(table));
}

void addJson(const Verb &verb, ClusterWords &words) { verb.flag("--json", words.json, "print the result as JSON"); }

void addGenerate(const Verb &cluster, std::shared_ptr<ClusterWords> words) {
  Verb verb = cluster.verb("generate", "A rank table for the hosts of a file");
  verb.option("--hosts", words->hosts, "lines ADDRESS slots=N [device_ips=A,B]").required();
  verb.option("-o,--output", words->output, "the table to write").required();
  addJson(verb, *words);
  verb.action([words] { write(*words, launch::tableOf(launch::readHosts(words->hosts))); });
}

void addMerge(const Verb &cluster, std::shared_ptr<ClusterWords> words) {
  Verb verb = cluster.verb("merge", "One table of several, ranks counted anew in the order given");
  verb.option("tables", words->tables, "rank tables").required();
  verb.option("-o,--output", words->output, "the table to write").required();
  addJson(verb, *words);
  verb.action([words] {
    std::vector<launch::RankTable> tables;
    for (const std::string &file : words->tables)
      tables.push_back(launch::readRankTable(file));
    write(*words, launch::mergeRankTables(tables));
  });
}

ExitCode check(const ClusterWords &words) {
  launch::RankTable table = launch::readRankTable(words.table);
  if (!words.plan.empty()) {
    int ranks = rt::Mesh(rt::readPlan(words.plan).mesh()).ranks();
    if (ranks != table.ranks()) {
      std::string fault =
          fmt::format("has {}, {} is a plan for {}; make a table of as many, or compile for {}",
                      rt::counted(table.ranks(), "rank"), words.plan, ranks, rt::counted(table.ranks(), "device"));
      printError(words.table, fault);
      if (words.json)
        printJson(words.table, table, fault);
      return UserError;
    }
  }
  if (words.json)
    printJson(words.table, table, "");
  else
    fmt::print("{}: {}; holds\n", words.table, sizeOf(table));
  return Success;
}

void addCheck(const Verb &cluster, std::shared_ptr<ClusterWords> words) {
  Verb verb = cluster.verb("check", "Whether a rank table holds, and fits a plan");
  verb.option("table", words->table, "the rank table").required();
  verb.option("--plan", words->plan, "a plan that it must fit");
  addJson(verb, *words);
  verb.action([words] { return check(*words); });
}

} // namespace

void addClusterCommand(const Verb &app) {
  Verb cluster = app.verb("cluster", "Make, merge and check rank tables");
  cluster.requireVerb();
  auto words = std::make_shared<ClusterWords>();
  addGenerate(cluster, words);
  addMerge(cluster, words);
  addCheck(cluster, words);
}

} // namespace espalier
