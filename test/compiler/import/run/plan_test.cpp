// Tests the parts of a plan that a run file fixes: modes, batch arithmetic, clusters.
#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::Optional;

ImportedRun load(const std::string &config, std::vector<std::string> sets = {}, const std::string &cluster = "") {
  ImportOptions options;
  options.sets = std::move(sets);
  options.cluster = cluster;
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/" + config + ".yaml", options);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  return run;
}

KeyAction actionOf(const ImportedRun &run, const std::string &key) {
  for (const KeyReport &report : run.keys)
    if (report.key == key)
      return report.action;
  ADD_FAILURE() << key << " is not reported";
  return KeyAction::Rejected;
}

TEST(Plan, ShippedFileAsksFor32Devices) {
  ImportedRun run = load("gpt2_13b");
  EXPECT_EQ(run.config.cluster.hosts, 4);
  EXPECT_EQ(run.config.cluster.devicesPerHost, 8);
  EXPECT_EQ(run.config.cluster.memoryBytes, 30 * 0x1p30);
  EXPECT_EQ(run.config.globalBatch, 8); // 2 · 4 · 1
  EXPECT_THAT(run.config.pins.zero, Optional(1));
  EXPECT_THAT(run.config.pins.recompute, Optional(planner::Recompute::Full));
  EXPECT_EQ(actionOf(run, "parallel_config.micro_batch_num"), KeyAction::Accepted);
}

TEST(Plan, SeedPlanHas192Samples) {
  ImportedRun run = load("gpt2_13b_4x8");
  EXPECT_EQ(run.config.globalBatch, 192); // 2 · 4 · 24
  EXPECT_EQ(run.config.cluster.memoryBytes, 31 * 0x1p30);
  EXPECT_THAT(run.config.pins.vocabParallel, Optional(true)); // forced by the pipeline
}

TEST(Plan, Gpt3HasMegatronsBatch) {
  ImportedRun run = load("gpt3_175b");
  EXPECT_EQ(run.config.cluster.devices(), 1024);
  EXPECT_EQ(run.config.globalBatch, 1536);
  EXPECT_TRUE(run.config.dtypes.masterWeights);
}

TEST(Plan, SingleDeviceIsDataParallelOfOne) {
  ImportedRun run = load("gpt2_124m");
  EXPECT_EQ(run.config.cluster.devices(), 1);
  EXPECT_EQ(run.config.globalBatch, 4);
}

TEST(Plan, SingleDeviceOfALargeClusterIsAWarning) {
  ImportedRun run = load("gpt2_124m", {}, "cpu_local");
  EXPECT_EQ(run.config.cluster.devices(), 1);
  EXPECT_THAT(run.diagnostics.render(), testing::HasSubstr("one of the cluster's 8 devices is used"));
}

TEST(Plan, ModeZeroPutsAReplicaOnEveryDevice) {
  ImportedRun run = load("tiny_gpt", {"parallel.parallel_mode=0", "runner_config.gradient_accumulation_steps=3"});
  EXPECT_THAT(run.config.pins.dp, Optional(8));
  EXPECT_THAT(run.config.pins.tp, Optional(1));
  EXPECT_EQ(run.config.globalBatch, 4 * 8 * 3);
  EXPECT_EQ(actionOf(run, "parallel_config.model_parallel"), KeyAction::Accepted);
}

TEST(Plan, ModeTwoIsFreeAtTheSameBatch) {
  ImportedRun run = load("tiny_gpt", {"parallel.parallel_mode=2"});
  EXPECT_FALSE(run.config.isPinned);
  EXPECT_EQ(run.config.pins.dp, std::nullopt);
  EXPECT_EQ(run.config.pins.recompute, std::nullopt);
  EXPECT_EQ(run.config.globalBatch, 32); // 4 · 2 · 4
  EXPECT_EQ(actionOf(run, "parallel_config.model_parallel"), KeyAction::Mapped);
}

