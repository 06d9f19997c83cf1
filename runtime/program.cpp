// Loads plans. A plan is verified before any of it is used.
#include "runtime/program.h"

#include "runtime/prepare.h"
#include "runtime/verify_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>

namespace espalier::rt {
namespace {

/// Returns the plan, or throws PlanError with all errors that the verifier found.
pb::Plan proved(pb::Plan plan) {
  std::vector<std::string> errors = verifyPlan(plan);
  if (errors.empty())
    return plan;
  std::string text = fmt::format("the plan does not hold ({} errors)", errors.size());
  for (const std::string &error : errors)
    text += "\n  " + error;
  throw PlanError(text);
}

template <typename Names> std::optional<uint32_t> find(const Names &names, auto isIt) {
  auto found = std::ranges::find_if(names, isIt);
  return found == names.end() ? std::nullopt : std::optional<uint32_t>(found - names.begin());
}

} // namespace

std::string locationText(const pb::Plan &plan, uint32_t location) {
  if (location >= static_cast<uint32_t>(plan.locations_size()))
    return "";
  const pb::Location &place = plan.locations(location);
  return fmt::format("{} at {}:{}:{}", place.op(), place.file(), place.line(), place.column());
}

std::optional<uint32_t> findEntry(const pb::Plan &plan, std::string_view name) {
  return find(plan.entries(), [&](const pb::Entry &entry) { return entry.name() == name; });
}

std::optional<uint32_t> findRegion(const pb::Plan &plan, std::string_view name) {
  return find(plan.regions(), [&](const std::string &region) { return region == name; });
}

std::optional<uint32_t> findExchange(const pb::Stage &stage, std::string_view name) {
  return find(stage.exchanges(), [&](const pb::Exchange &exchange) { return exchange.name() == name; });
}

int threadsPerRank(int wanted, int ranks) {
  int cores = std::max(1u, std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::max(1, cores / ranks);
}

Program::Program(pb::Plan plan, int threads, Weights weights)
    : thePlan(proved(std::move(plan))), theMesh(thePlan.mesh()),
      theBackend(loadBackend(thePlan, threadsPerRank(threads, theMesh.ranks()), weights)) {}

RankProgram Program::prepare(int rank, Device &device) const { return prepareRank(thePlan, theMesh, rank, device); }

int dataReplica(const Mesh &mesh, int rank) { return mesh.index(rank, sampleAxes); }
int dataReplicas(const Mesh &mesh) { return mesh.count(sampleAxes); }

} // namespace espalier::rt
