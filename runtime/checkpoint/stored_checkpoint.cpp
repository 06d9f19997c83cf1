#include "runtime/checkpoint/stored_checkpoint.h"

#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/nearest.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

bool isLaidOverRun(const pb::LearningRate &rate) {
  return rate.total_steps() <= 0 &&
         (rate.warmup_ratio() > 0 || (rate.kind() != "constant" && rate.kind() != "inverse_sqrt"));
}

/// Returns how the parameters of a checkpoint and a plan differ, or an empty text.
std::string parameterDifference(const Manifest &manifest, const pb::Plan &plan, const std::set<std::string> &without) {
  std::map<std::string, std::vector<int64_t>> there;
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces)
      if (stored.piece.kind == "value")
        there.try_emplace(stored.piece.name, stored.piece.shape);
  std::vector<std::string> missing;
  for (const NamedParameter &named : parametersOf(plan)) {
    auto found = there.find(named.name);
    if (found == there.end()) {
      if (!without.contains(named.name))
        missing.push_back(named.name);
      continue;
    }
    std::vector<int64_t> shape(named.parameter->shape().begin(), named.parameter->shape().end());
    if (found->second != shape)
      return fmt::format("parameter '{}' is {} there, {} here", named.name, found->second, shape);
    there.erase(found);
  }
  std::vector<std::string> others; // parameters that the plan does not have
  for (const auto &[name, shape] : there)
    others.push_back(name);
  if (!missing.empty())
    return fmt::format("it has no parameter '{}'{}", missing.front(), nearestText(missing.front(), others));
  return others.empty() ? "" : fmt::format("the plan has no parameter '{}'", others.front());
}

Manifest soundManifest(const std::filesystem::path &folder) {
  Manifest manifest = readManifest(folder);
  std::vector<std::string> faults = shardFaults(folder, manifest, Depth::Headers);
  if (!faults.empty())
    throw PlanError(faults.front());
  return manifest;
}

} // namespace

void convertElements(std::span<const std::byte> from, pb::DataType type, std::span<std::byte> array,
                     pb::DataType wanted, int64_t to) {
  if (type == wanted) {
    std::ranges::copy(from, array.begin() + to * elementBytes(wanted));
    return;
  }
  auto count = static_cast<int64_t>(from.size() / elementBytes(type));
  for (int64_t i = 0; i < count; ++i)
    storeElement(wanted, array.data(), to + i, loadElement(type, from.data(), i));
}

StoredCheckpoint::StoredCheckpoint(std::filesystem::path path)
    : folder(std::move(path)), theManifest(soundManifest(folder)), sources(theManifest, folder.string()) {}

std::set<std::string> StoredCheckpoint::missingAdapters(const pb::Plan &plan) const {
  std::set<std::string> adapters = adapterNames(plan), there, missing;
  for (const Shard &shard : theManifest.shards)
    for (const StoredPiece &stored : shard.pieces)
      there.insert(stored.piece.name);
  for (const NamedParameter &named : parametersOf(plan))
    if (adapters.contains(named.parameter->name())) {
      if (there.contains(named.name))
        return {};
      missing.insert(named.name);
    }
  return missing;
}

void StoredCheckpoint::requireParameters(const pb::Plan &plan, const std::set<std::string> &without) const {
  if (std::string difference = parameterDifference(theManifest, plan, without); !difference.empty())
    throw PlanError(fmt::format("{}: a checkpoint of another model: {}", folder.string(), difference));
}

void StoredCheckpoint::requireContinuation(const pb::Plan &plan, const Continuation &run) const {
  requireParameters(plan);
  if (theManifest.hasOptimizer) {
    requireSameTraining(plan, run);
    requireSources(plan);
  } else if (run.isAloud) {
    fmt::print(stderr, "espalier: note: {}: parameters only, training begins with them at step 1\n", folder.string());
  }
}

void StoredCheckpoint::requireSameTraining(const pb::Plan &plan, const Continuation &run) const {
  if (theManifest.fingerprint.model != run.fingerprint.model)
    throw PlanError(fmt::format("{}: a checkpoint of another model: its parameters are the same, but its "
                                "computation differs",
                                folder.string()));
  std::vector<std::string> changes = changedTerms(theManifest.fingerprint, run.fingerprint);
  if (!changes.empty() && !run.acceptChanges)
    throw PlanError(fmt::format("{}: written by a run that differs from this one:\n  {}\ngive --accept-changes to "
                                "continue with the present settings",
                                folder.string(), fmt::join(changes, "\n  ")));
  if (!run.isAloud)
    return;
  for (const std::string &change : changes)
    fmt::print(stderr, "espalier: note: accepted: {}\n", change);
  if (theManifest.runSteps != run.steps && isLaidOverRun(plan.settings().learning_rate()))
    fmt::print(
        stderr,
        "espalier: note: the learning rate schedule follows the length of the run: it covered {} steps and covers "
        "{} now; lr_schedule.total_steps sets its length\n",
        theManifest.runSteps, run.steps);
}

/// Checks that the checkpoint has each tensor that this plan needs, no matter which plan wrote it.
void StoredCheckpoint::requireSources(const pb::Plan &plan) const {
  auto require = [&](const char *kind, const std::string &name) {
    if (std::string fault = sources.fault(kind, name); !fault.empty())
      throw PlanError(fmt::format("{}: cannot be continued: {}", folder.string(), fault));
  };
  for (const NamedParameter &named : parametersOf(plan)) {
    require("value", named.name);
    for (const char *kind : stateKinds(*named.bucket))
      require(kind, named.name);
  }
}

void StoredCheckpoint::read(const Piece &wanted, std::span<std::byte> values) const {
  std::ranges::fill(values, std::byte(0));
  for (const Take &take : sources.takesFor(wanted)) {
    RegularFile file(folder / take.shard->file, Links::Refused);
    take.read(file, [&](int64_t to, std::span<const std::byte> from) {
      convertElements(from, take.stored->piece.type, values, wanted.type, to);
    });
  }
}

ScalarState StoredCheckpoint::state(const pb::Settings &settings, const Continuation &run) const {
  if (!theManifest.hasOptimizer)
    return initialScalars(settings);
  ScalarState state = theManifest.state;
  const auto &terms = theManifest.fingerprint.terms;
  if (auto scale = terms.find("loss scale");
      scale != terms.end() && *scale != *run.fingerprint.terms.find("loss scale")) {
    state.lossScale = initialScalars(settings).lossScale;
    state.cleanSteps = 0;
  }
  return state;
}

} // namespace espalier::rt
