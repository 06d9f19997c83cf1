#include "runtime/checkpoint/start.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/nearest.h"
#include "runtime/executor.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {

StartingWeights::StartingWeights(const Program &program, const std::filesystem::path &from) : program(program) {
  if (WeightSystem system = systemAt(from); system == WeightSystem::Espalier) {
    stored.emplace(checkpointAt(from));
    stored->requireParameters(program.plan());
  } else {
    foreign.emplace(convertedModel(program.plan()), system, from);
    openForeign(from);
  }
}

StartingWeights::StartingWeights(const Program &program, const std::filesystem::path &from, const Continuation &run)
    : program(program), continued(run) {
  auto refuse = [&](const char *what) {
    throw PlanError(fmt::format("{}: {}, which resume_training asks for; resume_training: False takes its weights",
                                from.string(), what));
  };
  if (systemAt(from) != WeightSystem::Espalier)
    refuse("no checkpoint of Espalier, so that no optimizer's state is read");
  stored.emplace(checkpointAt(from));
  if (!stored->manifest().hasOptimizer)
    refuse("has no optimizer's state");
  stored->requireContinuation(program.plan(), run);
}

/// The names agree as the plan brings them; whether its other parts are of the same model shows here.
void StartingWeights::openForeign(const std::filesystem::path &from) {
  const WeightModel &model = foreign->model();
  for (size_t i = 0; i < model.parameters.size(); ++i)
    indices[model.parameters[i].name] = i;
  for (const NamedParameter &named : parametersOf(program.plan())) {
    auto found = indices.find(named.name);
    std::vector<int64_t> shape(named.parameter->shape().begin(), named.parameter->shape().end());
    if (found == indices.end() || model.parameters[found->second].sizes != shape)
      throw PlanError(
          fmt::format("{}: the plan does not say what others call its parameter '{}' of {}; compile it anew",
                      from.string(), named.name, shape));
  }
}

std::shared_ptr<const std::vector<std::byte>> StartingWeights::foreignParameter(size_t index) const {
  std::lock_guard lock(mutex);
  if (last && lastIndex == index)
    return last;
  last.reset(); // before the next one is there
  last = std::make_shared<const std::vector<std::byte>>(foreign->parameters()[index].make());
  lastIndex = index;
  return last;
}

void StartingWeights::readForeign(const Piece &wanted, std::span<std::byte> values) const {
  size_t index = indices.at(wanted.name);
  std::shared_ptr<const std::vector<std::byte>> bytes = foreignParameter(index);
  Piece whole;
  whole.type = foreign->parameters()[index].type;
  whole.shape = whole.sizes = wanted.shape;
  whole.offsets.resize(whole.sizes.size());
  whole.end = whole.boxElements();
  auto size = elementBytes(whole.type);
  visitShared(whole, wanted, [&](const SharedRun &run) {
    convertElements(std::span(*bytes).subspan(run.from * size, run.count * size), whole.type, values, wanted.type,
                    run.to);
  });
}

void StartingWeights::load(Executor &executor) const {
  for (const HeldPiece &held : heldPieces(program, executor.rankProgram().rank)) {
    const Piece &wanted = held.piece;
    std::vector<std::byte> values(wanted.bytes());
    bool isWeight = wanted.kind == "value" || wanted.kind == "master";
    if (isWeight && foreign)
      readForeign(wanted, values);
    else if (isWeight || continued)
      stored->read(wanted, values);
    copyToRank(executor, held, 0, values);
  }
}

ScalarState StartingWeights::state() const {
  const pb::Settings &settings = program.plan().settings();
  return continued ? stored->state(settings, *continued) : initialScalars(settings);
}

} // namespace espalier::rt
