#include "tools/machine/preflight.h"

#include "runtime/checkpoint/agree.h"
#include "runtime/host_name.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier {

namespace {

constexpr double slowRank = 1.15, slowLink = 1.3; ///< ratios to the median
constexpr int spins = 100, fewestSamples = 5, mostSamples = 1000;
constexpr int64_t smallElements = 16, largeElements = int64_t(1) << 21;

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The numbers of a machine that ranks tell each other, and the file has.
constexpr double MeasuredMachine::*told[] = {&MeasuredMachine::memoryBytes,
                                             &MeasuredMachine::f32Flops,
                                             &MeasuredMachine::bf16Flops,
                                             &MeasuredMachine::f16Flops,
                                             &MeasuredMachine::matmulEfficiency,
                                             &MeasuredMachine::attentionEfficiency,
                                             &MeasuredMachine::memoryBytesPerSecond,
                                             &MeasuredMachine::launchSeconds};

/// Two ranks' all-reduces.
class Link {
public:
  Link(rt::Communicator &communicator, uint32_t group, std::byte *values)
      : communicator(communicator), group(group), values(values) {}

  /// Returns the seconds of the fastest of so many all-reduces.
  double fastest(int64_t elements, int samples) const {
    double least = 0;
    for (int sample = 0; sample < samples; ++sample) {
      auto begin = std::chrono::steady_clock::now();
      void *address = values;
      rt::Ticket ticket = communicator.startCollective(group, {.elements = {elements}}, &address, &address);
      communicator.wait(ticket, spins);
      double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      least = sample == 0 ? taken : std::min(least, taken);
    }
    return least;
  }

private:
  rt::Communicator &communicator;
  const uint32_t group;
  std::byte *const values;
};

/// Measures each pair while the other ranks wait. Returns this rank's figures of the pairs in which it is the first.
std::map<size_t, PairFigures> measurePairs(rt::Communicator &communicator, rt::Agreement &agreement,
                                           const std::vector<std::pair<int, int>> &pairs, double seconds) {
  std::byte *values = communicator.allocate(largeElements * sizeof(float));
  std::vector<uint32_t> groups(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) // every rank joins its groups in one order
    if (std::array members = {pairs[i].first, pairs[i].second}; std::ranges::count(members, communicator.rank()) > 0)
      groups[i] = communicator.joinGroup(members, /*queue=*/0);
  std::map<size_t, PairFigures> measured;
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto [first, second] = pairs[i];
    std::string samples; // told by the first rank, because both must take as many
    Link link(communicator, groups[i], values);
    bool isMember = communicator.rank() == first || communicator.rank() == second;
    if (isMember) {
      double probe = link.fastest(largeElements, fewestSamples);
      samples =
          fmt::format("{}", std::clamp(seconds / std::max(probe, 1e-9), double(fewestSamples), double(mostSamples)));
    }
    std::string agreed = agreement.tell(samples)[static_cast<size_t>(first)];
    if (!isMember)
      continue;
    int count = static_cast<int>(std::stod(agreed));
    double small = link.fastest(smallElements, mostSamples), large = link.fastest(largeElements, count);
    if (communicator.rank() == first) // an all-reduce of two ranks moves the buffer once in two hops
      measured[i] = {first, second, 4.0 * largeElements / std::max(large - small, 1e-9), small / 2};
  }
  return measured;
}

} // namespace

bool Preflight::isBetweenHosts(const PairFigures &pair) const {
  return ranks[static_cast<size_t>(pair.first)].host != ranks[static_cast<size_t>(pair.second)].host;
}

std::vector<std::pair<int, int>> measuredPairs(int ranks) {
  std::set<std::pair<int, int>> pairs;
  for (int distance = 1; distance < ranks; distance *= 2)
    for (int rank = 0; rank < ranks; ++rank)
      if (int other = (rank + distance) % ranks; other != rank)
        pairs.insert(std::minmax({rank, other}));
  return {pairs.begin(), pairs.end()};
}

size_t preflightBytes(int ranks) {
  auto count = static_cast<size_t>(ranks);
  return count * largeElements * sizeof(float) + 2 * rt::Agreement::sharedBytes(count) + (size_t{1} << 20);
}

