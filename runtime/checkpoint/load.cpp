// A checkpoint is sound if its manifest is valid, its shards exist, and every piece that is read matches its checksum.
// An unsound checkpoint is reported and skipped for the one before it.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/convert/convert.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

/// The folder of the options, if it can hold the checkpoints of this run. Throws PlanError for a folder that hosts do
/// not share, for one checkpoint, for the weights of another program, and for a run that resumes where no checkpoint
/// is; nothing is made then.
const std::filesystem::path &usableFolder(const CheckpointOptions &options) {
  const std::filesystem::path &folder = options.folder;
  std::string name = folder.string();
  requireSharedFolder(folder, options.token);
  if (std::filesystem::exists(folder / manifestName))
    throw PlanError(fmt::format("{}: is one checkpoint, and --checkpoint names the folder of all; give --checkpoint {} "
                                "--resume to go on with the newest, or --load {} to start from these weights",
                                name, (folder / "..").lexically_normal().string(), name));
  if (std::string program = foreignWeightsAt(folder); !program.empty())
    throw PlanError(fmt::format("{}: holds weights of {}, among which a run writes no checkpoints; give --load {} to "
                                "start from them, and --checkpoint another folder",
                                name, program, name));
  if (options.resume && checkpointNames(folder).empty())
    throw PlanError(fmt::format("{}: holds no checkpoint{}; --resume continues from the --checkpoint of an earlier run",
                                name, std::filesystem::exists(folder) ? "" : ", and is not there"));
  return folder;
}

} // namespace

Checkpoints::Checkpoints(const CheckpointOptions &options, const Program &program, const std::string &data)
    : options(options), program(program),
      continuation{fingerprintOf(program.plan(), data), options.steps, options.acceptChanges},
      folder(usableFolder(options), options.token) {
  bool isSpeaker = options.token.empty();
  candidates = checkpointNames(options.folder);
  if (options.resume) {
    if (std::string fault = latestFault(options.folder); !fault.empty() && isSpeaker)
      fmt::print(stderr, "espalier: warning: {}; continuing with {}\n", fault, candidates.front());
    std::ranges::reverse(candidates);
    chooseNext(isSpeaker);
  } else if (!candidates.empty()) {
    if (isSpeaker)
      fmt::print(stderr,
                 "espalier: note: {}: holds checkpoints of another run, the newest is {}; they stay, and this run "
                 "starts from the beginning; --resume continues them\n",
                 options.folder.string(), candidates.front());
    apart = {candidates.begin(), candidates.end()};
  }
  if (isSpeaker)
    requireRoom();
}

/// Chooses the next candidate with a valid manifest and valid shards. Throws PlanError after the last one.
void Checkpoints::chooseNext(bool isAloud) {
  chosen.reset();
  while (!candidates.empty()) {
    std::string name = candidates.back();
    candidates.pop_back();
    try {
      chosen.emplace(folder.path() / name);
    } catch (const PlanError &error) {
      apart.insert(name);
      passOver(error.what(), isAloud);
      continue;
    }
    continuation.isAloud = isAloud;
    chosen->requireContinuation(program.plan(), continuation);
    lastGood = name;
    return;
  }
  throw PlanError(fmt::format("{}: holds no complete checkpoint: {}", folder.path().string(), fmt::join(apart, ", ")));
}

void Checkpoints::passOver(const std::string &fault, bool isAloud) {
  if (isAloud)
    fmt::print(stderr, "espalier: warning: {}; {}\n", fault,
               candidates.empty() ? "there is none before it" : "going back to " + candidates.back());
}

/// Returns whether all processes chose the same checkpoint; each has read the folder itself. Sets the fault otherwise.
bool Checkpoints::isOneChoice(Agreement &agreement) {
  std::vector<std::string> faults = agreement.tell(agreement.isFirstHere() ? theLoadFault : "");
  std::vector<std::string> names = agreement.tell(chosen ? lastGood : "");
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

void Checkpoints::loadChosen(Executor &executor, ThreadPool &pool) const {
  auto isRead = [&](const Piece &piece) { return chosen->has(piece, program.plan().settings()); };
  loadPieces(*chosen, heldPieces(program, executor.rankProgram().rank), isRead, executor, pool, options.nonFinite);
}

/// Rank 0 alone knows which checkpoints were completed.
std::optional<ScalarState> Checkpoints::loadLastGood(Executor &executor, Agreement &agreement, ThreadPool &pool,
                                                     std::string &fault) {
  auto attempt = [&](bool isMine, auto &&work) {
    std::string own;
    try {
      if (isMine)
        work();
    } catch (const PlanError &error) {
      own = error.what();
    }
    fault = agreement.first(own);
    return fault.empty();
  };
  std::string name = agreement.first(agreement.isLeader() ? lastGood : "");
  if (name.empty()) {
    fault = "the run has not written a checkpoint yet";
    return std::nullopt;
  }
  // The ranks of a process share `chosen`.
  if (!attempt(agreement.isFirstHere(), [&] { chosen.emplace(folder.path() / name); }) ||
      !attempt(true, [&] { loadChosen(executor, pool); }))
    return std::nullopt;
  return chosen->state(program.plan().settings(), continuation);
}

std::optional<ScalarState> Checkpoints::load(Executor &executor, Agreement &agreement, ThreadPool &pool) {
  for (;;) {
    if (!isOneChoice(agreement))
      return std::nullopt;
    std::string fault;
    try {
      loadChosen(executor, pool);
    } catch (const PlanError &error) {
      fault = error.what();
    }
    fault = agreement.first(fault);
    if (fault.empty())
      break;
    if (agreement.isFirstHere()) { // other ranks of this process wait, then use its choice
      apart.insert(lastGood);
      passOver(fault, agreement.isLeader());
      try {
        chooseNext(agreement.isLeader());
      } catch (const PlanError &error) {
        theLoadFault = error.what();
      }
    }
  }
  return chosen->state(program.plan().settings(), continuation);
}

} // namespace espalier::rt
