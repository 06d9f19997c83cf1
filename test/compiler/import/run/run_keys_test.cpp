// The table of keys in configs/README.md.
#include "compiler/import/run/run_keys.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

namespace espalier {
namespace {

/// Returns the rows "| `key` | type | default | action | effect |" of the section about keys, without the defaults.
std::map<std::string, std::string> rowsOfReadme() {
  std::ifstream file(ESPALIER_SOURCE_DIR "/configs/README.md");
  std::map<std::string, std::string> rows;
  bool isOfKeys = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## "))
      isOfKeys = line == "## Keys of a run file";
    if (!isOfKeys || !line.starts_with("| `"))
      continue;
    std::vector<std::string> cells;
    for (size_t begin = 2, end; (end = line.find(" |", begin)) != std::string::npos; begin = end + 3)
      cells.push_back(line.substr(begin, end - begin));
    if (cells.size() == 5)
      rows[cells[0].substr(1, cells[0].size() - 2)] = fmt::format("{} | {} | {}", cells[1], cells[3], cells[4]);
    else
      ADD_FAILURE() << "not a row of five cells: " << line;
  }
  return rows;
}

TEST(RunKeysTest, ReadmeListsEveryKey) {
  std::map<std::string, std::string> keys;
  for (const KeyRule &rule : runKeys()) {
    bool repeats = rule.path.starts_with("eval_dataset") || rule.path.starts_with("train_dataset_task.dataset_config.");
    if (!repeats) // the page says so in one sentence
      keys[rule.path] = fmt::format("{} | {} | {}", keyTypeName(rule.type), keyActionName(rule.action), rule.effect);
  }
  std::map<std::string, std::string> rows = rowsOfReadme();
  for (const auto &[key, row] : keys)
    EXPECT_EQ(rows.contains(key) ? rows.at(key) : "no row", row) << key;
  for (const auto &[key, row] : rows)
    EXPECT_TRUE(keys.contains(key)) << key << " is no key of run_keys.cpp";
}

} // namespace
} // namespace espalier
