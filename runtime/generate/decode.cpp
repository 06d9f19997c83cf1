#include "runtime/generate/decode.h"

#include "runtime/crash_report.h"
#include "runtime/executor.h"
#include "runtime/generate/weights.h"
#include "runtime/memory_check.h"
#include "runtime/status.h"
#include "runtime/train/initialize.h"
#include "runtime/train/rank.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

uint32_t entryNamed(const pb::Plan &plan, const char *name) {
  if (std::string reason = whyNotGenerating(plan); !reason.empty())
    throw PlanError(reason);
  return *findEntry(plan, name);
}

bool isOf(const pb::Exchange &exchange, uint32_t entry) { return std::ranges::count(exchange.entries(), entry) > 0; }

} // namespace

std::string whyNotGenerating(const pb::Plan &plan) {
  if (findEntry(plan, "prefill") && findEntry(plan, "decode") && plan.settings().prompt_tokens() > 0)
    return "";
  return fmt::format("the plan of {} trains; one that generates is compiled with --set run_mode=predict", plan.model());
}

Decoder::Decoder(const Program &program, const std::filesystem::path &checkpoint, int wanted)
    : program(program), prefillEntry(entryNamed(program.plan(), "prefill")),
      decodeEntry(entryNamed(program.plan(), "decode")), threads(threadsPerRank(wanted, program.mesh().ranks())),
      weights(checkpoint.empty() ? nullptr : std::make_unique<Weights>(program, checkpoint)),
      world(program.mesh().ranks()), allLogits(sequences() * static_cast<size_t>(vocabulary())) {
  requireMemory(program, threads, freeMemory(), program.mesh().ranks());
  running = world.ranks();
  try {
    for (int rank = 0; rank < world.ranks(); ++rank)
      ranks.push_back(startThread<std::jthread>([this, rank] { rankLoop(rank); }));
    awaitRanks();
  } catch (...) {
    end();
    throw;
  }
}

Decoder::~Decoder() { end(); }

void Decoder::end() {
  if (ranks.size() < static_cast<size_t>(world.ranks())) // some never started: the others would wait for them
    abortFor([&](const Failure &failure) { world.abort(failure); }, -1, nullptr,
             std::runtime_error("a rank could not be started"));
  {
    std::lock_guard lock(mutex);
    isEnding = true;
    told.notify_all();
  }
  ranks.clear();
}

/// Returns once all have finished what they were told. Throws RankFailure.
void Decoder::awaitRanks() {
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return running == 0; });
  if (std::optional<Failure> failure = world.failure())
    throw RankFailure(*failure);
}

uint32_t Decoder::sequences() const { return static_cast<uint32_t>(program.plan().settings().micro_batch_size()); }
int64_t Decoder::context() const { return static_cast<int64_t>(program.plan().settings().sequence()); }
int64_t Decoder::promptTokens() const { return static_cast<int64_t>(program.plan().settings().prompt_tokens()); }
int64_t Decoder::vocabulary() const { return static_cast<int64_t>(program.plan().settings().vocabulary()); }

std::span<const float> Decoder::logits(uint32_t sequence) const {
  auto size = static_cast<size_t>(vocabulary());
  return std::span(allLogits).subspan(sequence * size, size);
}

void Decoder::run(uint32_t wanted, int64_t most, std::span<const Feed> given) {
  assert(std::ranges::all_of(given, [&](const Feed &feed) {
    auto count = static_cast<int64_t>(feed.tokens.size());
    return feed.sequence < sequences() && count > 0 && count <= most && feed.position + count <= context();
  }));
  {
    std::lock_guard lock(mutex);
    entry = wanted;
    tokens = most;
    feeds = given;
    running = world.ranks();
    ++commands;
    told.notify_all();
  }
  awaitRanks();
}

/// Ranks that have failed, or were stopped, have finished every command.
void Decoder::report() {
  std::lock_guard lock(mutex);
  if (--running == 0)
    done.notify_all();
}

