// A checkpoint is sound where its manifest is, its shards are there, and every piece that is read fits its checksum.
// What is not sound is passed over, aloud, for the one before.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/inspect.h"
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

/// How the parameters of a checkpoint and a plan differ, empty where they do not.
std::string parameterDifference(const Manifest &manifest, const pb::Plan &plan) {
  std::map<std::string, std::vector<int64_t>> there;
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces)
      if (stored.piece.kind == "value")
        there.try_emplace(stored.piece.name, stored.piece.shape);
  for (const NamedParameter &named : parametersOf(plan)) {
    auto found = there.find(named.name);
    if (found == there.end())
      return fmt::format("it has no parameter '{}'", named.name);
    std::vector<int64_t> shape(named.parameter->shape().begin(), named.parameter->shape().end());
    if (found->second != shape)
      return fmt::format("parameter '{}' is {} there, {} here", named.name, found->second, shape);
    there.erase(found);
  }
  return there.empty() ? "" : fmt::format("the plan has no parameter '{}'", there.begin()->first);
}

/// Writes elements of one type to place `to` of an array of another.
void convert(std::span<const std::byte> from, pb::DataType type, std::vector<std::byte> &array, pb::DataType wanted,
             int64_t to) {
  if (type == wanted) {
    std::ranges::copy(from, array.begin() + to * elementBytes(wanted));
    return;
  }
  auto count = static_cast<int64_t>(from.size() / elementBytes(type));
  for (int64_t i = 0; i < count; ++i)
    storeElement(wanted, array.data(), to + i, loadElement(type, from.data(), i));
}

} // namespace

Checkpoints::Checkpoints(const CheckpointOptions &options, const Program &program, const std::string &data)
    : options(options), program(program), fingerprint(fingerprintOf(program.plan(), data)),
      folder(options.folder, options.token) {
  bool isSpeaker = options.token.empty();
  if (options.resume) {
    candidates = checkpointNames(options.folder);
    if (candidates.empty())
      throw PlanError(fmt::format("{}: holds no checkpoint", options.folder.string()));
    if (std::string fault = latestFault(options.folder); !fault.empty() && isSpeaker)
      fmt::print(stderr, "espalier: warning: {}; going on with {}\n", fault, candidates.front());
    std::ranges::reverse(candidates);
    chooseNext(isSpeaker);
  }
  if (isSpeaker)
    requireRoom();
}

/// The next candidate whose manifest and shards are in order. Throws PlanError after the last one.
void Checkpoints::chooseNext(bool isAloud) {
  chosen.reset();
  while (!candidates.empty()) {
    Chosen next;
    next.name = candidates.back();
    next.path = folder.path() / next.name;
    candidates.pop_back();
    std::string fault;
    try {
      next.manifest = readManifest(next.path);
      std::vector<std::string> faults = shardFaults(next.path, next.manifest, Depth::Headers);
      fault = faults.empty() ? "" : faults.front();
    } catch (const PlanError &error) {
      fault = error.what();
    }
    if (!fault.empty()) {
      damaged.insert(next.name);
      passOver(fault, isAloud);
      continue;
    }
    chosen = std::move(next);
    chosen->sources.emplace(chosen->manifest, chosen->path.string());
    requireSameTraining(*chosen, isAloud);
    requireSources(*chosen);
    lastGood = chosen->name;
    return;
  }
  throw PlanError(
      fmt::format("{}: holds no checkpoint that is whole: {}", folder.path().string(), fmt::join(damaged, ", ")));
}

void Checkpoints::requireSameTraining(const Chosen &checkpoint, bool isAloud) const {
  const Manifest &manifest = checkpoint.manifest;
  std::string path = checkpoint.path.string(), difference = parameterDifference(manifest, program.plan());
  if (difference.empty() && manifest.fingerprint.model != fingerprint.model)
    difference = "its parameters are the same, what is computed with them is not";
  if (!difference.empty())
    throw PlanError(fmt::format("{}: a checkpoint of another model: {}", path, difference));
  std::vector<std::string> changes = changedTerms(manifest.fingerprint, fingerprint);
  if (!changes.empty() && !options.acceptChanges)
    throw PlanError(fmt::format("{}: written by a run that differs from this one:\n  {}\nsay --accept-changes to go on "
                                "with what is given now",
                                path, fmt::join(changes, "\n  ")));
  if (!isAloud)
    return;
  for (const std::string &change : changes)
    fmt::print(stderr, "espalier: note: accepted: {}\n", change);
  if (manifest.runSteps != options.steps && isLaidOverRun(program.plan().settings().learning_rate()))
    fmt::print(stderr,
               "espalier: note: the learning rate follows the length of the run: it was laid over {} steps and is now "
               "over {}; lr_schedule.total_steps gives it a length of its own\n",
               manifest.runSteps, options.steps);
}

