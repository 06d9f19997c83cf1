#include "runtime/checkpoint/convert/new_folder.h"

#include "runtime/checkpoint/safetensors.h"
#include "runtime/files/partial_path.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <unistd.h>

namespace espalier::rt {

NewFolder::NewFolder(const std::filesystem::path &wanted)
    : target(std::filesystem::absolute(wanted / "").lexically_normal()) {
  target = target.parent_path(); // removes the trailing slash
  std::error_code error;
  if (std::filesystem::exists(target) && !std::filesystem::is_directory(target))
    throw PlanError(fmt::format("{}: cannot be made a folder", wanted.string()));
  if (std::filesystem::exists(target) && !std::filesystem::is_empty(target))
    throw PlanError(fmt::format("{}: is not empty; give a new folder", wanted.string()));
  sweepPartials(target);
  partial = partialPath(target);
  std::filesystem::create_directories(partial, error);
  if (error)
    throw PlanError(fmt::format("{}: cannot be made a folder: {}", wanted.string(), error.message()));
  hold = holdPartial(partial);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(partial, ignored);
  if (hold >= 0)
    close(hold);
}

void NewFolder::commit() {
  syncFolder(partial);
  std::error_code error;
  std::filesystem::rename(partial, target, error); // replaces an empty folder
  if (error)
    throw PlanError(fmt::format("{}: cannot be made a folder: {}", target.string(), error.message()));
  syncFolder(target.parent_path());
}

} // namespace espalier::rt
