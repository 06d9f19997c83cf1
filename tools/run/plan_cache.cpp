#include "tools/run/plan_cache.h"

#include "runtime/status.h"

#include <cstdlib>
#include <fmt/format.h>

namespace espalier {

std::filesystem::path planCache(const char *way) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::filesystem::path folder = cache && *cache ? std::filesystem::path(cache)
                                 : home && *home ? std::filesystem::path(home) / ".cache"
                                                 : std::filesystem::temp_directory_path();
  folder = folder / "espalier" / "plans";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw rt::PlanError(fmt::format("{}: {}; {}", folder.string(), error.message(), way));
  return folder;
}

} // namespace espalier