// The global batch is the same if the planner chooses the plan.
TEST(Plan, TheGlobalBatchIsEqualInEveryMode) {
  for (const char *config : {"gpt2_13b", "gpt2_13b_4x8", "gpt2_52b", "gpt2_xl", "gpt3_175b", "gpt3_857m", "llama2_7b"})
    EXPECT_EQ(load(config, {"parallel.parallel_mode=2"}).config.globalBatch, load(config).config.globalBatch) << config;
  // With pp 1, accumulation counts and micro_batch_num does not; with pp 2, micro_batch_num counts and accumulation
  // does not.
  for (auto [stages, batch] : {std::pair("1", 2 * 4 * 5 * 3), {"2", 2 * 4 * 7 * 3}})
    EXPECT_EQ(load("gpt2_13b", {"parallel.parallel_mode=2", "parallel_config.micro_batch_num=7",
                                "runner_config.gradient_accumulation_steps=5", "micro_batch_interleave_num=3",
                                std::string("parallel_config.pipeline_stage=") + stages})
                  .config.globalBatch,
              batch);
}

// If the file states a global batch, pins must agree with it. Otherwise the pins define it.
TEST(Plan, PinsDoNotChangeTheFilesBatch) {
  const std::string pins = "planner={pin: {dp: 2, micro_batch_size: 1, micro_batches: 3}}";
  ImportOptions options;
  options.sets = {"parallel.parallel_mode=2", pins};
  EXPECT_THAT(
      importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options).diagnostics.render(),
      testing::HasSubstr("global batch 32 is not dp 2 · micro-batch size 1 · micro-batches 3; planner.global_batch: "));
  EXPECT_EQ(load("tiny_gpt", {"parallel.parallel_mode=2", pins, "parallel_config=null", "runner_config=null"})
                .config.globalBatch,
            6);
}

TEST(Plan, WithoutModeThePlannerChooses) {
  ImportedRun run = load("tiny_gpt", {"parallel=null", "planner={global_batch: 64, pin: {tp: 4, recompute: full}}"});
  EXPECT_FALSE(run.config.isPinned);
  EXPECT_THAT(run.config.pins.tp, Optional(4));
  EXPECT_THAT(run.config.pins.recompute, Optional(planner::Recompute::Full));
  EXPECT_EQ(run.config.pins.dp, std::nullopt);
  EXPECT_EQ(run.config.globalBatch, 64);
  EXPECT_EQ(load("tiny_gpt", {"parallel=null"}).config.globalBatch, 32);
}

TEST(Plan, EveryAxisCanBePinned) {
  ImportedRun run = load("tiny_gpt", {"parallel.parallel_mode=2",
                                      "planner={global_batch: 16, pin: {dp: 2, tp: 2, pp: 2, cp: 1, ep: 1, "
                                      "micro_batch_size: 2, micro_batches: 4, zero: 2, sequence_parallel: yes, "
                                      "vocab_parallel: no, recompute: selective, stage_layers: [1, 3], "
                                      "schedule: gpipe}}"});
  const planner::Pins &pins = run.config.pins;
  EXPECT_THAT(pins.microBatchSize, Optional(2));
  EXPECT_THAT(pins.zero, Optional(2));
  EXPECT_THAT(pins.sequenceParallel, Optional(true));
  EXPECT_THAT(pins.vocabParallel, Optional(false));
  EXPECT_THAT(pins.stageLayers, Optional(ElementsAre(1, 3)));
  EXPECT_THAT(pins.schedule, Optional(planner::Schedule::GPipe));
}

TEST(Plan, ZeroStageFollowsFromThreeKeys) {
  EXPECT_THAT(load("tiny_gpt", {"parallel.enable_parallel_optimizer=False"}).config.pins.zero, Optional(0));
  EXPECT_THAT(
      load("tiny_gpt", {"parallel.parallel_optimizer_config.gradient_accumulation_shard=True"}).config.pins.zero,
      Optional(2));
  EXPECT_THAT(load("tiny_gpt", {"recompute_config.parallel_optimizer_comm_recompute=True"}).config.pins.zero,
              Optional(3));
}

TEST(Plan, OffsetsAndRecomputeListsArePerStage) {
  ImportedRun run = load("tiny_gpt", {"model.model_config.offset=[1, -1]", "recompute_config.recompute=[2, 0]"});
  EXPECT_THAT(run.config.pins.stageLayers, Optional(ElementsAre(3, 1)));
  EXPECT_THAT(run.config.recompute.fullLayers, ElementsAre(2, 0));
}

