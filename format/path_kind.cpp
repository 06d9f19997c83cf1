// Each kind has one mark that its writers always leave: a seal, a magic number, a file's name in a folder, or the
// sections that a YAML file must have.
#include "format/path_kind.h"

#include "format/file_marks.h"
#include "messages/plan_error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::rt {

namespace {

using Path = std::filesystem::path;
constexpr size_t headBytes = 1 << 16;

bool isFile(const Path &path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string headOf(const Path &file) {
  std::string head(headBytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  return head;
}

/// The keys at the left border of a YAML text.
std::set<std::string> topKeys(std::string_view text) {
  std::set<std::string> keys;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    size_t length = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (length != std::string_view::npos && length > 0 && line[length] == ':')
      keys.emplace(line.substr(0, length));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return keys;
}

PathKind kindOfText(std::string_view text) {
  if (text.find('\0') != std::string_view::npos)
    return PathKind::Unknown;
  if (text.starts_with("#!"))
    return text.substr(0, text.find('\n')).find("sh") == std::string_view::npos ? PathKind::Unknown
                                                                                : PathKind::ShellScript;
  size_t first = text.find_first_not_of(" \t\r\n");
  auto has = [&](const char *key) { return text.find(key) != std::string_view::npos; };
  if (has("\n```")) // a page in Markdown, which may show a run file
    return PathKind::Unknown;
  if (first != std::string_view::npos && text[first] == '{')
    return has("\"model_type\"")                               ? PathKind::HfConfig
           : has("\"server_list\"") || has("\"server_count\"") ? PathKind::RankTable
                                                               : PathKind::Unknown;
  std::set<std::string> keys = topKeys(text);
  if (keys.contains("hf_config") || keys.contains("arch") || (keys.contains("segments") && keys.contains("sizes")))
    return PathKind::ModelFile;
  for (const char *section : {"base_config", "model", "runner_config", "parallel", "parallel_config", "planner"})
    if (keys.contains(section))
      return PathKind::RunFile;
  if (keys.contains("devices_per_host") || keys.contains("peak_flops"))
    return PathKind::ClusterFile;
  // A script without a first line that names its shell, or the flags that an export writes.
  bool hasFlags = has("--num-layers ") || has("--tensor-model-parallel-size ");
  return hasFlags ? PathKind::ShellScript : PathKind::Unknown;
}

PathKind kindOfFolder(const Path &folder) {
  auto isOneStep = [](const Path &path) { return isFile(path / manifestName); };
  if (isOneStep(folder))
    return PathKind::Checkpoint;
  if (isFile(folder / "latest_checkpointed_iteration.txt"))
    return PathKind::MegatronFolder;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && isOneStep(entry->path()))
      return PathKind::CheckpointFolder;
    if (name.starts_with("mp_rank_"))
      return PathKind::MegatronFolder;
  }
  return isFile(folder / "config.json") ? PathKind::HfFolder : PathKind::Unknown;
}

/// PREFIX of a path that may end with .bin or .idx.
Path prefixOf(const Path &path) {
  return path.extension() == ".bin" || path.extension() == ".idx" ? Path(path).replace_extension() : path;
}

bool isIndex(const Path &file) { return isFile(file) && headOf(file).starts_with("MMIDIDX"); }

constexpr size_t mostEntries = 1000; ///< of a folder that are compared with a name

/// Returns the name in the folder that differs from `name` in at most two letters, or in its ending only; else an empty
/// text.
std::string nearestIn(const std::filesystem::path &folder, const std::string &name) {
  auto distance = [](const std::string &a, const std::string &b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
      row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i)
      for (size_t j = 1, diagonal = std::exchange(row[0], i); j <= b.size(); ++j)
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
    return row[b.size()];
  };
  std::string nearest;
  size_t least = 3, looked = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end && looked < mostEntries;
       entry.increment(error), ++looked) {
    std::string other = entry->path().filename().string();
    bool isOtherEnding = entry->path().stem() == std::filesystem::path(name).stem() || other.starts_with(name + ".");
    size_t letters = isOtherEnding ? 2 : other.size() > 255 ? least : distance(name, other);
    if (letters < least || (letters == least && least < 3 && other < nearest)) {
      least = letters;
      nearest = other;
    }
  }
  return nearest;
}

} // namespace

