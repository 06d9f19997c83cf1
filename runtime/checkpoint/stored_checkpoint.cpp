#include "runtime/checkpoint/stored_checkpoint.h"

#include "format/model_inputs.h"
#include "format/optimizers.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/nearest.h"
#include "runtime/kernels/element.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

bool isLaidOverRun(const pb::LearningRate &rate) {
  return rate.total_steps() <= 0 &&
         (rate.warmup_ratio() > 0 || (rate.kind() != "constant" && rate.kind() != "inverse_sqrt"));
}

/// Returns how the parameters of a checkpoint and a plan differ, or an empty text. Plans that do not train have no
/// modules that predict further tokens.
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
  const std::string &mode = plan.settings().run_mode();
  bool isTrained = mode != "predict" && mode != "eval";
  for (const auto &[name, shape] : there)
    if (isTrained || !isOfFurtherModule(name))
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
    requireSources(plan, run);
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

/// Several optimizers have a state tensor `momentum`. What it holds differs, and so does its scale.
bool StoredCheckpoint::isOfSameOptimizer(std::string_view kind, const pb::Settings &settings) const {
  const auto &terms = theManifest.fingerprint.terms;
  auto text = terms.find("optimizer");
  pb::Optimizer saved = text == terms.end() ? settings.optimizer() : optimizerOfText(text->second);
  auto writer = [&](pb::Optimizer optimizer) {
    bool isOwn = std::ranges::find(optimizerRow(optimizer).states, kind) != optimizerRow(optimizer).states.end();
    return isOwn ? optimizer : pb::ADAMW;
  };
  return kind == masterKind || writer(saved) == writer(settings.optimizer());
}

bool StoredCheckpoint::has(const Piece &piece, const pb::Settings &settings) const {
  return isWeight(piece) || (theManifest.hasOptimizer && isOfSameOptimizer(piece.kind, settings) &&
                             sources.fault(piece.kind, piece.name).empty());
}

/// Returns whether the checkpoint has state of a parameter that the plan's optimizer does not have.
bool StoredCheckpoint::hasOtherState(const NamedParameter &named, const pb::Settings &settings) const {
  std::vector<const char *> own = stateKinds(*named.bucket);
  for (const OptimizerRow &row : optimizers)
    for (std::string_view kind : row.states)
      if ((std::ranges::find(own, kind) == own.end() || !isOfSameOptimizer(kind, settings)) &&
          sources.fault(std::string(kind), named.name).empty())
        return true;
  return false;
}

/// Checks that the checkpoint has each tensor that this plan needs, no matter which plan wrote it. If the optimizer is
/// another one by an accepted change, its state may be missing.
void StoredCheckpoint::requireSources(const pb::Plan &plan, const Continuation &run) const {
  bool startsAnew = false;
  auto require = [&](const std::string &kind, const NamedParameter &named) {
    std::string fault = sources.fault(kind, named.name);
    bool isOther = kind != "value" && !isOfSameOptimizer(kind, plan.settings());
    if (fault.empty() && !isOther)
      return;
    if (!run.acceptChanges || kind == masterKind || !hasOtherState(named, plan.settings()))
      throw PlanError(fmt::format("{}: cannot be continued: {}", folder.string(), fault));
    startsAnew = true;
  };
  for (const NamedParameter &named : parametersOf(plan)) {
    require("value", named);
    for (const char *kind : stateKinds(*named.bucket))
      require(kind, named);
  }
  if (startsAnew && run.isAloud)
    fmt::print(stderr,
               "espalier: note: {}: has the state of another optimizer; the state of this run's optimizer starts "
               "from zero\n",
               folder.string());
}

/// The ranges of all targets are one list, so that a large piece keeps all threads busy.
void StoredCheckpoint::read(std::span<const Target> targets, ThreadPool &pool, NonFinite nonFinite) const {
  struct Part {
    const Target *target;
    const Take *take;
    ByteRange range;
  };
  std::deque<Take> takes;
  std::vector<Part> parts;
  for (const Target &target : targets) {
    if (realElements(target.wanted) < target.wanted.end - target.wanted.begin)
      std::ranges::fill(target.values, std::byte(0));
    for (Take &take : sources.takesFor(target.wanted)) {
      takes.push_back(std::move(take));
      for (ByteRange range : takes.back().bytesRead())
        parts.push_back({&target, &takes.back(), range});
    }
  }
  auto readOne = [&](const Part &part) {
    RegularFile file(folder / part.take->shard->file, Links::Refused);
    pb::DataType type = part.take->stored->piece.type, wanted = part.target->wanted.type;
    std::span<std::byte> values = part.target->values;
    if (std::optional<int64_t> place = part.take->placeOf(part.range); place && type == wanted)
      return part.take->readPart(file, part.range,
                                 values.subspan(*place * elementBytes(type), part.range.end - part.range.begin));
    part.take->readPart(file, part.range, [&](int64_t to, std::span<const std::byte> from) {
      convertElements(from, type, values, wanted, to);
    });
  };
  auto job = [&](int64_t part) { readOne(parts[part]); };
  pool.run(
      static_cast<int64_t>(parts.size()),
      [](void *context, int64_t part, int) { (*static_cast<decltype(job) *>(context))(part); }, &job);
  if (nonFinite == NonFinite::Accepted)
    return;
  auto check = [&](int64_t i) { requireFinite(targets[i].values, targets[i].wanted, folder); };
  pool.run(
      static_cast<int64_t>(targets.size()),
      [](void *context, int64_t i, int) { (*static_cast<decltype(check) *>(context))(i); }, &check);
}

void loadPieces(const StoredCheckpoint &from, const std::vector<HeldPiece> &pieces,
                const std::function<bool(const Piece &)> &isRead, Executor &executor, ThreadPool &pool,
                NonFinite nonFinite) {
  std::vector<std::byte> staged; // for devices whose memory the host cannot write
  std::vector<StoredCheckpoint::Target> targets;
  for (const HeldPiece &held : pieces) {
    DeviceRange place = placeOf(executor, held);
    std::byte *direct = executor.device().writable(place.offset);
    if (!isRead(held.piece)) {
      executor.device().fill(place.offset, 0, place.bytes);
    } else if (direct) {
      targets.push_back({held.piece, {direct, place.bytes}});
    } else {
      staged.resize(std::max(staged.size(), place.bytes));
      StoredCheckpoint::Target target{held.piece, std::span(staged).first(place.bytes)};
      from.read({&target, 1}, pool, nonFinite);
      copyToRank(executor, held, 0, target.values);
    }
  }
  from.read(targets, pool, nonFinite);
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