// With several chunks per stage, MindFormers has a list per chunk, or one list for all chunks.
TEST(Plan, OffsetsAndRecomputeListsArePerChunk) {
  auto interleaved = [](std::vector<std::string> sets) {
    sets.insert(sets.begin(), {"parallel.pipeline_config.pipeline_interleave=True", "model.model_config.num_layers=9",
                               "model.model_config.pp_interleave_num=2"});
    return load("tiny_gpt", sets);
  };
  const std::string offset = "model.model_config.offset=", full = "recompute_config.recompute=";
  ImportedRun run = interleaved({offset + "[[1, 1], [0, -1]]", full + "[[3, 0], [False, True]]"});
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_THAT(run.config.pins.stageLayers, Optional(ElementsAre(3, 3, 2, 1)));
  EXPECT_THAT(run.config.recompute.fullLayers, ElementsAre(3, 0, 0, testing::Ge(1)));
  EXPECT_THAT(interleaved({"model.model_config.num_layers=8", offset + "[1, -1]"}).config.pins.stageLayers,
              Optional(ElementsAre(3, 1, 3, 1)));
}

TEST(Plan, SelectiveRecomputeIsPerStageAndByPattern) {
  const std::string select = "recompute_config.select_recompute=";
  RunConfig both = load("tiny_gpt", {"recompute_config.recompute=[1, False]", select + "[True, 1]"}).config;
  EXPECT_THAT(both.pins.recompute, Optional(planner::Recompute::None));
  EXPECT_THAT(both.recompute.fullLayers, ElementsAre(1, 0));
  EXPECT_THAT(both.recompute.selectiveLayers, ElementsAre(testing::Ge(2), 1));
  // Operator patterns select the layers that they are listed for.
  ImportedRun patterns = load("tiny_gpt", {select + "{'feed_forward.mul': [2, 0], 'norm': [0, 1]}"});
  EXPECT_THAT(patterns.config.recompute.selectiveLayers, ElementsAre(2, 1));
  EXPECT_EQ(actionOf(patterns, "recompute_config.select_recompute"), KeyAction::Mapped);
  EXPECT_THAT(load("tiny_gpt", {select + "['feed_forward.mul']"}).config.recompute.selectiveLayers,
              ElementsAre(testing::Ge(2), testing::Ge(2)));
  // The list also applies to one stage with data parallelism only.
  EXPECT_THAT(
      load("tiny_gpt", {"parallel.parallel_mode=0", "recompute_config.recompute=[3]"}).config.recompute.fullLayers,
      ElementsAre(3));
}

TEST(Plan, SlicedInputsReportIfTheyHaveNoEffect) {
  const std::string key = "recompute_config.recompute_slice_activation";
  EXPECT_EQ(actionOf(load("tiny_gpt", {key + "=True"}), key), KeyAction::Used);
  EXPECT_EQ(actionOf(load("tiny_gpt", {key + "=True", "parallel_config.use_seq_parallel=True"}), key),
            KeyAction::Accepted);
  EXPECT_EQ(
      actionOf(load("tiny_gpt", {key + "=True", "parallel_config.model_parallel=1", "parallel_config.data_parallel=4"}),
               key),
      KeyAction::Accepted);
}

TEST(Plan, SchedulesAndSelectiveRecompute) {
  EXPECT_THAT(load("tiny_gpt", {"parallel.pipeline_config.pipeline_interleave=True"}).config.pins.schedule,
              Optional(planner::Schedule::Interleaved));
  auto stated = [](const std::string &chunks) {
    return load("tiny_gpt", {"parallel.pipeline_config.pipeline_interleave=True", "parallel_config.pipeline_stage=2",
                             "model.model_config.num_layers=12", "model.model_config.pp_interleave_num=" + chunks})
        .config.pins;
  };
  EXPECT_EQ(stated("3").virtualStages, 3);
  EXPECT_EQ(stated("1").schedule, planner::Schedule::OneFOneB);
  EXPECT_THAT(load("tiny_gpt", {"recompute_config.select_recompute=True"}).config.pins.recompute,
              Optional(planner::Recompute::Selective));
}

