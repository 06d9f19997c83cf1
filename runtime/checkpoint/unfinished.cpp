#include "runtime/checkpoint/unfinished.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/shard_file.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr const char *draftName = "draft.json", *provenName = "proven.json";
constexpr uint64_t maxDraftBytes = uint64_t(1) << 20;

/// Returns the token in the name of a hidden folder, ".step-00000020.TOKEN.partial". Throws PlanError.
std::string tokenIn(const Path &partial) {
  std::string token = partial.stem().extension().string();
  if (token.size() < 2)
    throw PlanError(fmt::format("{}: has no token in its name", partial.string()));
  return token.substr(1);
}

std::string complete(const Path &folder, const Path &partial) {
  std::string name = (partial / provenName).string();
  Manifest manifest = parseManifest(readText(name, maxDraftBytes, Links::Refused), name);
  CheckpointFolder checkpoints(folder, tokenIn(partial));
  if (checkpoints.partial(manifest.state.step) != partial)
    throw PlanError(fmt::format("{}: damaged: of step {}", name, manifest.state.step));
  manifest.shards = takeShards(partial, static_cast<int>(manifest.ranks()));
  for (const Shard &shard : manifest.shards) {
    if (std::filesystem::file_size(partial / shard.file) != shard.bytes)
      throw PlanError(fmt::format("{}: not whole", (partial / shard.file).string()));
    syncFile(partial / shard.file);
  }
  manifest.sequence = checkpoints.nextSequence();
  std::string text = manifestText(manifest);
  parseManifest(text, name); // the pieces of all ranks are whole tensors
  removeDraft(partial);
  return checkpoints.commit(manifest.state.step, text);
}

} // namespace

void writeDraft(const Path &partial, const Manifest &manifest) {
  writeWhole(partial / draftName, manifestText(manifest), Flush::ToSystem);
}

bool proveDraft(const Path &partial) {
  std::error_code error;
  std::filesystem::rename(partial / draftName, partial / provenName, error);
  return !error;
}

void removeDraft(const Path &partial) {
  for (const char *name : {draftName, provenName})
    std::filesystem::remove(partial / name);
}

std::string completeSave(const Path &folder) {
  std::error_code error;
  std::vector<Path> proven;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".partial" && std::filesystem::exists(entry.path() / provenName, error))
      proven.push_back(entry.path());
  for (const Path &partial : proven)
    try {
      return complete(folder, partial);
    } catch (const std::exception &) {
      // The next attempt removes the folder and goes on from the checkpoint before.
    }
  return "";
}

} // namespace espalier::rt
