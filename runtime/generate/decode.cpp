#include "runtime/generate/decode.h"

#include "runtime/memory_check.h"
#include "runtime/status.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>
#include <numeric>

namespace espalier::rt {

namespace {

uint32_t entryNamed(const pb::Plan &plan, const char *name) {
  if (std::string reason = whyNotGenerating(plan); !reason.empty())
    throw PlanError(reason);
  return *findEntry(plan, name);
}

uint32_t joinAll(Communicator &communicator) {
  constexpr uint32_t queue = (1 << 16) + 1; // above all queues of plans and the queue of Agreement
  std::vector<int> members(communicator.ranks());
  std::iota(members.begin(), members.end(), 0);
  return communicator.joinGroup(members, queue);
}

} // namespace

std::string whyNotGenerating(const pb::Plan &plan) {
  if (findEntry(plan, "prefill") && findEntry(plan, "decode") && plan.settings().prompt_tokens() > 0)
    return "";
  return fmt::format("the plan of {} trains; one that generates is compiled with --set run_mode=predict", plan.model());
}

LogitsGather::LogitsGather(const Program &program, Communicator &communicator, int spins)
    : program(program), communicator(communicator), spins(spins), group(joinAll(communicator)),
      parts(communicator.allocate(bytes(program)), bytes(program)) {}

size_t LogitsGather::bytes(const Program &program) { return logitsBytes(program.plan()) * program.mesh().ranks(); }

void LogitsGather::run(std::span<const std::byte> part, std::span<float> all) {
  size_t size = parts.size() / communicator.ranks();
  auto of = [&](int rank) { return parts.subspan(rank * size, size); };
  std::ranges::copy(part, of(communicator.rank()).begin());
  CollectiveShape shape{.kind = pb::Transfer::ALL_GATHER,
                        .type = pb::F32,
                        .elements = {static_cast<int64_t>(parts.size() / sizeof(float))}};
  void *from = of(communicator.rank()).data(), *to = parts.data();
  Ticket ticket = communicator.startCollective(group, shape, &from, &to);
  communicator.wait(ticket, spins);
  for (int rank = 0; rank < communicator.ranks(); ++rank)
    if (program.mesh().stage(rank) + 1 == program.plan().stages_size())
      placeLogits(program, rank, of(rank), all);
}

struct Decoder::OwnRank {
  OwnRank(const Program &program, const RankPlace &place, const StartingWeights *weights)
      : place(place), rank(program, place, weights), gather(program, rank.communicator(), place.spins) {}

  const RankPlace place;
  DecodingRank rank;
  LogitsGather gather;
};

Decoder::Decoder(const Program &program, const StartingWeights *weights, int wanted)
    : program(program), prefillEntry(entryNamed(program.plan(), "prefill")),
      decodeEntry(entryNamed(program.plan(), "decode")), theSizes(program.plan()),
      threads(threadsPerRank(wanted, program.mesh().ranks())), weights(weights),
      allLogits(theSizes.sequences * static_cast<size_t>(theSizes.vocabulary)), world(program.mesh().ranks()) {
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

Decoder::Decoder(const Program &program, const StartingWeights *weights, const RankPlace &place)
    : program(program), prefillEntry(entryNamed(program.plan(), "prefill")),
      decodeEntry(entryNamed(program.plan(), "decode")), theSizes(program.plan()), threads(place.threads),
      weights(weights), allLogits(theSizes.sequences * static_cast<size_t>(theSizes.vocabulary)), world(1) {
  try {
    own = std::make_unique<OwnRank>(program, place, weights);
  } catch (const RankStopped &) {
    throw;
  } catch (const std::exception &error) {
    abortFor(place.abort, place.rank, nullptr, error);
    throw;
  }
}

Decoder::~Decoder() {
  if (!own)
    end();
}

void Decoder::end() {
  if (ranks.size() < static_cast<size_t>(world.ranks())) // some ranks never started, and the others would wait for them
    abortFor([&](const Failure &failure) { world.abort(failure); }, -1, nullptr,
             std::runtime_error("a rank could not be started"));
  {
    std::lock_guard lock(mutex);
    isEnding = true;
    told.notify_all();
  }
  ranks.clear();
}

/// Waits until all ranks have finished the last command. Throws RankFailure, or PlanError for an error in the weights.
void Decoder::awaitRanks() {
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return running == 0; });
  if (refusal)
    std::rethrow_exception(refusal);
  if (std::optional<Failure> failure = world.failure())
    throw RankFailure(*failure);
}

std::span<const float> Decoder::logits(uint32_t sequence) const {
  auto size = static_cast<size_t>(theSizes.vocabulary);
  return std::span(allLogits).subspan(sequence * size, size);
}

void Decoder::run(uint32_t wanted, int64_t most, std::span<const Feed> given) {
  assert(std::ranges::all_of(given, [&](const Feed &feed) {
    auto count = static_cast<int64_t>(feed.tokens.size());
    return feed.sequence < theSizes.sequences && count > 0 && count <= most &&
           feed.position + count <= theSizes.context;
  }));
  if (own) {
    try {
      own->rank.run(wanted, most, given);
      own->gather.run(own->rank.logits(), allLogits);
    } catch (const RankStopped &) {
      throw;
    } catch (const std::exception &error) {
      abortFor(own->place.abort, own->place.rank, &own->rank.executor(), error);
      throw;
    }
    return;
  }
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

/// Counts a rank as finished. Ranks that failed or were stopped count as finished for every command.
void Decoder::report() {
  std::lock_guard lock(mutex);
  if (--running == 0)
    done.notify_all();
}

/// Waits for the next command. Returns false if the decoder is ending.
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
  RankPlace place{.rank = rank,
                  .threads = threads,
                  .spins = spinsFor(world.ranks() * threads),
                  .open = [this, rank] { return world.communicator(rank); },
                  .abort = [this](const Failure &failure) { world.abort(failure); }};
  std::optional<DecodingRank> decoding;
  uint64_t seen = 0;
  bool isFailed = false;
  do {
    try {
      if (decoding && !isFailed) {
        decoding->run(entry, tokens, feeds);
        if (std::span<const std::byte> part = decoding->logits(); !part.empty())
          placeLogits(program, rank, part, allLogits);
      } else if (!isFailed) {
        decoding.emplace(program, place, weights);
      }
    } catch (const RankStopped &) {
      isFailed = true;
    } catch (const std::exception &error) {
      isFailed = true;
      if (!decoding && dynamic_cast<const PlanError *>(&error)) {
        std::lock_guard lock(mutex);
        refusal = std::current_exception();
      }
      abortFor(place.abort, rank, decoding ? &decoding->executor() : nullptr, error);
    }
    report();
  } while (awaitCommand(seen));
}

} // namespace espalier::rt