TEST(Cluster, OptionWinsAndTakesAShape) {
  ImportedRun run =
      load("tiny_gpt", {"parallel.parallel_mode=2", "context.max_device_memory=10GB"}, "a100_80g_selene:2x4");
  EXPECT_EQ(run.config.cluster.hosts, 2);
  EXPECT_EQ(run.config.cluster.devicesPerHost, 4);
  EXPECT_EQ(run.config.cluster.memoryBytes, 10 * 0x1p30);
  EXPECT_EQ(run.config.cluster.peakFlops, 1.95e13); // tiny_gpt computes in f32
  EXPECT_EQ(actionOf(run, "cluster"), KeyAction::Accepted);
}

// 4 % of 80 GB are reserved, besides the 2 GB of the system. A limit in the file is used as it is.
TEST(Cluster, SetChangesTheClusterOfTheOption) {
  ImportOptions options;
  options.sets = {"cluster.memory_bandwidth=1e12", "cluster.link.latency=1e-6"};
  options.cluster = "h100_dgx:2x4";
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_124m.yaml", options);
  const ClusterConfig &cluster = run.config.cluster;
  EXPECT_EQ(cluster.name, "h100_dgx");
  EXPECT_EQ(cluster.memoryBytesPerSecond, 1e12);
  EXPECT_EQ(cluster.link.latencySeconds, 1e-6);
  EXPECT_EQ(cluster.link.bytesPerSecond, 3.6e11) << "as in the file of the cluster";
  for (const char *other : {"cluster=h200", "cluster.base=h200"}) {
    options.sets = {other};
    std::string faults = importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_124m.yaml", options).diagnostics.render();
    EXPECT_THAT(faults, testing::HasSubstr("--cluster and --set cluster name two clusters")) << other;
  }
}

TEST(Cluster, AMarginIsLeftUnlessTheFileStatesItsLimit) {
  const std::string cluster = "a100_80g_selene:1x8", gigabytes = "GB";
  auto limit = [&](std::vector<std::string> sets) {
    return load("tiny_gpt", std::move(sets), cluster).config.cluster.memoryBytes / 0x1p30;
  };
  EXPECT_NEAR(limit({}), 80 - 2 - 3.2, 1e-6);
  EXPECT_EQ(limit({"context.max_device_memory=77GB"}), 77);
  EXPECT_EQ(limit({"context.max_device_memory=80GB"}), 78);
  ImportedRun own = load("tiny_gpt", {"cluster={base: a100_80g_selene, memory_margin: 0.1}"});
  EXPECT_NEAR(own.config.cluster.memoryBytes / 0x1p30, 80 - 2 - 8, 1e-6);
  EXPECT_EQ(load("tiny_gpt", {"cluster={base: a100_80g_selene, memory_margin: 0}"}).config.cluster.memoryBytes,
            78 * 0x1p30);
}

TEST(Cluster, FileAndInlineMap) {
  ImportedRun file = load("tiny_gpt", {}, ESPALIER_SOURCE_DIR "/configs/clusters/cpu_local.yaml");
  EXPECT_EQ(file.config.cluster.devices(), 8);
  ImportedRun inlined =
      load("tiny_gpt", {"cluster={base: rtx4090_x4, name: two_boxes, hosts: 2, link: {latency: 1e-3}}"});
  EXPECT_EQ(inlined.config.cluster.name, "two_boxes");
  EXPECT_EQ(inlined.config.cluster.devices(), 8);
  EXPECT_EQ(inlined.config.cluster.link.latencySeconds, 1e-3);
  EXPECT_EQ(inlined.config.cluster.link.bytesPerSecond, 1e10);
}

TEST(Cluster, HostMemory) {
  ClusterConfig dgx = load("tiny_gpt", {"parallel.parallel_mode=2"}, "a100_80g_selene:2x8").config.cluster;
  EXPECT_EQ(dgx.host.bytes, 2 * 0x1p40);
  EXPECT_DOUBLE_EQ(dgx.host.bytesPerSecond, 0.8 * 3.15e10);
  EXPECT_EQ(dgx.host.devicesPerLink, 2);
  EXPECT_EQ(load("tiny_gpt").config.cluster.host.bytesPerSecond, 0);
}

