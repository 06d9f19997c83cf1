// The price of attention within documents: the expected number of keys against sampled documents, and the planner's
// terms and prices of a model.
#include "compiler/profile/profile_model.h"
#include "dialects/model/dialect.h"
#include "planner/model/cost.h"
#include "planner/price.h"
#include "test/compiler/profile/sample_plans.h"

#include <cmath>

using namespace espalier;

namespace {

constexpr int64_t tokens = 1024; // of a sample

/// The means over samples whose tokens begin a document with a fixed probability.
struct SampledDocuments {
  double keys = 0;      ///< that one of the last queries attends to
  double documents = 0; ///< in a sample
};

SampledDocuments sampleDocuments(double length, int64_t queries, int64_t window) {
  std::mt19937 random(17);
  std::geometric_distribution<int64_t> furtherTokens(1 / length - 1.0 / tokens);
  constexpr int samples = 20000;
  int64_t keys = 0, documents = 0;
  for (int sample = 0; sample < samples; ++sample)
    for (int64_t first = 0, end = 0; first < tokens; first = end) {
      end = std::min(first + 1 + furtherTokens(random), tokens);
      ++documents;
      for (int64_t t = std::max(first, tokens - queries); t < end; ++t)
        keys += std::min(t - first + 1, window > 0 ? window : tokens);
    }
  return {static_cast<double>(keys) / (samples * static_cast<double>(queries)),
          static_cast<double>(documents) / samples};
}

TEST(KeysOfDocuments, EqualACountOfSampledDocuments) {
  for (double length : {16, 64, 256, 900})
    for (int64_t queries : {tokens, tokens / 4})
      for (int64_t window : {0, 100}) {
        SampledDocuments sampled = sampleDocuments(length, queries, window);
        double keys = model::keysSeen(static_cast<double>(queries), tokens, /*isCausal=*/true,
                                      static_cast<double>(window), length);
        EXPECT_NEAR(sampled.documents, tokens / length, 0.02 * tokens / length) << length;
        EXPECT_NEAR(keys, sampled.keys, 0.01 * sampled.keys + 0.5) << length << " " << queries << " " << window;
      }
}

TEST(KeysOfDocuments, AreThoseOfTheSampleForLongDocuments) {
  for (double window : {0, 100, 5000}) {
    double whole = model::keysSeen(tokens, tokens, /*isCausal=*/true, window);
    for (double length : {tokens, 10 * tokens})
      EXPECT_EQ(model::keysSeen(tokens, tokens, /*isCausal=*/true, window, length), whole);
    EXPECT_NEAR(model::keysSeen(tokens, tokens, /*isCausal=*/true, window, tokens - 1), whole, 0.001 * whole);
  }
  EXPECT_EQ(model::keysSeen(tokens, tokens, /*isCausal=*/false, 0, 64), tokens);
}

/// A model on two context ranks that reads samples of documents with this mean length; 0 does not state a length.
RunConfig runWithDocuments(int64_t length, const std::vector<std::string> &more = {}) {
  std::vector<std::string> sets = {
      sizes + "seq_length=1024",          "train_dataset.data_loader.config={eod: 3, reset_attention_mask: True}",
      "parallel_config.data_parallel=1",  "parallel_config.model_parallel=1",
      "parallel_config.pipeline_stage=1", "parallel_config.context_parallel=2"};
  if (length > 0)
    sets.push_back("planner.document_tokens=" + std::to_string(length));
  sets.insert(sets.end(), more.begin(), more.end());
  return importConfig("tiny_gpt", sets, "cpu_local:1x2");
}

/// Returns the operations of forward attention of a layer on `cp` context ranks.
double attentionOperations(const planner::Problem &problem, int cp) {
  planner::ParallelConfig config;
  config.cp = cp;
  for (const planner::PatternTerms &terms : problem.kinds[problem.layers.front().kind].patterns)
    if (terms.pattern.cp == (cp > 1) && terms.pattern.tensorRanks == 1)
      for (const planner::ComputeTerm &term : terms.compute)
        if (term.kind == planner::ComputeClass::Attention && term.phase == planner::Phase::Forward)
          return planner::evaluate(term.operations, planner::symbolValues(problem, config));
  ADD_FAILURE() << "no attention";
  return 0;
}

TEST(DocumentPrice, FallsWithTheLengthOfDocuments) {
  mlir::MLIRContext context;
  std::optional<planner::Problem> whole = profileModel(context, runWithDocuments(0));
  ASSERT_TRUE(whole);
  planner::Plan plan;
  plan.cp = 2, plan.microBatchSize = 4, plan.microBatches = 4;
  plan.stages = {{0, 4, std::vector<planner::Recompute>(4, planner::Recompute::None)}};
  double above = planner::pricePlan(*whole, plan).prediction.stepSeconds;
  auto keysOf = [](int cp, double length) {
    return model::keysSeen(static_cast<double>(tokens) / cp, tokens, /*isCausal=*/true, 0, length);
  };
  for (int64_t length : {10 * tokens, tokens, tokens / 4, tokens / 16}) {
    RunConfig run = runWithDocuments(length);
    std::optional<planner::Problem> problem = profileModel(context, run);
    ASSERT_TRUE(problem);
    double seconds = planner::pricePlan(*problem, plan).prediction.stepSeconds;
    if (length >= tokens) {
      EXPECT_EQ(seconds, above);
      EXPECT_EQ(problem->modelFlops, whole->modelFlops);
      continue;
    }
    EXPECT_LT(seconds, above);
    for (int cp : {1, 2}) // the last of two context ranks
      EXPECT_NEAR(attentionOperations(*problem, cp) / attentionOperations(*whole, cp),
                  keysOf(cp, static_cast<double>(length)) / keysOf(cp, 0), cp == 1 ? 1e-6 : 0.04)
          << length << " " << cp << " " << attentionOperations(*problem, cp) << " " << attentionOperations(*whole, cp);
    // The useful operations of the four layers differ by what three times the forward attention, and half of it, lacks.
    double lacking = attentionOperations(*whole, 1) - attentionOperations(*problem, 1);
    EXPECT_NEAR(whole->modelFlops - problem->modelFlops, 4 * 3.5 * lacking, 1e-6 * whole->modelFlops);
    EXPECT_FALSE(withRun(*whole, runWithDocuments(0), run, "cpu"));
    above = seconds;
  }
}

/// Software that stores attention scores computes all of them.
TEST(DocumentPrice, IsThatOfTheSampleIfScoresAreStored) {
  EXPECT_EQ(runWithDocuments(64).model.documentTokens, 64);
  EXPECT_EQ(runWithDocuments(64, {"system=megatron_deepspeed_fp16"}).model.documentTokens, 0);
}

} // namespace