PathKind pathKind(const Path &path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return kindOfFolder(path);
  if (isIndex(prefixOf(path).string() + ".idx"))
    return PathKind::Dataset;
  if (!isFile(path))
    return PathKind::Unknown;
  std::string head = headOf(path);
  return isSealed(path) ? PathKind::Plan : head.starts_with("GGUF") ? PathKind::Gguf : kindOfText(head);
}

std::string wayOf(const Path &path) {
  std::string name = path.string(), stem = path.stem().string(), prefix = prefixOf(path).string();
  switch (pathKind(path)) {
  case PathKind::Unknown:
    return "";
  case PathKind::Plan:
    return fmt::format("is a plan: `espalier run {}` runs it, `espalier inspect {}` shows it", name, name);
  case PathKind::RunFile:
    return fmt::format("is a run file: `espalier compile {} -o {}.plan`", name, stem);
  case PathKind::ModelFile:
    return fmt::format("is a model file: a run file chooses it by model.arch.type, {} for example", stem);
  case PathKind::ClusterFile:
    return fmt::format("is a cluster file: `--cluster {}` together with a run file", name);
  case PathKind::RankTable:
    return fmt::format(
        "is a rank table: `--cluster NAME --rank-table {0}` with `compile` plans for its hosts, `espalier launch "
        "--hosts {0} -- run X.plan` starts on them, `espalier run X.plan --rank-table {0}` on this one",
        name);
  case PathKind::ShellScript:
    return fmt::format("is a script: `espalier import-args {} -o RUN.yaml` makes it a run file", name);
  case PathKind::HfConfig:
    return fmt::format("is a config.json of transformers: `espalier import-hf {} -o RUN.yaml` makes it a run file",
                       name);
  case PathKind::HfFolder:
    return fmt::format("is a folder of transformers: `espalier import-hf {} -o RUN.yaml` makes it a run file", name);
  case PathKind::Gguf:
    return fmt::format("is a file of llama.cpp: `espalier chat {0}` talks to it, `espalier import-hf {0} -o RUN.yaml` "
                       "makes it a run file, `espalier convert {0} DST --to espalier` a checkpoint",
                       name);
  case PathKind::MegatronFolder:
    return fmt::format("is a checkpoint of Megatron: `espalier convert {} DST --to espalier --model RUN.yaml`", name);
  case PathKind::CheckpointFolder:
    return fmt::format(
        "is a folder of checkpoints: `espalier inspect {}` shows it, `espalier run X.plan --checkpoint {} "
        "--resume` goes on with it",
        name, name);
  case PathKind::Checkpoint:
    return fmt::format("is the checkpoint of one step: `espalier inspect {}` shows it", name);
  case PathKind::Dataset:
    return fmt::format("is a dataset: `espalier run X.plan --data {}`", prefix);
  }
  return "";
}

void refuseOther(const Path &path, const std::string &otherwise) {
  std::string way = wayOf(path);
  throw PlanError(fmt::format("{}: {}", path.string(), way.empty() ? otherwise : way));
}

std::string whyNotOpened(const std::filesystem::path &path, int reason) {
  std::string text = path.string();
  if (text.find("://") != std::string::npos)
    return "is a URL, and nothing is downloaded; fetch the file and give its path";
  std::error_code error;
  if (reason == EISDIR || (reason == 0 && std::filesystem::is_directory(path, error)))
    return "is a folder, wanted a file";
  std::string system = std::strerror(reason);
  if (reason != ENOENT)
    return system;
  std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  bool hasFolder = std::filesystem::is_directory(folder, error);
  std::string nearest = hasFolder ? nearestIn(folder, path.filename().string()) : "";
  if (!nearest.empty())
    return fmt::format("{}, did you mean {}?", system, (path.parent_path() / nearest).string());
  auto parts = std::distance(path.begin(), path.end());
  if (path.is_relative() && path.extension().empty() && (parts == 1 || (parts == 2 && !hasFolder))) // ORG/NAME
    return system + "; a model or data set by its name on a hub is not downloaded: fetch it and give its folder";
  return hasFolder ? system : fmt::format("{}: there is no folder {}", system, folder.string());
}

} // namespace espalier::rt