TEST(Cluster, RatesAreSharesOfTheDataSheetUnlessStated) {
  auto cluster = [](const std::string &map) { return load("tiny_gpt", {"cluster=" + map}).config.cluster; };
  ClusterConfig dgx = cluster("h100_dgx");
  EXPECT_DOUBLE_EQ(dgx.memoryBytesPerSecond, 0.78 * 3.35e12);
  EXPECT_DOUBLE_EQ(dgx.link.bytesPerSecond, 0.8 * 4.5e11);
  EXPECT_DOUBLE_EQ(dgx.network.bytesPerSecond, 0.9 * 5e10);
  EXPECT_EQ(dgx.matmulEfficiency, 0.69);
  EXPECT_EQ(dgx.attentionEfficiency, 0.45);
  EXPECT_EQ(dgx.ringSlope, 0.06);
  ClusterConfig stated = cluster("{base: h100_dgx, memory_bandwidth: 3e12, matmul_efficiency: 0.5, "
                                 "network: {ring_slope: 0}}");
  EXPECT_EQ(stated.memoryBytesPerSecond, 3e12);
  EXPECT_EQ(stated.matmulEfficiency, 0.5);
  EXPECT_EQ(stated.attentionEfficiency, 0); // as products
  EXPECT_EQ(stated.ringSlope, 0);
  // a rate of the data sheet replaces the achieved rate of the base
  EXPECT_DOUBLE_EQ(cluster("{base: a100_jeanzay, link: {peak_bandwidth: 3e11}}").link.bytesPerSecond, 0.767 * 3e11);
  ClusterConfig other = cluster("{base: h100_dgx, device: x9, matmul_efficiency: 0.5, network: {fabric: roce}}");
  EXPECT_DOUBLE_EQ(other.memoryBytesPerSecond, 0.78 * 3.35e12);
  EXPECT_EQ(other.ringSlope, 0.12);
}

TEST(Cluster, FaultsOfSharesAreReported) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(testing::TempDir()) / "shares_of_plan_test";
  fs::create_directories(folder / "shares");
  std::ofstream(folder / "shares" / "achieved.yaml")
      << "memory: {h100: 1.2, other: 0.7}\nlinks: {other: 1}\ncompute: {h100: 0.6}\n";
  ImportOptions options;
  options.cluster = "h100_dgx:1x1";
  options.searchPath = {folder.string()};
  std::string faults = importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_124m.yaml", options).diagnostics.render();
  fs::remove_all(folder);
  EXPECT_THAT(faults, testing::HasSubstr("achieved.yaml:1:16: error: a share of memory must be a number from 0 to 1, "
                                         "got 1.2"));
  EXPECT_THAT(faults, testing::HasSubstr("unknown share 'links', did you mean 'link'?"));
  options = {};
  options.sets = {"cluster={base: h100_dgx, device: x9}"};
  faults = importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_124m.yaml", options).diagnostics.render();
  EXPECT_THAT(faults, testing::HasSubstr("cluster 'h100_dgx' has no matmul_efficiency, and shares/achieved.yaml has no "
                                         "'compute' for the device 'x9'; give one of them"));
}

// Sizes from a data sheet do not count as constants, because they are not fitted.
TEST(Cluster, FilesHaveAtMostTwelveConstantsBesideSizes) {
  const std::set<std::string> sizes = {"name",
                                       "device",
                                       "hosts",
                                       "devices_per_host",
                                       "memory_bytes",
                                       "peak_flops",
                                       "multiprocessors",
                                       "host.memory_bytes",
                                       "host.devices_per_link"};
  for (const auto &entry : std::filesystem::directory_iterator(ESPALIER_SOURCE_DIR "/configs/clusters")) {
    Diagnostics diagnostics;
    YamlPtr root = loadYaml(entry.path().string(), diagnostics);
    ASSERT_TRUE(root);
    size_t constants = 0;
    for (const YamlEntry &value : root->entries)
      if (value.value->isMap() && !sizes.count(value.key))
        for (const YamlEntry &part : value.value->entries)
          constants += !sizes.count(value.key + "." + part.key);
      else
        constants += !sizes.count(value.key);
    EXPECT_LE(constants, 12u) << entry.path();
    EXPECT_GE(constants, 7u) << entry.path();
  }
}

