#include "compiler/import/run/config_files.h"

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

} // namespace espalier
