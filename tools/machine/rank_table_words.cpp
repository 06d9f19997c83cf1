#include "tools/machine/rank_table_words.h"

#include "format/path_kind.h"
#include "runtime/launch/rank_table.h"

#include <fmt/format.h>
#include <optional>

namespace espalier {
namespace {

/// Removes `--NAME VALUE` or `--NAME=VALUE` from the words and returns the value. The last occurrence wins.
std::optional<std::string> take(std::vector<std::string> &words, const std::string &name) {
  std::optional<std::string> value;
  for (size_t i = 0; i < words.size();) {
    if (words[i] == name && i + 1 < words.size()) {
      value = words[i + 1];
      words.erase(words.begin() + i, words.begin() + i + 2);
    } else if (words[i].starts_with(name + "=")) {
      value = words[i].substr(name.size() + 1);
      words.erase(words.begin() + i);
    } else {
      ++i;
    }
  }
  return value;
}

} // namespace

std::vector<std::string> resolveRankTable(std::vector<std::string> words) {
  std::vector<std::string> rest = words;
  std::optional<std::string> cluster = take(rest, "--cluster"), file = take(rest, "--rank-table");
  if (cluster && rt::pathKind(*cluster) == rt::PathKind::RankTable)
    throw rt::PlanError(
        fmt::format("--cluster: {0} is a rank table, which has no rates; give --cluster NAME --rank-table "
                    "{0}",
                    *cluster));
  if (!file)
    return words;
  if (!cluster)
    throw rt::PlanError("--rank-table gives hosts and devices only; give --cluster NAME, too, for the rates");
  rt::launch::RankTable table = rt::launch::readRankTable(*file, /*needsAddresses=*/false);
  size_t devices = table.servers.front().devices.size();
  for (const rt::launch::TableServer &server : table.servers)
    if (server.devices.size() != devices)
      throw rt::PlanError(fmt::format("{}: server {} has {} devices, server {} has {}; a plan needs equal hosts", *file,
                                      table.servers.front().id, devices, server.id, server.devices.size()));
  rest.push_back("--cluster");
  rest.push_back(fmt::format("{}:{}x{}", cluster->substr(0, cluster->find(':')), table.servers.size(), devices));
  return rest;
}

} // namespace espalier