// The comment beside each constant gives its source.
TEST(Cluster, EveryConstantHasItsSource) {
  for (const auto &entry : std::filesystem::directory_iterator(ESPALIER_SOURCE_DIR "/configs/clusters")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      bool isShape = false;
      for (const char *key : {"name:", "device:", "hosts:", "devices_per_host:"})
        isShape = isShape || line.starts_with(key);
      if (!line.empty() && !line.starts_with("#") && !isShape)
        EXPECT_NE(line.find("  # "), std::string::npos) << entry.path() << ": " << line;
    }
  }
}

TEST(Plan, Offloading) {
  ImportedRun swap =
      load("gpt2_13b", {"swap_config={swap: True, default_prefetch: 1, layer_swap: null}"}, "a100_80g_selene:4x8");
  EXPECT_THAT(swap.config.pins.offloadActivations, Optional(true));
  EXPECT_THAT(swap.config.pins.offloadOptimizer, Optional(false));
  ImportedRun pins =
      load("gpt2_13b", {"planner.pin={offload_optimizer: True, offload_activations: False}"}, "a100_80g_selene:4x8");
  EXPECT_THAT(pins.config.pins.offloadOptimizer, Optional(true));
  EXPECT_THAT(pins.config.pins.offloadActivations, Optional(false));
  EXPECT_THAT(pins.config.pins.offloadParameters, Optional(false));
  ImportedRun parameters = load(
      "gpt2_13b", {"planner.pin={zero: 3, offload_optimizer: True, offload_parameters: True}"}, "a100_80g_selene:4x8");
  EXPECT_THAT(parameters.config.pins.offloadParameters, Optional(true));
  ImportedRun free = load("gpt2_13b", {"parallel.parallel_mode=2", "swap_config.swap=True"}, "a100_80g_selene:4x8");
  EXPECT_FALSE(free.config.pins.offloadParameters);
  EXPECT_FALSE(free.config.pins.offloadActivations);
  EXPECT_EQ(actionOf(free, "swap_config.swap"), KeyAction::Mapped);
}

TEST(Training, LossScaleIsForFloat16Only) {
  EXPECT_TRUE(load("gpt2_13b").config.lossScale.dynamic);
  EXPECT_EQ(load("gpt2_13b").config.lossScale.initial, 4294967296.0);
  ImportedRun bf16 = load("gpt2_13b", {"model.model_config.compute_dtype=bfloat16"});
  EXPECT_FALSE(bf16.config.lossScale.dynamic);
  EXPECT_EQ(bf16.config.lossScale.initial, 1);
  EXPECT_EQ(load("gpt2_13b", {"runner_wrapper.scale_sense=1024"}).config.lossScale.initial, 1024);
}

// tiny_gpt has a warmup_ratio; a warmup given by --set overrides it.
TEST(Training, TheCommandLineOverridesTheWarmup) {
  ImportedRun run = load("tiny_gpt", {"lr_schedule.warmup_steps=50"});
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.schedule.warmup_steps(), 50);
  EXPECT_LT(run.config.schedule.warmup_ratio(), 0);
  EXPECT_EQ(load("gpt2_13b", {"lr_schedule.warmup_ratio=0.5"}).config.schedule.warmup_ratio(), 0.5);
  EXPECT_EQ(
      load("tiny_gpt", {"lr_schedule.warmup_steps=50", "lr_schedule.warmup_ratio=0.25"}).config.schedule.warmup_ratio(),
      0.25);
}

TEST(Training, BetaKeysOverrideTheList) {
  EXPECT_EQ(load("tiny_gpt", {"optimizer.betas=[0.8, 0.99]"}).config.optimizer.beta1, 0.8);
  EXPECT_EQ(load("tiny_gpt", {"optimizer.betas=[0.8, 0.99]", "optimizer.beta1=0.7"}).config.optimizer.beta1, 0.7);
}

TEST(Training, OnePathNeedsNoList) {
  EXPECT_THAT(load("gpt2_13b", {"train_dataset.data_loader.config.data_path=corpus"}).config.data.path(),
              testing::ElementsAre("corpus"));
}

