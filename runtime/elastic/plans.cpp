#include "runtime/elastic/plans.h"

#include "format/elastic_plan.h"
#include "format/mesh.h"
#include "format/plan_file.h"
#include "runtime/checkpoint/fingerprint.h"
#include "runtime/status.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

/// Returns the number of ranks in the name of `other`, if it is the name of a plan beside `plan`.
std::optional<int> ranksInName(const fs::path &plan, const fs::path &other) {
  std::string middle = other.stem().extension().string();
  int ranks = 0;
  auto [end, error] = std::from_chars(middle.data() + !middle.empty(), middle.data() + middle.size(), ranks);
  bool isNumber = error == std::errc() && end == middle.data() + middle.size() && ranks > 0;
  return isNumber && fs::path(planFileFor(plan, ranks)).filename() == other.filename() ? std::optional(ranks)
                                                                                       : std::nullopt;
}

/// Returns how the training of `other` differs from that of `plan`, or an empty text.
std::string differenceOf(const pb::Plan &plan, const pb::Plan &other) {
  Fingerprint wanted = fingerprintOf(plan, ""), got = fingerprintOf(other, "");
  if (other.target() != plan.target())
    return fmt::format("target: {} there, {} now", other.target(), plan.target());
  if (got.model != wanted.model)
    return "model: another one";
  std::vector<std::string> changes = changedTerms(got, wanted);
  if (!changes.empty())
    return changes.front();
  bool hasOtherData = other.settings().data().SerializeAsString() != plan.settings().data().SerializeAsString();
  return hasOtherData ? "data: another path, split or seed" : "";
}

} // namespace

std::vector<ElasticPlan> readElasticPlans(const std::string &file) {
  pb::Plan plan = readPlan(file);
  int full = Mesh(plan.mesh()).ranks();
  std::vector<ElasticPlan> plans = {{file, full}};
  fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
  for (const fs::directory_entry &entry : fs::directory_iterator(folder)) {
    std::optional<int> named = ranksInName(file, entry.path());
    if (!named || *named == full)
      continue;
    std::string name = planFileFor(file, *named);
    pb::Plan other = readPlan(name);
    int ranks = Mesh(other.mesh()).ranks();
    if (ranks != *named)
      throw PlanError(fmt::format("{}: a plan for {} ranks, its name says {}; compile it again", name, ranks, *named));
    if (std::string difference = differenceOf(plan, other); !difference.empty())
      throw PlanError(fmt::format("{}: does not train as {} does: {}; compile both by one `espalier compile "
                                  "--elastic-hosts K..N` (of one host: --elastic-devices)",
                                  name, file, difference));
    if (ranks < full) // there are no slots for more
      plans.push_back({name, ranks});
  }
  std::ranges::sort(plans, std::greater(), &ElasticPlan::ranks);
  if (plans.size() == 1)
    throw PlanError(fmt::format("--elastic: there is no plan for fewer ranks beside {}, such as {}; compile them by "
                                "`espalier compile RUN.yaml -o {} --elastic-hosts K..N` (of one host: "
                                "--elastic-devices)",
                                file, planFileFor(file, std::max(1, full / 2)), file));
  return plans;
}

} // namespace espalier::rt