Preflight measureRanks(rt::Communicator &communicator, bool isFirstHere, double seconds) {
  rt::Agreement agreement(communicator, isFirstHere, spins);
  Preflight all;
  for (const std::string &host : agreement.tell(rt::hostName())) // also lets all ranks begin together
    all.ranks.push_back({host, {}});
  MeasuredMachine own = measureMachine(/*ranks=*/1, seconds, [](const std::string &) {});
  nlohmann::json numbers = {own.processor};
  for (double MeasuredMachine::*number : told)
    numbers.push_back(own.*number);
  std::vector<std::string> texts = agreement.tell(numbers.dump());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    nlohmann::json row = nlohmann::json::parse(texts[rank]);
    MeasuredMachine &machine = all.ranks[rank].machine;
    machine.processor = row.at(0).get<std::string>();
    for (size_t i = 0; i < std::size(told); ++i)
      machine.*told[i] = row.at(i + 1).get<double>();
  }
  std::vector<std::pair<int, int>> pairs = measuredPairs(communicator.ranks());
  nlohmann::json links = nlohmann::json::array();
  for (const auto &[index, pair] : measurePairs(communicator, agreement, pairs, seconds))
    links.push_back({pair.first, pair.second, pair.bytesPerSecond, pair.latencySeconds});
  for (const std::string &text : agreement.tell(links.dump()))
    for (const nlohmann::json &row : nlohmann::json::parse(text))
      all.pairs.push_back({row.at(0), row.at(1), row.at(2), row.at(3)});
  return all;
}

std::vector<std::string> outliersOf(const Preflight &preflight) {
  std::vector<std::string> sentences;
  auto compareRanks = [&](const char *what, double MeasuredMachine::*number, const char *unit) {
    std::vector<double> values;
    for (const RankFigures &rank : preflight.ranks)
      values.push_back(rank.machine.*number);
    double usual = median(values);
    for (size_t rank = 0; rank < values.size(); ++rank)
      if (values[rank] * slowRank < usual)
        sentences.push_back(fmt::format("rank {} on {} is slow: {} {:.3g} {}, the median {:.3g} ({:+.0f} %)", rank,
                                        preflight.ranks[rank].host, what, values[rank], unit, usual,
                                        100 * (values[rank] / usual - 1)));
  };
  compareRanks("matrix product", &MeasuredMachine::f32Flops, "FLOP/s");
  compareRanks("memory", &MeasuredMachine::memoryBytesPerSecond, "B/s");
  for (bool isBetween : {false, true}) {
    std::vector<double> rates;
    for (const PairFigures &pair : preflight.pairs)
      if (preflight.isBetweenHosts(pair) == isBetween)
        rates.push_back(pair.bytesPerSecond);
    double usual = median(rates);
    for (const PairFigures &pair : preflight.pairs)
      if (preflight.isBetweenHosts(pair) == isBetween && pair.bytesPerSecond * slowLink < usual)
        sentences.push_back(
            fmt::format("the link between rank {} on {} and rank {} on {} is slow: {:.3g} B/s, the median {:.3g} "
                        "({:+.0f} %)",
                        pair.first, preflight.ranks[static_cast<size_t>(pair.first)].host, pair.second,
                        preflight.ranks[static_cast<size_t>(pair.second)].host, pair.bytesPerSecond, usual,
                        100 * (pair.bytesPerSecond / usual - 1)));
  }
  return sentences;
}

MeasuredMachine typicalMachine(const Preflight &preflight) {
  MeasuredMachine machine;
  machine.command = "espalier preflight";
  machine.processor = preflight.ranks.front().machine.processor;
  std::map<std::string, int> perHost;
  for (const RankFigures &rank : preflight.ranks)
    ++perHost[rank.host];
  machine.hosts = static_cast<int>(perHost.size());
  machine.ranks = std::ranges::min_element(perHost, {}, [](const auto &one) { return one.second; })->second;
  for (double MeasuredMachine::*number : told) {
    std::vector<double> values;
    for (const RankFigures &rank : preflight.ranks)
      values.push_back(rank.machine.*number);
    machine.*number = median(values);
  }
  machine.memoryBytes /= std::ranges::max_element(perHost, {}, [](const auto &one) { return one.second; })->second;
  for (bool isBetween : {false, true}) {
    std::vector<double> rates, latencies;
    for (const PairFigures &pair : preflight.pairs)
      if (preflight.isBetweenHosts(pair) == isBetween) {
        rates.push_back(pair.bytesPerSecond);
        latencies.push_back(pair.latencySeconds);
      }
    (isBetween ? machine.networkBytesPerSecond : machine.linkBytesPerSecond) = median(rates);
    (isBetween ? machine.networkLatencySeconds : machine.linkLatencySeconds) = median(latencies);
  }
  return machine;
}

} // namespace espalier