/// Each of three keys limits attention to documents. Then every attention reads the first visible tokens, once.
TEST(Training, AttentionEndsWithADocument) {
  auto inputsOf = [](const RunConfig &run) {
    for (const OpDescription &op : run.model.segment("block").ops)
      if (op.kind == "attention")
        return op.inputs;
    return std::vector<std::string>();
  };
  const std::string loader = "train_dataset.data_loader.config.", eod = loader + "eod=3";
  for (const char *key : {"data_loader.config.reset_attention_mask", "data_loader.config.create_compressed_eod_mask"}) {
    const RunConfig c = load("gpt2_13b", {eod, std::string("train_dataset.") + key + "=true"}).config;
    EXPECT_TRUE(c.resetAttentionMask && !c.data.reset_position_ids());
    EXPECT_THAT(inputsOf(c), testing::ElementsAre(testing::_, testing::_, testing::_, "visible_from")) << key;
  }
  const RunConfig c = load("gpt2_13b", {"train_dataset.eod_token_id=3", "train_dataset.eod_reset=true",
                                        loader + "reset_attention_mask=true"})
                          .config;
  EXPECT_TRUE(c.resetAttentionMask && c.data.reset_position_ids());
  EXPECT_EQ(c.data.eod_token(), 3);
  EXPECT_THAT(inputsOf(c), testing::ElementsAre(testing::_, testing::_, testing::_, "visible_from"));
  EXPECT_EQ(inputsOf(load("gpt2_13b", {eod}).config).size(), 3u);
}

TEST(Training, DocumentTokensNeedAttentionWithinDocuments) {
  const std::string loader = "train_dataset.data_loader.config.", tokens = "planner.document_tokens=700";
  EXPECT_EQ(
      load("gpt2_13b", {loader + "eod=3", loader + "reset_attention_mask=true", tokens}).config.model.documentTokens,
      700);
  ImportOptions options;
  options.sets = {loader + "eod=3", tokens};
  EXPECT_THAT(importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_13b.yaml", options).diagnostics.render(),
              testing::HasSubstr("planner.document_tokens is 700, but attention is not limited to documents: set "
                                 "train_dataset.data_loader.config.reset_attention_mask or leave "
                                 "planner.document_tokens out"));
}

TEST(Training, ScheduleOptimizerAndDataAreRead) {
  const RunConfig c =
      load("gpt2_13b", {"optimizer.betas=[0.8, 0.99]", "optimizer.beta1=null", "optimizer.beta2=null",
                        "train_dataset.data_loader.config={data_path: [1, a, 2, b], seed: 9, split: '1,1,1', "
                        "eod: 3, eod_mask_loss: true, reset_position_ids: true, reset_attention_mask: false}"})
          .config;
  EXPECT_EQ(c.schedule.kind(), "polynomial");
  EXPECT_EQ(c.schedule.warmup_steps(), 2000);
  EXPECT_EQ(c.schedule.end(), 1e-6);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.optimizer.beta2, 0.99);
  EXPECT_TRUE(c.optimizer.clip);
  EXPECT_EQ(c.dtypes.parameters, DType::F16);
  EXPECT_EQ(c.dtypes.norm, DType::F32);
  EXPECT_THAT(c.data.path(), testing::ElementsAre("1", "a", "2", "b"));
  EXPECT_EQ(c.data.seed(), 9u);
  EXPECT_EQ(c.data.split(), "1,1,1");
  EXPECT_EQ(c.data.eod_token(), 3);
  EXPECT_TRUE(c.data.eod_mask_loss() && c.data.reset_position_ids());
  EXPECT_FALSE(c.resetAttentionMask);
  EXPECT_THAT(load("gpt2_13b", {"train_dataset.data_loader.dataset_dir=corpus"}).config.data.path(),
              testing::ElementsAre("corpus"));
  EXPECT_EQ(c.checkpointSteps, 500);
  EXPECT_EQ(c.ignoreToken, -1);
  EXPECT_EQ(load("llama2_7b", {"model.model_config.ignore_token_id=0"}).config.ignoreToken, 0);
}

} // namespace
} // namespace espalier
