// Every seed and past finding through its parser, whole, cut at many places and with single bits
// flipped. A fault shows as a crash, or under the sanitizers as a report.
#include "test/fuzz/data/targets.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

namespace espalier::rt::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> seedsOf(const std::string &target) {
  std::vector<fs::path> paths;
  for (const auto &entry : fs::directory_iterator(fs::path(ESPALIER_SOURCE_DIR) / "test/fuzz/data/seeds" / target))
    paths.push_back(entry.path());
  // The small models of the golden folder are seeds as well.
  for (const auto &entry : fs::directory_iterator(fs::path(ESPALIER_SOURCE_DIR) / "test/golden/tokenizers"))
    if ((target == "hf" && entry.path().extension() == ".json") ||
        (target == "sentencepiece" && entry.path().extension() == ".model"))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const fs::path &path : paths) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    seeds.push_back(text.str());
  }
  return seeds;
}

class Seeds : public testing::TestWithParam<Target> {};

TEST_P(Seeds, WholeCutAndFlipped) {
  Target target = GetParam();
  std::vector<std::string> seeds = seedsOf(target.name);
  ASSERT_GE(seeds.size(), 2U);
  std::mt19937 random(1);
  int runs = 0;
  for (const std::string &seed : seeds) {
    auto run = [&](const std::string &bytes) {
      EXPECT_EQ(target.run(reinterpret_cast<Bytes>(bytes.data()), bytes.size()), 0);
      ++runs;
    };
    run(seed);
    for (int i = 0; i < 40 && !seed.empty(); ++i) {
      run(seed.substr(0, random() % seed.size()));
      std::string flipped = seed;
      flipped[random() % seed.size()] ^= static_cast<char>(1 << random() % 8);
      run(flipped);
    }
  }
  EXPECT_GT(runs, 80);
}

INSTANTIATE_TEST_SUITE_P(Parsers, Seeds, testing::ValuesIn(targets()),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace espalier::rt::fuzz
