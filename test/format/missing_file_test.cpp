// Tests the words for a path that cannot be opened.
#include "format/path_kind.h"
#include "messages/write_fault.h"

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

TEST(WriteFault, HasTheSystemsReason) {
  Folder folder;
  EXPECT_EQ(writeFault(folder.path / "new.plan"), "");
  EXPECT_EQ(writeFault(folder.path / "run.yaml"), ""); // is replaced
  EXPECT_EQ(writeFault(folder.path / "a/b/x.plan"),
            "No such file or directory: there is no folder " + (folder.path / "a/b").string());
  EXPECT_EQ(writeFault(folder.path / "run.yaml" / "x.plan"), "Not a directory");
  EXPECT_EQ(writeFault(folder.path), "is a folder, wanted a file");
  EXPECT_EQ(writeFault(folder.path / ""), "is a folder, wanted a file");
  EXPECT_EQ(writeFault("/dev/null"), "is there already and no regular file");
  EXPECT_THAT(writeFault("s3://bucket/x.plan"), HasSubstr("is a URL, and nothing is uploaded"));
  EXPECT_THAT(writeFault("/proc/x.plan"), testing::AnyOf("No such file or directory", "Permission denied"));
  std::ptrdiff_t files = std::distance(fs::directory_iterator(folder.path), fs::directory_iterator());
  EXPECT_EQ(files, 2); // no probe stays
}

} // namespace
} // namespace espalier::rt