/// False where there is none any more.
bool Decoder::awaitCommand(uint64_t &seen) {
  std::unique_lock lock(mutex);
  told.wait(lock, [&] { return isEnding || commands > seen; });
  if (commands > seen) {
    ++seen;
    return true;
  }
  return false;
}

void Decoder::rankLoop(int rank) {
  std::unique_ptr<Communicator> communicator;
  std::optional<ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::optional<Executor> executor;
  uint64_t seen = 0;
  bool isFailed = false;
  do {
    try {
      if (executor && !isFailed) {
        runEntry(*executor);
      } else if (!isFailed) {
        communicator = world.communicator(rank);
        pool.emplace(threads, 0);
        const pb::Stage &stage = program.plan().stages(program.mesh().stage(rank));
        device = program.backend().open(stage, {*communicator, *pool, 0});
        executor.emplace(program, rank, *device);
        if (weights)
          weights->load(*executor);
        else
          initializeParameters(program, *executor, *pool);
      }
    } catch (const RankStopped &) {
      isFailed = true;
    } catch (const std::exception &error) {
      isFailed = true;
      abortFor([&](const Failure &failure) { world.abort(failure); }, rank, executor ? &*executor : nullptr, error);
    }
    report();
  } while (awaitCommand(seen));
}

void Decoder::runEntry(Executor &executor) {
  const pb::Stage &stage = program.plan().stages(executor.rankProgram().stage);
  for (int i = 0; i < stage.exchanges_size(); ++i)
    if (stage.exchanges(i).filled_by_host() && isOf(stage.exchanges(i), entry))
      fill(executor, stage.exchanges(i), static_cast<uint32_t>(i));
  executor.run(entry);
  for (int i = 0; i < stage.exchanges_size(); ++i)
    if (!stage.exchanges(i).filled_by_host() && isOf(stage.exchanges(i), entry))
      collect(executor, stage.exchanges(i), static_cast<uint32_t>(i));
}

/// Inputs are known by the first part of their names: tokens, positions (-1: padding), and rows, the place of the token
/// of each sequence whose logits are wanted.
void Decoder::fill(Executor &executor, const pb::Exchange &exchange, uint32_t index) const {
  std::string_view name = std::string_view(exchange.name()).substr(0, exchange.name().find('.'));
  std::span<std::byte> memory = executor.exchange(index);
  std::vector<int32_t> values(memory.size() / sizeof(int32_t), name == "positions" ? -1 : 0);
  for (const Feed &feed : feeds)
    if (name == "rows")
      values[feed.sequence] = static_cast<int32_t>(feed.tokens.size()) - 1;
    else
      for (size_t i = 0; i < feed.tokens.size(); ++i)
        values[feed.sequence * static_cast<size_t>(tokens) + i] =
            name == "tokens" ? feed.tokens[i] : static_cast<int32_t>(feed.position + static_cast<int64_t>(i));
  std::memcpy(memory.data(), values.data(), memory.size());
}

/// A rank has the logits of a part of the padded vocabulary, by its coordinate on tp, or of all.
void Decoder::collect(Executor &executor, const pb::Exchange &exchange, uint32_t index) {
  std::span<std::byte> memory = executor.exchange(index);
  int64_t columns = static_cast<int64_t>(exchange.buffer().bytes() / sizeof(float)) / sequences();
  int64_t first = columns * program.mesh().index(executor.rankProgram().rank, TP);
  int64_t count = std::clamp<int64_t>(vocabulary() - first, 0, columns);
  for (uint32_t sequence = 0; sequence < sequences() && count > 0; ++sequence)
    std::memcpy(&allLogits[sequence * static_cast<size_t>(vocabulary()) + static_cast<size_t>(first)],
                memory.data() + static_cast<size_t>(sequence * columns) * sizeof(float),
                static_cast<size_t>(count) * sizeof(float));
}

} // namespace espalier::rt
