#include "runtime/checkpoint/start.h"

#include "format/checksum.h"
#include "messages/counted.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/nearest.h"
#include "runtime/dataset/content_digest.h"
#include "runtime/executor.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {

namespace {

/// Returns the whole parameter of a piece as one piece.
Piece wholeOf(const Piece &piece) {
  Piece whole = piece;
  whole.offsets.assign(piece.shape.size(), 0);
  whole.sizes = piece.shape;
  whole.begin = 0;
  whole.end = whole.boxElements();
  return whole;
}

/// Returns the real elements in the rows of a piece: elements 5 to 9 of a box with 4 columns lie in rows 1 and 2.
Piece rowsOf(const Piece &piece) {
  if (piece.sizes.empty() || piece.begin == piece.end)
    return wholeOf(piece);
  Piece rows = piece;
  int64_t columns = piece.boxElements() / piece.sizes[0];
  rows.offsets[0] += piece.begin / columns;
  rows.sizes[0] = (piece.end + columns - 1) / columns - piece.begin / columns;
  for (size_t i = 0; i < rows.sizes.size(); ++i)
    rows.sizes[i] = std::clamp<int64_t>(piece.shape[i] - rows.offsets[i], 0, rows.sizes[i]);
  rows.begin = 0;
  rows.end = rows.boxElements();
  return rows;
}

} // namespace

StartingWeights::StartingWeights(const Program &program, const std::filesystem::path &from, NonFinite nonFinite)
    : program(program), from(from), nonFinite(nonFinite) {
  if (WeightSystem system = systemAt(from); system == WeightSystem::Espalier) {
    stored.emplace(checkpointAt(from));
    missingAdapters = stored->missingAdapters(program.plan());
    stored->requireParameters(program.plan(), missingAdapters);
  } else if (system == WeightSystem::Peft) {
    throw PlanError(fmt::format("{0}: holds an adapter (LoRA) without the weights beside which it lies; join them: "
                                "espalier convert {0} FOLDER --to espalier --base WEIGHTS --model RUN.yaml",
                                from.string()));
  } else {
    foreign.emplace(convertedModel(program.plan()), system, from);
    foreign->printNote(from);
    openForeign();
  }
}

StartingWeights::StartingWeights(const Program &program, const std::filesystem::path &from, NonFinite nonFinite,
                                 const Continuation &run)
    : program(program), from(from), nonFinite(nonFinite), continued(run) {
  auto refuse = [&](const char *what) {
    throw PlanError(fmt::format("{}: {}, which resume_training needs; resume_training: False loads the weights alone",
                                from.string(), what));
  };
  if (systemAt(from) != WeightSystem::Espalier)
    refuse("not a checkpoint of Espalier, so it has no optimizer state");
  stored.emplace(checkpointAt(from));
  if (!stored->manifest().hasOptimizer)
    refuse("has no optimizer state");
  stored->requireContinuation(program.plan(), run);
}

/// The plan contains the naming rules. This checks that its other parts belong to the same model.
void StartingWeights::openForeign() {
  const WeightModel &model = foreign->model();
  for (size_t i = 0; i < model.parameters.size(); ++i)
    indices[model.parameters[i].name] = i;
  std::set<std::string> adapters = adapterNames(program.plan());
  for (const NamedParameter &named : parametersOf(program.plan())) {
    auto found = indices.find(named.name);
    if (found == indices.end() && adapters.contains(named.parameter->name())) {
      missingAdapters.insert(named.name);
      continue;
    }
    std::vector<int64_t> shape(named.parameter->shape().begin(), named.parameter->shape().end());
    if (found == indices.end() || model.parameters[found->second].sizes != shape)
      throw PlanError(
          fmt::format("{}: the plan does not say what others call its parameter '{}' of {}; compile it again",
                      from.string(), named.name, shape));
  }
}

std::shared_ptr<const std::vector<std::byte>> StartingWeights::foreignParameter(size_t index) const {
  std::lock_guard lock(mutex);
  if (last && lastIndex == index)
    return last;
  last.reset(); // freed before the next parameter is allocated
  last = std::make_shared<const std::vector<std::byte>>(foreign->parameters()[index].make());
  lastIndex = index;
  return last;
}

void StartingWeights::readForeign(const Piece &wanted, std::span<std::byte> values) const {
  size_t index = indices.at(wanted.name);
  const NewParameter &parameter = foreign->parameters()[index];
  Piece held = parameter.makeBox ? rowsOf(wanted) : wholeOf(wanted);
  held.type = parameter.type;
  if (held.end == 0) // padding only
    return;
  std::shared_ptr<const std::vector<std::byte>> bytes =
      parameter.makeBox ? std::make_shared<const std::vector<std::byte>>(parameter.makeBox(held.offsets, held.sizes))
                        : foreignParameter(index);
  auto size = elementBytes(held.type);
  visitShared(held, wanted, [&](const SharedRun &run) {
    convertElements(std::span(*bytes).subspan(run.from * size, run.count * size), held.type, values, wanted.type,
                    run.to);
  });
}

void StartingWeights::load(Executor &executor, ThreadPool &pool) const {
  std::vector<HeldPiece> pieces = heldPieces(program, executor.rankProgram().rank);
  std::erase_if(pieces, [&](const HeldPiece &held) {
    return isWeight(held.piece) && missingAdapters.contains(held.piece.name); // keeps its initial values
  });
  if (!foreign)
    return loadPieces(
        *stored, pieces,
        [&](const Piece &piece) {
          return isWeight(piece) || (continued && stored->has(piece, program.plan().settings()));
        },
        executor, pool, nonFinite);
  for (const HeldPiece &held : pieces) {
    std::vector<std::byte> values(held.piece.bytes());
    if (isWeight(held.piece))
      readForeign(held.piece, values);
    if (nonFinite == NonFinite::Refused)
      requireFinite(values, held.piece, from);
    copyToRank(executor, held, 0, values);
  }
}

std::string StartingWeights::identity() const {
  if (stored)
    return fmt::format("a checkpoint of step {} with manifest {}", stored->manifest().state.step,
                       fileDigest((stored->path() / manifestName).string()));
  namespace fs = std::filesystem;
  std::map<std::string, std::string> digests;
  auto add = [&](const fs::path &file) {
    constexpr std::array<std::string_view, 4> holders = {".safetensors", ".bin", ".pt", ".json"};
    if (fs::is_regular_file(file) && std::ranges::find(holders, file.extension().string()) != holders.end())
      digests[file.lexically_relative(from).string()] = fileDigest(file.string());
  };
  add(from);
  if (fs::is_directory(from))
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(from))
      add(entry.path());
  std::string all = fmt::format("{}", digests);
  return fmt::format("{} with digest {}", counted(digests.size(), "file"), checksumText(std::as_bytes(std::span(all))));
}

ScalarState StartingWeights::state() const {
  const pb::Settings &settings = program.plan().settings();
  return continued ? stored->state(settings, *continued) : initialScalars(settings);
}

} // namespace espalier::rt
