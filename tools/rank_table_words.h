// `--rank-table T.json` of the compiler's verbs: hosts and devices of a table, rates of a cluster's file.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The words of a command in which `--cluster NAME --rank-table T.json` has become `--cluster NAME:HOSTSxDEVICES`.
/// Throws rt::PlanError where the table is none, its hosts have unequal numbers of devices, --cluster is missing or
/// names a table itself.
std::vector<std::string> resolveRankTable(std::vector<std::string> words);

} // namespace espalier
