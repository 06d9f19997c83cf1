// Passes every seed and past finding to its fuzz target: whole, cut at many places and with single flipped bits. A bug
// causes a crash or a sanitizer report.
#include "test/fuzz/data/targets.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sstream>

// LLVMFuzzerTestOneInput of NAME_fuzz.cpp. The build renames it, so that one program can contain all targets.
extern "C" int fuzz_completion_body(const uint8_t *data, size_t size);
extern "C" int fuzz_hf_config(const uint8_t *data, size_t size);
extern "C" int fuzz_http(const uint8_t *data, size_t size);
extern "C" int fuzz_jinja(const uint8_t *data, size_t size);
extern "C" int fuzz_manifest(const uint8_t *data, size_t size);
extern "C" int fuzz_options(const uint8_t *data, size_t size);
extern "C" int fuzz_safetensors(const uint8_t *data, size_t size);
extern "C" int fuzz_torch_file(const uint8_t *data, size_t size);

namespace espalier::rt::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path seedFolder = fs::path(ESPALIER_SOURCE_DIR) / "test/fuzz/seeds";

std::vector<Target> allTargets() {
  std::vector<Target> all = targets();
  all.insert(all.end(), {{"completion_body", fuzz_completion_body},
                         {"hf_config", fuzz_hf_config},
                         {"http", fuzz_http},
                         {"jinja", fuzz_jinja},
                         {"manifest", fuzz_manifest},
                         {"options", fuzz_options},
                         {"safetensors", fuzz_safetensors},
                         {"torch_file", fuzz_torch_file}});
  return all;
}

TEST(Seeds, EveryFolderHasATarget) {
  std::set<std::string> folders, names;
  for (const auto &entry : fs::directory_iterator(seedFolder))
    folders.insert(entry.path().filename());
  for (const Target &target : allTargets())
    names.insert(target.name);
  EXPECT_EQ(folders, names);
}

std::vector<std::string> seedsOf(const std::string &target) {
  std::vector<fs::path> paths;
  for (const auto &entry : fs::directory_iterator(seedFolder / target))
    paths.push_back(entry.path());
  // The small models of the golden folder are also seeds.
  for (const auto &entry : fs::directory_iterator(fs::path(ESPALIER_SOURCE_DIR) / "test/golden/tokenizers"))
    if ((target == "data_hf" && entry.path().extension() == ".json") ||
        (target == "data_sentencepiece" && entry.path().extension() == ".model") ||
        (target == "data_tiktoken" && (entry.path().extension() == ".tiktoken" || entry.path().stem() == "tekken")))
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

class Fuzzed : public testing::TestWithParam<Target> {};

TEST_P(Fuzzed, WholeCutAndFlipped) {
  Target target = GetParam();
  std::vector<std::string> seeds = seedsOf(target.name);
  ASSERT_GE(seeds.size(), 1U);
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

INSTANTIATE_TEST_SUITE_P(Parsers, Fuzzed, testing::ValuesIn(allTargets()),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace espalier::rt::fuzz
