// Option `--rank-table T.json` of the compiler's subcommands. Hosts and devices come from the rank table, rates from a
// cluster file.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Replaces `--cluster NAME --rank-table T.json` by `--cluster NAME:HOSTSxDEVICES`. Throws rt::PlanError if the table
/// is invalid, if its hosts have unequal numbers of devices, if --cluster is missing, or if --cluster is itself a
/// table.
std::vector<std::string> resolveRankTable(std::vector<std::string> words);

} // namespace espalier
