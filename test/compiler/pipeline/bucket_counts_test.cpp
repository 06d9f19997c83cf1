// What a bucket is for: a call's gradients are reduced, squared, updated and gathered by one collective or launch each,
// however many parameters it has. And what is hidden: sums start behind their last term, streams are received ahead.
// Counted in the lists and subprograms of compiled plans.
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "compiler/plan/choose_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace espalier {
namespace {

namespace pb = rt::pb;

/// Of the plan that a run file pins.
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

/// Launches and library calls of a call in a role; transfers that it starts inside do not count.
int worksOf(const pb::Plan &plan, const pb::Call &call, const std::string &role) {
  auto number = std::ranges::find(plan.roles(), role) - plan.roles().begin();
  uint32_t program = number < call.programs_size() ? call.programs(static_cast<int>(number)) : 0;
  return program == 0 ? 0 : plan.subprograms(static_cast<int>(program) - 1).instructions_size();
}

/// How often the lists start a transfer of the call's buckets, in one training step.
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

TEST_P(Buckets, TakeOneOfEachPerStep) {
  const auto &[name, target] = GetParam();
  pb::Plan plan = compiled(name, target);
  bool isOnGpu = std::string(target) == "cuda"; // where a norm is two launches
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
        // Over the holders of a tied one, over the replicas of a share, over the shares; and the gather.
        bool isTied = bucket.holders_size() > 0, isSummed = (bucket.partial() & ~bucket.share() & ~1u) != 0;
        if (use.updates())
          sums += isTied + isSummed + 2 * (bucket.share() != 0);
      }
      mostParameters = std::max(mostParameters, parameters);
      mostBuckets = std::max(mostBuckets, call.buckets_size());
      mostTransfers = std::max(mostTransfers, transfers[number]);
      EXPECT_LE(call.buckets_size(), 4) << call.name(); // decayed or not, summed over tp or not
      EXPECT_EQ(transfers[number], sums) << call.name();
      EXPECT_LE(transfers[number], 3 * updated) << call.name();
      EXPECT_EQ(worksOf(plan, call, "norm"), updated * (isOnGpu ? 2 : 1)) << call.name();
      EXPECT_EQ(worksOf(plan, call, "update"), updated) << call.name();
    }
  }
  EXPECT_GE(mostParameters, 16); // so many launches there were otherwise
  std::printf("%s, %s: %d calls of up to %d parameters in %d buckets, %d transfers\n", name, target, calls,
              mostParameters, mostBuckets, mostTransfers);
}

INSTANTIATE_TEST_SUITE_P(Runs, Buckets,
                         testing::Combine(testing::Values("gpt2_13b", "gpt3_175b"), testing::Values("cpu", "cuda")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

/// Where an entry's list starts and awaits flights, and what it runs, as rounds are gone through.
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

/// Behind the last RUN that adds to it, with others that add still to come; and there before the norm.
TEST(Lists, SumsStartBehindTheirLastTerm) {
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
          transfer.name().starts_with("embed.wte")) // tied, behind the sum over stages
        continue;
      EXPECT_GT(at, lastAddition(flight.call)) << transfer.name();
      EXPECT_EQ(steps.runsBetween(lastAddition(flight.call), at), 0) << transfer.name();
      EXPECT_LT(steps.waits.at(flight), norm) << transfer.name();
      early += at < lastAddition(std::nullopt);
      ++sums;
    }
  }
  EXPECT_GT(early, sums * 3 / 4) << sums; // all but those of a stage's first layer
}

/// All but a stage's first streams travel beside RUNs.
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
