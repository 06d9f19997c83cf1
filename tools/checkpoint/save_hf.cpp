#include "tools/checkpoint/save_hf.h"

#include "tools/checkpoint/convert_command.h"

#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view stepName = "step-", hfName = "hf-";

/// Returns hf-00000020 for step-00000020, and the other way round.
std::string renamed(const std::string &name, std::string_view from, std::string_view to) {
  return std::string(to) + name.substr(from.size());
}

/// Removes the folders whose checkpoint is gone.
void removeOld(const fs::path &folder) {
  for (const auto &entry : fs::directory_iterator(folder))
    if (std::string name = entry.path().filename(); name.starts_with(hfName) && entry.is_directory())
      if (!fs::exists(folder / renamed(name, hfName, stepName)))
        fs::remove_all(entry.path());
}

} // namespace

void requireHfNames(const rt::pb::Plan &plan) {
  if (plan.run_text().empty())
    throw rt::PlanError(
        "--save-hf: the plan keeps no run file, because an earlier version compiled it; compile it anew");
  const auto &systems = plan.weights().systems();
  if (std::ranges::none_of(systems, [](const auto &system) { return system.name() == "hf"; }))
    throw rt::PlanError(fmt::format("--save-hf: {} has no names of weights for {}: `weights: hf:` would say them",
                                    plan.weights().file(), plan.model()));
}

void saveHf(const fs::path &checkpoint) noexcept {
  fs::path target = checkpoint.parent_path() / renamed(checkpoint.filename(), stepName, hfName);
  try {
    fs::remove_all(target); // of an earlier run whose checkpoint of this name was removed
    writeHf(checkpoint, target);
    removeOld(checkpoint.parent_path());
  } catch (const rt::ReportedElsewhere &) { // the reason is printed
    fmt::print(stderr, "espalier: warning: {} is not written\n", target.string());
  } catch (const std::exception &error) {
    fmt::print(stderr, "espalier: warning: {} is not written: {}\n", target.string(), error.what());
  }
}

} // namespace espalier
