// A checkpoint is sound where its manifest is, its shards are there, and every piece that is read fits its checksum.
// What is not sound is passed over, aloud, for the one before.
#include "runtime/checkpoint/agree.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

/// A piece's tensor and box, without its range.
std::string boxKey(Piece piece) {
  piece.begin = piece.end = 0;
  return piece.key();
}

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
  for (const pb::Parameter &parameter : plan.parameters()) {
    auto found = there.find(parameter.name());
    if (found == there.end())
      return fmt::format("it has no parameter '{}'", parameter.name());
    std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
    if (found->second != shape)
      return fmt::format("parameter '{}' is {} there, {} here", parameter.name(), found->second, shape);
    there.erase(found);
  }
  return there.empty() ? "" : fmt::format("the plan has no parameter '{}'", there.begin()->first);
}

/// Elements [first, first + count) of one type, as another.
std::vector<std::byte> converted(std::span<const std::byte> from, pb::DataType type, pb::DataType wanted) {
  auto count = static_cast<int64_t>(from.size() / elementBytes(type));
  std::vector<std::byte> to(count * elementBytes(wanted));
  for (int64_t i = 0; i < count; ++i)
    storeElement(wanted, to.data(), i, loadElement(type, from.data(), i));
  return to;
}

} // namespace

Checkpoints::Checkpoints(const CheckpointOptions &options, const Program &program, const std::string &data)
    : options(options), program(program), fingerprint(fingerprintOf(program.plan(), data)), folder(options.folder) {
  if (options.resume) {
    candidates = checkpointNames(options.folder);
    if (candidates.empty())
      throw PlanError(fmt::format("{}: holds no checkpoint", options.folder.string()));
    if (std::string fault = latestFault(options.folder); !fault.empty())
      fmt::print(stderr, "espalier: warning: {}; going on with {}\n", fault, candidates.front());
    std::ranges::reverse(candidates);
    chooseNext();
  }
  requireRoom();
}

/// The next candidate whose manifest and shards are in order. Throws PlanError after the last one.
void Checkpoints::chooseNext() {
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
      fmt::print(stderr, "espalier: warning: {}; {}\n", fault,
                 candidates.empty() ? "there is none before it" : "going back to " + candidates.back());
      continue;
    }
    chosen = std::move(next);
    for (const Shard &shard : chosen->manifest.shards)
      for (const StoredPiece &stored : shard.pieces)
        chosen->sources[boxKey(stored.piece)].push_back({&shard, &stored});
    requireSameTraining(*chosen);
    requireSameSplit(*chosen);
    lastGood = chosen->name;
    return;
  }
  throw PlanError(
      fmt::format("{}: holds no checkpoint that is whole: {}", folder.path().string(), fmt::join(damaged, ", ")));
}

void Checkpoints::requireSameTraining(const Chosen &checkpoint) const {
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
  for (const std::string &change : changes)
    fmt::print(stderr, "espalier: note: accepted: {}\n", change);
  if (manifest.runSteps != options.steps && isLaidOverRun(program.plan().settings().learning_rate()))
    fmt::print(stderr,
               "espalier: note: the learning rate follows the length of the run: it was laid over {} steps and is now "
               "over {}; lr_schedule.total_steps gives it a length of its own\n",
               manifest.runSteps, options.steps);
}

const std::vector<Checkpoints::Source> *Checkpoints::sourcesOf(const Chosen &checkpoint, const Piece &wanted) const {
  Piece source = wanted;
  auto found = checkpoint.sources.find(boxKey(wanted));
  // Weights of another type come from the masters, where there are any, and masters that were not kept from weights.
  bool isOther = found == checkpoint.sources.end() || found->second.front().stored->piece.type != wanted.type;
  if (isOther && (wanted.kind == "value" || wanted.kind == "master"))
    for (const char *kind : {"master", "value"}) {
      source.kind = kind;
      if (auto other = checkpoint.sources.find(boxKey(source)); other != checkpoint.sources.end())
        return &other->second;
    }
  return found == checkpoint.sources.end() ? nullptr : &found->second;
}

void Checkpoints::requireSameSplit(const Chosen &checkpoint) const {
  for (int rank = 0; rank < program.mesh().ranks(); ++rank)
    for (const HeldPiece &held : heldPieces(program, rank)) {
      if (sourcesOf(checkpoint, held.piece))
        continue;
      std::vector<std::string> axes;
      for (const auto &[axis, size] : checkpoint.manifest.mesh)
        axes.push_back(fmt::format("{} {}", axis, size));
      throw PlanError(fmt::format("{}: written under another split of the parameters ({}): it has no {}; resume with a "
                                  "plan that splits them alike",
                                  checkpoint.path.string(), fmt::join(axes, " x "), held.piece.key()));
    }
}

void Checkpoints::loadPiece(Executor &executor, const HeldPiece &held) const {
  const Piece &wanted = held.piece;
  for (auto [shard, stored] : *sourcesOf(*chosen, wanted)) {
    const Piece &piece = stored->piece;
    if (piece.end <= wanted.begin || wanted.end <= piece.begin)
      continue;
    auto size = static_cast<int64_t>(elementBytes(piece.type));
    RegularFile file(chosen->path / shard->file, Links::Refused);
    readPiece(file, *shard, *stored, [&](uint64_t offset, std::span<const std::byte> part) {
      int64_t first = piece.begin + static_cast<int64_t>(offset) / size;
      int64_t begin = std::max(first, wanted.begin);
      int64_t end = std::min(first + static_cast<int64_t>(part.size()) / size, wanted.end);
      if (begin >= end)
        return;
      std::span<const std::byte> taken = part.subspan((begin - first) * size, (end - begin) * size);
      uint64_t address = held.address + (begin - wanted.begin) * elementBytes(wanted.type);
      if (piece.type == wanted.type)
        copyToRank(executor, address, taken);
      else
        copyToRank(executor, address, converted(taken, piece.type, wanted.type));
    });
  }
}

void Checkpoints::loadPieces(Executor &executor) const {
  for (const HeldPiece &held : heldPieces(program, executor.rankProgram().rank))
    loadPiece(executor, held);
}

ScalarState Checkpoints::load(Executor &executor) {
  bool isLeader = executor.rankProgram().rank == 0;
  for (;;) {
    bool hasFailed = false;
    try {
      loadPieces(executor);
    } catch (const PlanError &error) {
      hasFailed = true;
      blame(error.what());
    }
    if (!isTrueOnAny(executor, hasFailed))
      break;
    if (isLeader) { // the others wait, and then look at what it chose
      damaged.insert(chosen->name);
      fmt::print(stderr, "espalier: warning: {}; {}\n", std::exchange(firstFault, ""),
                 candidates.empty() ? "there is none before it" : "going back to " + candidates.back());
      try {
        chooseNext();
      } catch (const PlanError &error) {
        theLoadFault = error.what();
      }
    }
    if (isTrueOnAny(executor, isLeader && !theLoadFault.empty()))
      throw PlanError(theLoadFault);
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
