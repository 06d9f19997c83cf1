// Tests the words for a path that cannot be opened.
#include "format/path_kind.h"

#include <cerrno>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// A folder with two files. The destructor removes it.
struct Folder {
  Folder() {
    fs::create_directories(path);
    for (const char *name : {"corpus.jsonl", "run.yaml"})
      std::ofstream(path / name) << "text\n";
  }
  ~Folder() { fs::remove_all(path); }
  std::string why(const std::string &name, int reason = ENOENT) const { return whyNotOpened(path / name, reason); }
  const fs::path path = fs::path(testing::TempDir()) / ("espalier-missing-" + std::to_string(getpid()));
};

TEST(MissingFile, KindsOfPathsAreToldApart) {
  Folder folder;
  EXPECT_EQ(folder.why("a/b/run.yaml"),
            "No such file or directory: there is no folder " + (folder.path / "a/b").string());
  EXPECT_EQ(folder.why("other.plan"), "No such file or directory");
  EXPECT_EQ(folder.why("run.yaml", EACCES), "Permission denied");
  EXPECT_EQ(whyNotOpened(folder.path, EISDIR), "is a folder, wanted a file");
  for (const char *url : {"https://example.com/run.yaml", "s3://bucket/corpus.jsonl"})
    EXPECT_THAT(whyNotOpened(url, ENOENT), HasSubstr("is a URL, and nothing is downloaded"));
  for (const char *name : {"somebody/some-model", "wikitext"})
    EXPECT_THAT(whyNotOpened(name, ENOENT), HasSubstr("by its name on a hub is not downloaded")) << name;
}

TEST(MissingFile, TheNearestNameIsSuggested) {
  Folder folder;
  for (const char *name : {"rum.yaml", "run.yml", "run"})
    EXPECT_EQ(folder.why(name), "No such file or directory, did you mean " + (folder.path / "run.yaml").string() + "?")
        << name;
  EXPECT_THAT(folder.why("corpus.txt"), HasSubstr("did you mean " + (folder.path / "corpus.jsonl").string()));
  EXPECT_THAT(folder.why("rome.yaml"), Not(HasSubstr("did you mean"))) << "three letters differ";
}

} // namespace
} // namespace espalier::rt
