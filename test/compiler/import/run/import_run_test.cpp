// Imports whole run files: ours, and those that MindFormers ships.
#include "compiler/import/run/explain.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/config_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string config(const std::string &name) { return std::string(ESPALIER_SOURCE_DIR "/configs/") + name + ".yaml"; }

fs::path shared() {
  const char *folder = std::getenv("ESPALIER_SHARED");
  return folder ? folder : ESPALIER_SOURCE_DIR "/../shared";
}

ImportedRun imported(const std::string &file, const ImportOptions &options = {}) {
  ImportOptions withConfigs = options;
  withConfigs.searchPath.push_back(ESPALIER_SOURCE_DIR "/configs");
  return importRun(file, withConfigs);
}

TEST(ImportRun, TinyGptIsPinnedOnEightRanks) {
  ImportedRun run = importRun(config("tiny_gpt"));
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  const RunConfig &c = run.config;
  EXPECT_EQ(c.cluster.devices(), 8);
  EXPECT_TRUE(c.isPinned);
  EXPECT_EQ(c.pins.dp, 2);
  EXPECT_EQ(c.pins.tp, 2);
  EXPECT_EQ(c.pins.pp, 2);
  EXPECT_GE(*c.pins.microBatches, 2);
  EXPECT_EQ(c.globalBatch, *c.pins.microBatches * *c.pins.microBatchSize * 2);
  EXPECT_EQ(c.model.dims.at("vocab"), 256);
  EXPECT_EQ(c.model.dims.at("head_dim"), 16);
  EXPECT_EQ(c.model.layerCount(), 4);
  EXPECT_DOUBLE_EQ(c.optimizer.epsilon, 1e-8);
  EXPECT_DOUBLE_EQ(c.schedule.peak(), 1e-3);
}

struct Count {
  const char *name;
  int64_t parameters;
};
class ParameterCount : public testing::TestWithParam<Count> {};

