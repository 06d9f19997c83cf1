// The location of the fixtures, and the digests in which results are recorded.
#pragma once

#include "runtime/digest.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <span>
#include <sstream>
#include <string>

namespace espalier::rt::test {

inline std::string sharedData() {
  const char *given = std::getenv("ESPALIER_SHARED");
  return std::string(given ? given : ESPALIER_SOURCE_DIR "/../shared") + "/data/";
}

/// Skips the test if the fixtures are missing.
#define ESPALIER_NEEDS_FIXTURES()                                                                                      \
  if (!std::filesystem::exists(espalier::rt::test::sharedData()))                                                      \
  GTEST_SKIP() << "the fixtures folder is not beside this checkout"

inline std::string slurp(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void spit(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

template <typename T> std::string digestOf(std::span<const T> values) {
  return sha256({reinterpret_cast<const uint8_t *>(values.data()), values.size_bytes()});
}

/// A folder for one test, which is removed at the end of the test.
class Scratch {
public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "espalier-data-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  std::string path(const std::string &name) const { return folder + "/" + name; }

private:
  std::string folder;
};

} // namespace espalier::rt::test
