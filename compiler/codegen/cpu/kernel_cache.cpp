// An entry is a file of code and the SHA-256 of its key and its code. LLVM's pruneCache removes files whose names begin
// with "llvmcache-".
#include "compiler/codegen/cpu/kernel_cache.h"

#include "format/host_machine.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace espalier::codegen {
namespace {

constexpr uint64_t mostBytes = uint64_t{64} << 20;
constexpr size_t hashBytes = 32;

std::string hashOf(llvm::ArrayRef<llvm::StringRef> texts) {
  llvm::SHA256 hasher;
  for (llvm::StringRef text : texts)
    hasher.update(text);
  std::array<uint8_t, hashBytes> hash = hasher.final();
  return {hash.begin(), hash.end()};
}

/// Identifies this build of the compiler by its library file, so that a change of the code generator is not hidden.
std::string buildOfCompiler() {
  Dl_info library;
  llvm::sys::fs::file_status status;
  if (!dladdr(reinterpret_cast<const void *>(&findCode), &library) || llvm::sys::fs::status(library.dli_fname, status))
    return "";
  return fmt::format("{} {} {}", LLVM_VERSION_STRING, status.getSize(),
                     status.getLastModificationTime().time_since_epoch().count());
}

/// Returns the file of a key, or an empty path.
std::string fileOf(llvm::StringRef key) {
  static const std::string build = buildOfCompiler();
  std::filesystem::path folder = rt::cacheFolder();
  if (folder.empty() || build.empty())
    return "";
  return (folder / "kernels" / ("llvmcache-" + llvm::toHex(hashOf({build, "\n", key}), /*LowerCase=*/true))).string();
}

} // namespace

std::optional<std::string> findCode(llvm::StringRef key) {
  std::string file = fileOf(key);
  auto content = file.empty() ? std::errc::no_such_file_or_directory
                              : llvm::MemoryBuffer::getFile(file, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!content || (*content)->getBufferSize() < hashBytes)
    return std::nullopt;
  llvm::StringRef code = (*content)->getBuffer().drop_back(hashBytes),
                  hash = (*content)->getBuffer().take_back(hashBytes);
  return hash == hashOf({key, code}) ? std::optional(code.str()) : std::nullopt;
}

void keepCode(llvm::StringRef key, llvm::StringRef code) {
  std::string file = fileOf(key);
  llvm::StringRef folder = llvm::StringRef(file).rsplit('/').first;
  if (file.empty() || llvm::sys::fs::create_directories(folder))
    return;
  llvm::consumeError(llvm::writeToOutput(file, [&](llvm::raw_ostream &stream) {
    stream << code << hashOf({key, code});
    return llvm::Error::success();
  }));
  llvm::CachePruningPolicy policy;
  policy.Interval = std::chrono::seconds(0);
  policy.Expiration = std::chrono::hours(24 * 30);
  policy.MaxSizeBytes = mostBytes;
  llvm::pruneCache(folder, policy);
}

} // namespace espalier::codegen
