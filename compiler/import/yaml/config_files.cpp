#include "compiler/import/yaml/config_files.h"

#include "compiler/import/yaml/diagnostics.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

namespace espalier {

namespace fs = std::filesystem;

std::string findConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders) {
  std::error_code ignored;
  bool isPath = name.find('/') != std::string::npos || name.ends_with(".yaml");
  if (isPath && fs::is_regular_file(name, ignored))
    return name;
  for (const std::string &folder : folders)
    if (fs::path file = fs::path(folder) / (kind + "s") / (name + ".yaml"); fs::is_regular_file(file, ignored))
      return file.string();
  return "";
}

std::vector<std::string> configNames(const std::string &kind, const std::vector<std::string> &folders) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const std::string &folder : folders)
    for (const auto &entry : fs::directory_iterator(fs::path(folder) / (kind + "s"), ignored))
      if (entry.path().extension() == ".yaml")
        names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string noConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders) {
  std::vector<std::string> names = configNames(kind, folders);
  return fmt::format("no {} '{}', there are {}{}", kind, name, fmt::join(names, ", "), didYouMean(name, names));
}

std::vector<std::string> configFolders(const std::string &runFile, const std::vector<std::string> &first) {
  std::vector<std::string> folders = first;
  std::error_code ignored;
  auto addIfUsable = [&](const fs::path &folder) {
    bool isNew = std::find(folders.begin(), folders.end(), folder.string()) == folders.end();
    if (isNew && fs::is_directory(folder / "models", ignored))
      folders.push_back(folder.string());
  };
  auto walkUp = [&](fs::path folder, int levels) {
    for (int i = 0; i < levels && !folder.empty(); ++i, folder = folder.parent_path()) {
      addIfUsable(folder);
      addIfUsable(folder / "configs");
      addIfUsable(folder / "share" / "espalier" / "configs");
    }
  };
  walkUp(fs::absolute(runFile, ignored).parent_path(), 4);
  if (const char *folder = std::getenv("ESPALIER_CONFIGS"))
    addIfUsable(folder);
  walkUp(fs::read_symlink("/proc/self/exe", ignored).parent_path(), 5);
  return folders;
}

std::vector<std::string> modelFiles(const std::vector<std::string> &folders) {
  std::vector<std::string> files, names;
  std::error_code ignored;
  for (const std::string &folder : folders) {
    std::vector<fs::path> found;
    for (const auto &entry : fs::directory_iterator(fs::path(folder) / "models", ignored))
      if (entry.path().extension() == ".yaml")
        found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    for (const fs::path &file : found)
      if (std::find(names.begin(), names.end(), file.filename()) == names.end()) {
        names.push_back(file.filename());
        files.push_back(file.string());
      }
  }
  return files;
}

} // namespace espalier
