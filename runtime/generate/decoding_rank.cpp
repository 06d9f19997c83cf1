#include "runtime/generate/decoding_rank.h"

#include "runtime/checkpoint/start.h"
#include "runtime/train/initialize.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace espalier::rt {

GenerationSizes::GenerationSizes(const pb::Plan &plan)
    : ofReplica(static_cast<uint32_t>(plan.settings().micro_batch_size())),
      sequences(ofReplica * static_cast<uint32_t>(dataReplicas(Mesh(plan.mesh())))),
      context(static_cast<int64_t>(plan.settings().sequence())),
      promptTokens(static_cast<int64_t>(plan.settings().prompt_tokens())),
      vocabulary(static_cast<int64_t>(plan.settings().vocabulary())) {}

DecodingRank::DecodingRank(const Program &program, const RankPlace &place, const StartingWeights *weights)
    : stage(program.plan().stages(program.mesh().stage(place.rank))),
      sequences(GenerationSizes(program.plan()).ofReplica),
      firstSequence(sequences * static_cast<uint32_t>(dataReplica(program.mesh(), place.rank))),
      packsTokens(program.backend().packsTokens()), theCommunicator(place.open()), pool(place.threads, place.spins),
      device(program.backend().open(stage, {*theCommunicator, pool, place.spins, place.device})) {
  theExecutor.emplace(program, place.rank, *device, place.status);
  initializeParameters(program, *theExecutor, pool, weights ? &weights->missing() : nullptr);
  if (weights)
    weights->load(*theExecutor, pool);
  device->freezeParameters();
}

void DecodingRank::run(uint32_t entry, int64_t tokens, std::span<const Feed> feeds) {
  std::vector<OwnFeed> own;
  ActiveTokens active{.first = sequences};
  for (const Feed &feed : feeds)
    if (feed.sequence >= firstSequence && feed.sequence < firstSequence + sequences) {
      own.push_back({feed, feed.sequence - firstSequence, (feed.sequence - firstSequence) * tokens});
      active.first = std::min(active.first, own.back().sequence);
      active.end = std::max(active.end, own.back().sequence + 1);
    }
  if (own.empty())
    active = {.first = 0, .end = 1}; // the rank takes part in collectives
  else if (tokens > 1 && packsTokens)
    active.starts = pack(own);
  device->setActive(std::move(active));
  for (int i = 0; i < stage.exchanges_size(); ++i)
    if (const pb::Exchange &exchange = stage.exchanges(i);
        exchange.filled_by_host() && std::ranges::count(exchange.entries(), entry) > 0)
      fill(exchange, static_cast<uint32_t>(i), own);
  theExecutor->run(entry);
}

/// Moves the feeds to rows side by side. Returns the first rows of all sequences and the end of the last.
std::vector<int32_t> DecodingRank::pack(std::span<OwnFeed> own) const {
  std::vector<int32_t> starts(sequences + 1);
  for (const OwnFeed &one : own)
    starts[static_cast<size_t>(one.sequence) + 1] = static_cast<int32_t>(one.feed.tokens.size());
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  for (OwnFeed &one : own)
    one.firstRow = starts[static_cast<size_t>(one.sequence)];
  return starts;
}

/// Fills an input, which is identified by the first component of its name: tokens, positions (-1: padding), or rows,
/// the index per sequence of the token whose logits are needed.
void DecodingRank::fill(const pb::Exchange &exchange, uint32_t index, std::span<const OwnFeed> own) {
  std::string_view name = std::string_view(exchange.name()).substr(0, exchange.name().find('.'));
  std::span<std::byte> memory = theExecutor->exchange(index);
  std::vector<int32_t> values(memory.size() / sizeof(int32_t), name == "positions" ? -1 : 0);
  for (const auto &[feed, sequence, firstRow] : own) {
    if (name == "rows")
      values[static_cast<size_t>(sequence)] = static_cast<int32_t>(feed.tokens.size()) - 1;
    else
      for (size_t i = 0; i < feed.tokens.size(); ++i)
        values[static_cast<size_t>(firstRow) + i] =
            name == "tokens" ? feed.tokens[i] : static_cast<int32_t>(feed.position + static_cast<int64_t>(i));
  }
  std::memcpy(memory.data(), values.data(), memory.size());
}

std::span<const std::byte> DecodingRank::logits() {
  std::optional<uint32_t> index = findExchange(stage, "logits");
  return index ? theExecutor->exchange(*index) : std::span<std::byte>();
}

void placeLogits(const Program &program, int rank, std::span<const std::byte> part, std::span<float> all) {
  GenerationSizes sizes(program.plan());
  auto columns = static_cast<int64_t>(part.size() / sizeof(float)) / sizes.ofReplica;
  int64_t first = columns * program.mesh().index(rank, TP);
  int64_t count = std::clamp<int64_t>(sizes.vocabulary - first, 0, columns);
  int64_t before = int64_t{sizes.ofReplica} * dataReplica(program.mesh(), rank);
  for (int64_t sequence = 0; sequence < sizes.ofReplica && count > 0; ++sequence)
    std::memcpy(&all[static_cast<size_t>((before + sequence) * sizes.vocabulary + first)],
                part.data() + static_cast<size_t>(sequence * columns) * sizeof(float),
                static_cast<size_t>(count) * sizeof(float));
}

size_t logitsBytes(const pb::Plan &plan) {
  const pb::Stage &last = plan.stages(plan.stages_size() - 1);
  std::optional<uint32_t> index = findExchange(last, "logits");
  return index ? last.exchanges(static_cast<int>(*index)).buffer().bytes() : 0;
}

} // namespace espalier::rt
