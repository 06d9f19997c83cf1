#include "runtime/train/attention_scores.h"

#include "format/counters.h"
#include "runtime/executor.h"
#include "runtime/program.h"

#include <algorithm>
#include <bit>

namespace espalier::rt {

double largestOf(const std::vector<LayerScore> &scores) {
  double largest = 0;
  for (const LayerScore &score : scores)
    largest = std::max(largest, score.largest);
  return largest;
}

ScoreCounters::ScoreCounters(const Program &program, Executor &executor)
    : program(program), executor(executor), counters(findCounters(program.plan(), {largestCounter})) {}

std::vector<LayerScore> ScoreCounters::take(Agreement &agreement) const {
  std::vector<uint32_t> mine; // one number per counter; those of other stages are 0
  for (const LayerCounter &counter : counters) {
    std::vector<float> values(counter.stage == executor.rankProgram().stage ? counter.elements : 0);
    if (!values.empty())
      executor.device().copyOut(values.data(), executor.address(counter.call, counter.buffer),
                                values.size() * sizeof(float));
    float largest = 0;
    for (float negated : values)
      largest = std::max(largest, -negated);
    mine.push_back(std::bit_cast<uint32_t>(largest));
  }
  std::vector<LayerScore> scores;
  std::vector<std::vector<uint32_t>> all = exchangeNumbers(agreement, mine, mine.size());
  for (size_t i = 0; i < counters.size(); ++i) {
    if (scores.empty() || scores.back().layer != counters[i].layer) // a layer may have several attentions
      scores.push_back({counters[i].layer});
    for (const std::vector<uint32_t> &numbers : all)
      scores.back().largest = std::max(scores.back().largest, static_cast<double>(std::bit_cast<float>(numbers.at(i))));
  }
  return scores;
}

} // namespace espalier::rt
