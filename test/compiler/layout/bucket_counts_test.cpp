// Counts in compiled plans that one collective or launch reduces, squares, updates or gathers all gradients of a
// bucket, for any number of parameters. Also checks overlap: sums start after their last term, and streams are received
// ahead.
#include "compiler/choose/choose_plan.h"
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace espalier {
namespace {

namespace pb = rt::pb;

/// Compiles the plan that a run file pins.
pb::Plan compiled(const std::string &name, const std::string &target) {
  ImportedRun imported = importRun(ESPALIER_SOURCE_DIR "/configs/" + name + ".yaml", {});
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  mlir::MLIRContext context;
  CompileOptions options;
  options.target = target;
  options.emitKernels = false;
  std::optional<Compiled> made = compileRun(context, imported.config, pinnedPlan(imported.config), options);
  EXPECT_TRUE(made) << name;
  return made ? std::move(made->plan) : pb::Plan();
}

/// Returns the launches and library calls of a call in a role, without the transfers that it starts.
int worksOf(const pb::Plan &plan, const pb::Call &call, const std::string &role) {
  auto number = std::ranges::find(plan.roles(), role) - plan.roles().begin();
  uint32_t program = number < call.programs_size() ? call.programs(static_cast<int>(number)) : 0;
  return program == 0 ? 0 : plan.subprograms(static_cast<int>(program) - 1).instructions_size();
}

/// Returns, per call, how often a training step starts a transfer of the call's buckets.
std::map<uint32_t, int> bucketTransfers(const pb::Plan &plan, const pb::Stage &stage) {
  std::map<uint32_t, int> counts;
  for (const pb::Block &block : stage.entries(0).blocks())
    for (const pb::Action &action : block.actions())
      for (const pb::Flight &flight : action.start().flights()) {
        const pb::Transfer &transfer = plan.transfers(static_cast<int>(flight.transfer()));
        if (transfer.name().find('.') != std::string::npos && transfer.kind() <= pb::Transfer::ALL_TO_ALL)
          counts[flight.call()] += static_cast<int>(block.rounds());
      }
  return counts;
}

class Buckets : public testing::TestWithParam<std::tuple<const char *, const char *>> {};

TEST_P(Buckets, UseOneOperationOfEachKindPerStep) {
  const auto &[name, target] = GetParam();
  pb::Plan plan = compiled(name, target);
  bool isOnGpu = std::string(target) == "cuda"; // a norm is two launches on GPUs
  int calls = 0, mostParameters = 0, mostBuckets = 0, mostTransfers = 0;
  for (const pb::Stage &stage : plan.stages()) {
    std::map<uint32_t, int> transfers = bucketTransfers(plan, stage);
    for (uint32_t number = 0; number + 1 < static_cast<uint32_t>(stage.calls_size()); ++number, ++calls) {
      const pb::Call &call = stage.calls(static_cast<int>(number));
      int updated = 0, parameters = 0, sums = 0;
      for (const pb::BucketUse &use : call.buckets()) {
        const pb::Bucket &bucket = plan.buckets(static_cast<int>(use.bucket()));
        updated += use.updates();
        parameters += bucket.parameters_size();
        // An update sums over the holders of a tied bucket, over the replicas of a shard, and over the shards. Then it
        // gathers the shards.
        bool isTied = bucket.holders_size() > 0, isSummed = (bucket.partial() & ~bucket.share() & ~1u) != 0;
        if (use.updates())
          sums += isTied + isSummed + 2 * (bucket.share() != 0);
      }
      mostParameters = std::max(mostParameters, parameters);
      mostBuckets = std::max(mostBuckets, call.buckets_size());
      mostTransfers = std::max(mostTransfers, transfers[number]);
      EXPECT_LE(call.buckets_size(), 4) << call.name(); // with or without decay, summed over tp or not
      EXPECT_EQ(transfers[number], sums) << call.name();
      EXPECT_LE(transfers[number], 3 * updated) << call.name();
      EXPECT_EQ(worksOf(plan, call, "norm"), updated * (isOnGpu ? 2 : 1)) << call.name();
      EXPECT_EQ(worksOf(plan, call, "update"), updated) << call.name();
    }
  }
  EXPECT_GE(mostParameters, 16); // launches per call without buckets
  std::printf("%s, %s: %d calls of up to %d parameters in %d buckets, %d transfers\n", name, target, calls,
              mostParameters, mostBuckets, mostTransfers);
}

INSTANTIATE_TEST_SUITE_P(Runs, Buckets,
                         testing::Combine(testing::Values("gpt2_13b", "gpt3_175b"), testing::Values("cpu", "cuda")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

/// The positions in an entry's instruction stream at which transfers are started and awaited, and the RUNs by position,
/// with rounds expanded.
struct Steps {
  struct Flight {
    uint32_t transfer, call, microBatch;
    auto operator<=>(const Flight &) const = default;
  };
  std::map<Flight, int> starts, waits;
  std::map<int, pb::Run> runs;

  int runsBetween(int from, int to) const {
    return static_cast<int>(std::distance(runs.upper_bound(from), runs.lower_bound(to)));
  }
};

Steps stepsOf(const pb::Actions &list) {
  Steps steps;
  int at = 0;
  for (const pb::Block &block : list.blocks())
    for (uint32_t round = 0; round < block.rounds(); ++round)
      for (const pb::Action &action : block.actions()) {
        uint32_t moved = round * block.advance();
        if (action.has_run())
          steps.runs[at] = action.run();
        for (const pb::Flight &flight : action.start().flights())
          steps.starts[{flight.transfer(), flight.call(), flight.micro_batch() + moved}] = at;
        for (const pb::Flight &flight : action.wait().flights())
          steps.waits[{flight.transfer(), flight.call(), flight.micro_batch() + moved}] = at;
        ++at;
      }
  return steps;
}

/// A sum starts after the last RUN that adds to it, while other RUNs that add still follow. It ends before the norm.
TEST(Lists, SumsStartAfterTheirLastTerm) {
  pb::Plan plan = compiled("gpt3_175b", "cpu");
  int early = 0, sums = 0;
  for (const pb::Stage &stage : plan.stages()) {
    Steps steps = stepsOf(stage.entries(0));
    auto roleOf = [&](const pb::Run &run) { return plan.roles(static_cast<int>(run.role())); };
    auto lastAddition = [&](std::optional<uint32_t> call) {
      int last = -1;
      for (const auto &[at, run] : steps.runs)
        if (roleOf(run) == "backward" &&
            (!call || (run.first_call() <= *call && *call < run.first_call() + run.calls())))
          last = at;
      return last;
    };
    int norm = -1;
    for (const auto &[at, run] : steps.runs)
      if (roleOf(run) == "norm" && norm < 0)
        norm = at;
    for (const auto &[flight, at] : steps.starts) {
      const pb::Transfer &transfer = plan.transfers(static_cast<int>(flight.transfer));
      bool isTied = plan.groups(static_cast<int>(transfer.group())).stages_size() > 0;
      if (transfer.name().find('.') == std::string::npos || transfer.kind() != pb::Transfer::REDUCE_SCATTER || isTied ||
          transfer.name().starts_with("embed.wte")) // tied: starts after the sum over stages
        continue;
      EXPECT_GT(at, lastAddition(flight.call)) << transfer.name();
      EXPECT_EQ(steps.runsBetween(lastAddition(flight.call), at), 0) << transfer.name();
      EXPECT_LT(steps.waits.at(flight), norm) << transfer.name();
      early += at < lastAddition(std::nullopt);
      ++sums;
    }
  }
  EXPECT_GT(early, sums * 3 / 4) << sums; // all except those of a stage's first layer
}

/// All transfers of streams, except the first ones of a stage, run beside RUNs.
TEST(Lists, StreamsAreReceivedAhead) {
  pb::Plan plan = compiled("gpt3_175b", "cpu");
  for (int stage = 1; stage < plan.stages_size(); ++stage) {
    Steps steps = stepsOf(plan.stages(stage).entries(0));
    uint32_t ahead = 0, received = 0;
    for (const auto &[flight, at] : steps.starts)
      if (plan.transfers(static_cast<int>(flight.transfer)).name() == "in") {
        ahead += steps.runsBetween(at, steps.waits.at(flight)) > 0;
        ++received;
      }
    EXPECT_EQ(received, plan.entries(0).micro_batches()) << "stage " << stage;
    EXPECT_GE(ahead, received - 1) << "stage " << stage;
  }
}

} // namespace
} // namespace espalier
