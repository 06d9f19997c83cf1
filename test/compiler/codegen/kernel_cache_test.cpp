// Compiled kernels are found again, and an entry that is not what was stored is not.
#include "compiler/codegen/cpu/kernel_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier::codegen {
namespace {

namespace fs = std::filesystem;

class KernelCache : public testing::Test {
protected:
  KernelCache() { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  ~KernelCache() override {
    fs::remove_all(folder);
    unsetenv("XDG_CACHE_HOME");
  }

  fs::path entries() const { return folder / "espalier" / "kernels"; }
  /// Returns the file of the only entry.
  fs::path entry() const {
    fs::path found;
    for (const fs::directory_entry &file : fs::directory_iterator(entries()))
      if (file.path().filename().string().starts_with("llvmcache-"))
        found = file.path();
    return found;
  }

  fs::path folder = fs::temp_directory_path() / fmt::format("espalier-kernels-{}", getpid());
};

TEST_F(KernelCache, FindsWhatWasKept) {
  EXPECT_FALSE(findCode("01"));
  std::string code("a\0b", 3);
  keepCode("01", code);
  EXPECT_EQ(findCode("01"), code);
  EXPECT_FALSE(findCode("02"));
  keepCode("02", "");
  EXPECT_EQ(findCode("02"), "");
}

TEST_F(KernelCache, ADamagedEntryIsNotFoundAndIsReplaced) {
  keepCode("01", "some code");
  for (size_t place = 0; place < fs::file_size(entry()); ++place) {
    std::fstream file(entry(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(place));
    int byte = file.get();
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    EXPECT_FALSE(findCode("01")) << "byte " << place;
    keepCode("01", "some code");
    EXPECT_EQ(findCode("01"), "some code");
  }
  for (size_t size : {0, 5, 32, 40}) {
    fs::resize_file(entry(), size);
    EXPECT_FALSE(findCode("01")) << size << " bytes";
  }
}

/// The entry of another key in the place of this one is not taken for it.
TEST_F(KernelCache, AnEntryBelongsToItsKey) {
  keepCode("01", "code of 01");
  fs::path first = entry(), kept = folder / "kept";
  fs::rename(first, kept);
  keepCode("02", "code of 02");
  fs::rename(kept, entry());
  EXPECT_FALSE(findCode("02"));
}

TEST_F(KernelCache, IsBounded) {
  std::string code(size_t{20} << 20, 'x');
  for (const char *key : {"01", "02", "03", "04", "05"})
    keepCode(key, code);
  uintmax_t bytes = 0;
  for (const fs::directory_entry &file : fs::directory_iterator(entries()))
    bytes += file.file_size();
  EXPECT_LE(bytes, uintmax_t{64} << 20);
  EXPECT_GE(bytes, uintmax_t{40} << 20);
}

TEST_F(KernelCache, WithoutAFolderNothingIsKept) {
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  keepCode("01", "code");
  EXPECT_FALSE(findCode("01"));
}

} // namespace
} // namespace espalier::codegen