/// Whatever plan wrote it, each tensor that this one needs is there.
void Checkpoints::requireSources(const Chosen &checkpoint) const {
  auto require = [&](const char *kind, const std::string &name) {
    if (std::string fault = checkpoint.sources->fault(kind, name); !fault.empty())
      throw PlanError(fmt::format("{}: cannot be gone on with: {}", checkpoint.path.string(), fault));
  };
  for (const NamedParameter &named : parametersOf(program.plan())) {
    require("value", named.name);
    for (const char *kind : stateKinds(*named.bucket))
      require(kind, named.name);
  }
}

void Checkpoints::loadPiece(Executor &executor, const HeldPiece &held) const {
  const Piece &wanted = held.piece;
  std::vector<std::byte> values(wanted.bytes()); // padding stays zero
  for (const Take &take : chosen->sources->takesFor(wanted)) {
    RegularFile file(chosen->path / take.shard->file, Links::Refused);
    take.read(file, [&](int64_t to, std::span<const std::byte> from) {
      convert(from, take.stored->piece.type, values, wanted.type, to);
    });
  }
  copyToRank(executor, held, 0, values);
}

void Checkpoints::loadPieces(Executor &executor) const {
  for (const HeldPiece &held : heldPieces(program, executor.rankProgram().rank))
    loadPiece(executor, held);
}

void Checkpoints::passOver(const std::string &fault, bool isAloud) {
  if (isAloud)
    fmt::print(stderr, "espalier: warning: {}; {}\n", fault,
               candidates.empty() ? "there is none before it" : "going back to " + candidates.back());
}

/// Each process has looked into the folder itself. False, with a fault, where any found none or they did not find the
/// same one.
bool Checkpoints::isOneChoice(Agreement &agreement) {
  std::vector<std::string> faults = agreement.tell(agreement.isFirstHere() ? theLoadFault : "");
  std::vector<std::string> names = agreement.tell(chosen ? chosen->name : "");
  auto fault = std::ranges::find_if(faults, [](const std::string &text) { return !text.empty(); });
  auto other = std::ranges::find_if(names, [&](const std::string &name) { return name != names[0]; });
  if (fault == faults.end() && other == names.end())
    return true;
  std::string text = fault != faults.end()
                         ? *fault
                         : fmt::format("{}: rank 0 finds {} there, rank {} finds {}: all need the same folder",
                                       folder.path().string(), names[0], other - names.begin(), *other);
  if (agreement.isFirstHere())
    theLoadFault = text;
  return false;
}

std::optional<ScalarState> Checkpoints::load(Executor &executor, Agreement &agreement) {
  for (;;) {
    if (!isOneChoice(agreement))
      return std::nullopt;
    std::string fault;
    try {
      loadPieces(executor);
    } catch (const PlanError &error) {
      fault = error.what();
    }
    fault = agreement.first(fault);
    if (fault.empty())
      break;
    if (agreement.isFirstHere()) { // the others of this process wait, and then look at what it chose
      damaged.insert(chosen->name);
      passOver(fault, agreement.isLeader());
      try {
        chooseNext(agreement.isLeader());
      } catch (const PlanError &error) {
        theLoadFault = error.what();
      }
    }
  }
  ScalarState state = chosen->manifest.state;
  const pb::Settings &settings = program.plan().settings();
  const auto &terms = chosen->manifest.fingerprint.terms;
  if (auto scale = terms.find("loss scale"); scale != terms.end() && *scale != *fingerprint.terms.find("loss scale")) {
    state.lossScale = initialScalars(settings).lossScale;
    state.cleanSteps = 0;
  }
  return state;
}

} // namespace espalier::rt