TEST_P(ParameterCount, IsExactWithoutPadding) {
  ImportedRun run = importRun(config(GetParam().name));
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.parameterCount(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Published, ParameterCount,
                         testing::Values(Count{"gpt2_124m", 124439808}, Count{"gpt2_xl", 1557611200},
                                         Count{"gpt2_13b", 12853386240}, Count{"gpt2_52b", 51966533632},
                                         Count{"gpt3_857m", 355871744}, Count{"gpt3_175b", 174615846912 - 943 * 12288},
                                         Count{"llama2_7b", 6738415616}),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(ImportRun, EveryConfigImportsWithoutErrorsOrWarnings) {
  int files = 0;
  for (const auto &entry : fs::directory_iterator(ESPALIER_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") {
      ImportedRun run = importRun(entry.path().string());
      EXPECT_EQ(run.diagnostics.render(), "") << entry.path();
      ++files;
    }
  EXPECT_GE(files, 9);
}

TEST(ImportRun, MindFormersFilesImportVerbatim) {
  fs::path root = shared() / "data" / "mindformers";
  if (!fs::exists(root))
    GTEST_SKIP() << "the shared MindFormers files are not here";
  int files = 0;
  for (const char *folder : {"r0.8/gpt2", "r1.0/gpt2", "r1.0/llama2"})
    for (const auto &entry : fs::directory_iterator(root / folder)) {
      ImportedRun run = imported(entry.path().string());
      EXPECT_TRUE(run.ok()) << run.diagnostics.render();
      EXPECT_GT(run.keys.size(), 80u) << entry.path();
      for (const KeyReport &key : run.keys)
        EXPECT_FALSE(key.effect.empty()) << key.key;
      ++files;
    }
  EXPECT_EQ(files, 22);
}

// In r0.3, base_config includes other files, and many keys have older names.
TEST(ImportRun, BaseConfigsAreMerged) {
  fs::path root = shared() / "data" / "mindformers" / "r0.3" / "gpt2";
  if (!fs::exists(root))
    GTEST_SKIP() << "the shared MindFormers files are not here";
  for (const char *name : {"run_gpt2", "run_gpt2_13b", "run_gpt2_52b"}) {
    ImportedRun run = imported((root / name).string() + ".yaml");
    EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  }
  ImportedRun run = imported((root / "run_gpt2_13b.yaml").string());
  EXPECT_EQ(run.config.model.parameterCount(), 12848143360); // seq 1024 in this release
  EXPECT_EQ(run.config.pins.tp, 8);
}

TEST(ImportRun, FaultsOfBaseConfigs) {
  fs::path folder = fs::path(testing::TempDir()) / "espalier_base_config";
  fs::create_directories(folder);
  auto write = [&](const char *name, const std::string &text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  write("base.yaml", "seed: 3\nsed: 4\n");
  std::string run = write("run.yaml", "base_config: [base.yaml, none.yaml]\nseed: 5\n");
  ImportedRun imported = importRun(run);
  EXPECT_EQ(imported.config.seed, 5u);
  EXPECT_THAT(imported.diagnostics.render(), HasSubstr("base.yaml:2:1: error: unknown key 'sed'"));
  EXPECT_THAT(imported.diagnostics.render(), HasSubstr("run.yaml:1:26: error: base_config has no file"));
  std::string cycle = write("cycle.yaml", "base_config: cycle.yaml\n");
  EXPECT_THAT(importRun(cycle).diagnostics.render(), HasSubstr("base_config takes at most 16 files, 8 levels deep"));
  std::string names = "wide.yaml";
  for (int i = 1; i < 16; ++i)
    names += ", wide.yaml";
  std::string wide = write("wide.yaml", "base_config: [" + names + "]\n"); // 16^8 reads
  EXPECT_THAT(importRun(wide).diagnostics.render(),
              HasSubstr("base_config takes at most 256 files with the bases of its bases"));
  fs::remove_all(folder);
}

/// A folder of model files beside a run file. The destructor removes it.
struct OwnModels {
  OwnModels() { fs::create_directories(folder / "models"); }
  ~OwnModels() { fs::remove_all(folder); }
  void write(const std::string &name, const std::string &text) const { std::ofstream(folder / name) << text; }
  /// Imports a run file of the model `type` that searches the folder and then the shipped one.
  ImportedRun run(const std::string &type) const {
    write("run.yaml", "model: {arch: {type: " + type + "}, model_config: {num_layers: 2, seq_length: 8}}\n");
    ImportOptions options;
    options.searchPath = {folder.string(), ESPALIER_SOURCE_DIR "/configs"};
    return importRun((folder / "run.yaml").string(), options);
  }
  const fs::path folder = fs::path(testing::TempDir()) / "espalier_own_models";
};

// The base of a model file lies beside it, or is a shipped one.
TEST(ModelFiles, ABaseMayBeAShippedFile) {
  OwnModels own;
  own.write("models/mine.yaml", "base_config: llama.yaml\nname: mine\narch: [Mine]\nsizes: {hidden_size: {default: "
                                "64}, num_heads: {default: 4}}\n");
  ImportedRun run = own.run("Mine");
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.dims.at("hidden"), 64);
  own.write("models/llama.yaml",
            "base_config: llama.yaml\nsizes: {hidden_size: {default: 96}, num_heads: {default: 4}}\n");
  run = own.run("LlamaForCausalLM");
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.dims.at("hidden"), 96) << "a file refines the shipped file of its name";
}

TEST(ModelFiles, AFileThatCannotBeReadIsAnError) {
  OwnModels own;
  own.write("models/mine.yaml", "base_config: lama.yaml\nname: mine\narch: [Mine]\n");
  EXPECT_THAT(own.run("Mine").diagnostics.render(),
              AllOf(HasSubstr("models/mine.yaml:1:14: error: base_config has no file '"), HasSubstr("models/lama.yaml"),
                    HasSubstr("  base_config: lama.yaml\n"), HasSubstr("no model file has arch 'Mine'")));
  own.write("models/mine.yaml", "base_config: {a: llama.yaml}\nname: mine\narch: [Mine]\n");
  EXPECT_THAT(own.run("Mine").diagnostics.render(),
              HasSubstr("models/mine.yaml:1:14: error: base_config takes names of files, got {a: llama.yaml}"));
  own.write("models/list.yaml", "[1]\n");
  own.write("models/mine.yaml", "base_config: list.yaml\nname: mine\narch: [Mine]\n");
  EXPECT_THAT(own.run("Mine").diagnostics.render(),
              HasSubstr("models/list.yaml:1:1: error: a base is a map of sections, got [1]"));
  own.write("models/mine.yaml", "name: mine\narch: [Mine\n");
  EXPECT_THAT(own.run("Mine").diagnostics.render(), HasSubstr("models/mine.yaml:3:1: error: not valid YAML: "));
}

// A run of another model works, and the fault is a warning.
TEST(ModelFiles, AFaultOfAnotherFileIsAWarning) {
  OwnModels own;
  own.write("models/broken.yaml", "name: mine\narch: [Mine\n");
  ImportedRun run = own.run("LlamaForCausalLM");
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_THAT(run.diagnostics.render(), HasSubstr("models/broken.yaml:3:1: warning: not valid YAML: "));
}

// A file that is no map has no keys that could be read, and was taken for one without keys.
TEST(ImportRun, EveryFileIsAMap) {
  fs::path file = fs::path(testing::TempDir()) / "espalier_list.yaml";
  std::ofstream(file) << "[1]\n";
  ImportOptions system, cluster;
  system.system = cluster.cluster = file.string();
  EXPECT_THAT(importRun(config("tiny_gpt"), system).diagnostics.render(),
              HasSubstr("espalier_list.yaml:1:1: error: a system file is a map of constants"));
  EXPECT_THAT(importRun(config("tiny_gpt"), cluster).diagnostics.render(),
              HasSubstr("espalier_list.yaml:1:1: error: a cluster file is a map of constants"));
  fs::remove(file);
}

TEST(ImportRun, AConfigFolderWithoutModelsIsReported) {
  setenv("ESPALIER_CONFIGS", "/nowhere", 1);
  EXPECT_THAT(importRun(config("tiny_gpt")).diagnostics.render(),
              HasSubstr("ESPALIER_CONFIGS: warning: is not searched: /nowhere has no models/"));
  unsetenv("ESPALIER_CONFIGS");
}

TEST(ImportRun, FileWithoutAMapIsRefused) {
  fs::path file = fs::path(testing::TempDir()) / "espalier_list_run.yaml";
  std::ofstream(file) << "[1]\n";
  EXPECT_THAT(importRun(file.string()).diagnostics.render(), HasSubstr("a run file is a map of sections"));
  fs::remove(file);
}

// Config folders with models/ are searched around the run file and the executable. No other setting is needed.
TEST(ImportRun, ConfigFoldersAreFound) {
  std::vector<std::string> folders = configFolders(config("tiny_gpt"), {"first"});
  ASSERT_GE(folders.size(), 2u);
  EXPECT_EQ(folders[0], "first");
  EXPECT_TRUE(fs::exists(fs::path(folders[1]) / "models" / "gpt2.yaml"));
}

} // namespace
} // namespace espalier
