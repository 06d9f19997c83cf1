// All ranks agree on each of two steps: write the files of the ranks, commit the manifest. The disk may fail in both.
#include "messages/counted.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/shard_file.h"
#include "runtime/checkpoint/unfinished.h"
#include "runtime/status.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

/// Writes the file of a rank from the memory of its device.
void writeFromDevice(const ShardLayout &layout, const Executor &executor, const std::filesystem::path &folder) {
  std::vector<std::byte> block;
  auto read = [&](size_t piece, uint64_t begin, uint64_t bytes) {
    block.resize(std::max<size_t>(block.size(), bytes));
    std::span<std::byte> taken = std::span(block).first(bytes);
    copyFromRank(executor, layout.held[piece], begin, taken);
    return std::span<const std::byte>(taken);
  };
  writeShard(layout, executor.rankProgram().rank, folder, read);
}

} // namespace

void Checkpoints::requireRoom() const {
  uint64_t each = checkpointBytes(program), free = folder.freeBytes();
  if (free < each)
    throw PlanError(fmt::format("{}: a checkpoint takes {}, {} are free there; make room or give another folder",
                                folder.path().string(), mebibytes(each), mebibytes(free)));
  if (options.saveEvery <= 0)
    return;
  int64_t due = (options.steps + options.saveEvery - 1) / options.saveEvery;
  if (options.keep > 0)
    due = std::min(due, options.keep + 1); // the new checkpoint is complete before the oldest is removed
  fmt::print(stderr, "{}: note: {} are kept{}\n", folder.path().string(),
             options.keep > 0 ? fmt::format("the newest {} checkpoints", options.keep) : "all checkpoints",
             options.keep > 0 ? "" : "; --keep N keeps the newest N");
  if (each > 0 && static_cast<uint64_t>(due) > free / each)
    fmt::print(stderr, "{}: warning: {} checkpoints of {} are due, {} are free there: room for {}\n",
               folder.path().string(), due, mebibytes(each), mebibytes(free), free / each);
}

std::filesystem::path Checkpoints::begin(int64_t step) const {
  folder.begin(step);
  return folder.partial(step);
}

Manifest Checkpoints::manifestOf(const ScalarState &state) const {
  const pb::Plan &plan = program.plan();
  Manifest manifest;
  manifest.sequence = folder.nextSequence();
  manifest.model = plan.model();
  manifest.parameters = plan.parameter_count();
  const std::array sizes = axisFields(plan.mesh());
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    manifest.mesh.emplace_back(meshAxes[axis], sizes[axis]);
  manifest.state = state;
  manifest.runSteps = options.steps;
  manifest.fingerprint = continuation.fingerprint;
  manifest.kept = keptEntries(options.kept);
  return manifest;
}

void Checkpoints::draft(const ScalarState &state) const {
  writeKept(folder.partial(state.step), options.kept);
  writeDraft(folder.partial(state.step), manifestOf(state));
}

SaveRecord Checkpoints::commit(const ScalarState &state) {
  Manifest manifest = manifestOf(state);
  removeDraft(folder.partial(state.step));
  writeKept(folder.partial(state.step), options.kept);
  manifest.shards = takeShards(folder.partial(state.step), program.mesh().ranks());
  try {
    lastGood = folder.commit(state.step, manifestText(manifest));
  } catch (const LatestFault &fault) {
    lastGood = fault.name;
    throw;
  }
  unsaved = 0;
  try {
    if (options.keep > 0)
      folder.prune(options.keep, apart);
  } catch (const std::exception &error) {
    fmt::print(stderr, "espalier: warning: an old checkpoint cannot be removed: {}\n", error.what());
  }
  return {.step = state.step, .name = lastGood, .bytes = manifest.bytes()};
}

void Checkpoints::reject(int64_t step, const std::string &fault, bool isLast) {
  folder.discard(step);
  bool isComplete = lastGood.starts_with(fmt::format("step-{:08}", step));
  std::string sentence = fmt::format("the checkpoint of step {} is not {}: {}; the last good one is {}", step,
                                     isComplete ? "named by 'latest'" : "written", fault,
                                     lastGood.empty() ? "none" : (folder.path() / lastGood).string());
  if (++unsaved >= options.maxUnsaved && !isLast)
    sentence += fmt::format("; {} failed since, and --max-unsaved {} ends the run", counted(unsaved, "save"),
                            options.maxUnsaved);
  if (isLast || unsaved >= options.maxUnsaved)
    throw FinalError(sentence);
  fmt::print(stderr, "espalier: warning: {}; training continues and the next save tries again\n", sentence);
}

std::optional<SaveRecord> Checkpoints::save(Executor &executor, Agreement &agreement, const ScalarState &state,
                                            bool isLast) {
  auto start = std::chrono::steady_clock::now();
  std::string fault; // of the first rank with an error, the same on all ranks
  auto isDone = [&](bool isMine, auto &&work) {
    std::string own;
    try {
      if (isMine)
        work();
    } catch (const std::exception &error) {
      own = error.what();
    }
    fault = agreement.first(own);
    return fault.empty();
  };
  auto write = [&] { writeFromDevice(shardLayout(program, executor.rankProgram().rank), executor, begin(state.step)); };
  SaveRecord record;
  bool isWritten = isDone(true, write) && isDone(agreement.isLeader(), [&] { record = commit(state); });
  if (!agreement.isLeader())
    return std::nullopt;
  if (!isWritten) {
    reject(state.step, fault, isLast);
    return std::nullopt;
  }
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  record.blockedSeconds = record.writtenSeconds = seconds.count();
  return record;
}

} // namespace espalier::rt
