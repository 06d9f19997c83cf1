// The digests cover files and not the identifiers that linkers write, because a patched file keeps its identifier.
#include "runtime/train/build_id.h"

#include "format/checksum.h"
#include "messages/data_error.h"
#include "runtime/dataset/content_digest.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <link.h>
#include <string_view>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

constexpr const char *ownFile = "/proc/self/exe";

/// Libraries of mathematics, of matrix products and of collectives. MPI only moves bytes.
constexpr std::array<std::string_view, 5> numericNames = {"libm.so", "libmvec.so", "libcublas.so", "libcublasLt.so",
                                                          "libnccl.so"};

/// Returns the files of the shared libraries that this process has loaded.
std::vector<fs::path> loadedFiles() {
  std::vector<fs::path> files;
  auto add = [](dl_phdr_info *info, size_t, void *to) {
    if (info->dlpi_name && *info->dlpi_name == '/')
      static_cast<std::vector<fs::path> *>(to)->emplace_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &files);
  std::ranges::sort(files, {}, [](const fs::path &file) { return file.filename(); });
  return files;
}

/// Returns the digest of a file; of one that has been removed since it was loaded, a text that says so.
std::string digestOf(const fs::path &file) {
  try {
    return fileDigest(file.string());
  } catch (const DataError &) {
    return "removed since it was loaded";
  }
}

} // namespace

std::string buildText() {
  std::string digests = digestOf(ownFile);
  for (const fs::path &file : loadedFiles())
    if (file.filename().string().find("espalier") != std::string::npos)
      digests += file.filename().string() + digestOf(file);
  return fmt::format("{} (build {})", ESPALIER_VERSION, checksumText(std::as_bytes(std::span(digests))));
}

std::vector<std::pair<std::string, std::string>> numericLibraries() {
  std::vector<std::pair<std::string, std::string>> libraries;
  for (const fs::path &file : loadedFiles())
    if (std::string name = file.filename().string();
        std::ranges::any_of(numericNames, [&](std::string_view known) { return name.starts_with(known); }))
      libraries.emplace_back(name, digestOf(file));
  return libraries;
}

} // namespace espalier::rt
