// Files are recognized by their content, so that the error for a wrong file can name the right command.
#include "format/path_kind.h"

#include "format/plan_file.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

class PathKindOf : public testing::Test {
protected:
  PathKindOf() { fs::create_directories(folder); }
  ~PathKindOf() override { fs::remove_all(folder); }

  /// Writes a file and its parent folders, and returns the path of the outermost folder.
  fs::path write(const std::string &name, const std::string &text) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / *fs::path(name).begin();
  }

  fs::path folder = fs::temp_directory_path() / fmt::format("espalier-path-kind-{}", getpid());
};

TEST_F(PathKindOf, RecognizesShippedFiles) {
  for (const auto &entry : fs::directory_iterator(ESPALIER_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") {
      EXPECT_EQ(pathKind(entry.path()), PathKind::RunFile) << entry.path();
    }
  // The folder `parts` below it has fragments of model files.
  for (const auto &entry : fs::directory_iterator(ESPALIER_SOURCE_DIR "/configs/models"))
    if (entry.is_regular_file())
      EXPECT_EQ(pathKind(entry.path()), PathKind::ModelFile) << entry.path();
  for (const auto &entry : fs::directory_iterator(ESPALIER_SOURCE_DIR "/configs/clusters"))
    EXPECT_EQ(pathKind(entry.path()), PathKind::ClusterFile) << entry.path();
  EXPECT_EQ(pathKind(ESPALIER_SOURCE_DIR "/test/e2e/inputs/pretrain_gpt_distributed.sh"), PathKind::ShellScript);
  EXPECT_EQ(pathKind(ESPALIER_SOURCE_DIR "/README.md"), PathKind::Unknown);
}

TEST_F(PathKindOf, RecognizesFilesAndFoldersByContent) {
  EXPECT_EQ(pathKind(write("a.yaml", planFileBytes({}))), PathKind::Plan);
  EXPECT_EQ(pathKind(write("short", "x")), PathKind::Unknown);
  EXPECT_EQ(pathKind(write("a.sh", "N=8\ntorchrun pretrain_gpt.py --num-layers $N\n")), PathKind::ShellScript);
  EXPECT_EQ(pathKind(write("flags.txt", "--tensor-model-parallel-size 2\n")), PathKind::ShellScript);
  EXPECT_EQ(pathKind(write("empty", "")), PathKind::Unknown);
  EXPECT_EQ(pathKind(write("config.json", R"({"model_type": "gpt2"})")), PathKind::HfConfig);
  EXPECT_EQ(pathKind(write("table.json", R"({"version": "1.0", "server_count": "1", "server_list": []})")),
            PathKind::RankTable);
  EXPECT_EQ(pathKind(write("other.json", R"({"model": "gpt2"})")), PathKind::Unknown);
  EXPECT_EQ(pathKind(write("hf/config.json", R"({"model_type": "gpt2"})")), PathKind::HfFolder);
  EXPECT_EQ(pathKind(write("run/step-00000010/manifest.json", "{}")), PathKind::CheckpointFolder);
  EXPECT_EQ(pathKind(folder / "run/step-00000010"), PathKind::Checkpoint);
  EXPECT_EQ(pathKind(write("megatron/latest_checkpointed_iteration.txt", "10")), PathKind::MegatronFolder);
  EXPECT_EQ(pathKind(write("rank/mp_rank_00/model_optim_rng.pt", "PK")), PathKind::MegatronFolder);
  write("set.idx", std::string("MMIDIDX\0\0", 9));
  for (const char *name : {"set", "set.idx", "set.bin"})
    EXPECT_EQ(pathKind(folder / name), PathKind::Dataset) << name;
  EXPECT_EQ(pathKind(write("words", "seed: 1\nmodel:\n  arch: {type: x}\n")), PathKind::RunFile);
  EXPECT_EQ(pathKind(write("binary", std::string("model:\0", 7))), PathKind::Unknown);
  EXPECT_EQ(pathKind(write("page.md", "# A run\n\n```yaml\nmodel:\n  arch: {type: x}\n```\n")), PathKind::Unknown);
  fs::create_directories(folder / "bare");
  EXPECT_EQ(pathKind(folder / "bare"), PathKind::Unknown);
  EXPECT_EQ(pathKind(folder / "nowhere"), PathKind::Unknown);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0); // opening it would block
  EXPECT_EQ(pathKind(folder / "pipe"), PathKind::Unknown);
}

TEST_F(PathKindOf, NamesTheRightCommand) {
  std::string file = write("a.yaml", "model:\n");
  auto error = [](const fs::path &path) -> std::string {
    try {
      readPlan(path);
    } catch (const PlanError &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error(file), fmt::format("{}: is a run file: `espalier compile {} -o a.plan`", file, file));
  EXPECT_THAT(error(write("hf/config.json", "{}")), testing::HasSubstr("hf: is a folder of transformers: `espalier "
                                                                       "import-hf "));
  write("set.idx", std::string("MMIDIDX\0\0", 9));
  std::string set = folder / "set";
  EXPECT_EQ(error(set), fmt::format("{}: is a dataset: `espalier run X.plan --data {}`", set, set));
  EXPECT_EQ(wayOf(folder / "nowhere"), "");
}

} // namespace
} // namespace espalier::rt
