// Tests how published tables are read: spellings, units, and cells that follow from other cells. A cell that cannot be
// read is refused with a reason.
#include "tools/published/run_of_row.h"

#include <gmock/gmock.h>

#include <algorithm>

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

namespace {

using Changes = std::map<std::string, std::string>;

PublishedRow rowWith(const Changes &changes) {
  PublishedRow row;
  row.columns = {{"model", "GPT"}, {"layers", "8"},       {"hidden", "1024"}, {"ffn", "4096"},
                 {"heads", "16"},  {"vocab", "51200"},    {"seq", "512"},     {"gpu", "H200"},
                 {"n_gpus", "16"}, {"precision", "bf16"}, {"tp", "2"},        {"pp", "2"},
                 {"dp", "4"},      {"mbs", "1"},          {"gbs", "32"},      {"recompute", "none"},
                 {"status", "ok"}, {"iter_time_s", "0.1"}};
  for (const auto &[column, text] : changes)
    row.columns[column] = text;
  return row;
}

PublishedRun runWith(const Changes &changes) { return runOf(rowWith(changes)); }

/// Returns the value that the run sets for a key, or an empty text.
std::string valueOf(const PublishedRun &run, const std::string &key) {
  for (const std::string &set : run.sets)
    if (set.starts_with(key + "="))
      return set.substr(key.size() + 1);
  return "";
}

std::string sizeOf(const PublishedRun &run, const std::string &key) {
  return valueOf(run, "model.model_config." + key);
}

} // namespace

TEST(ReadNumber, TakesAWholeCellWithItsUnitOrNothing) {
  EXPECT_EQ(readNumber("128,256"), 128256);
  EXPECT_EQ(readNumber(" 2,097,152 "), 2097152);
  EXPECT_EQ(readNumber("1e3"), 1000);
  EXPECT_EQ(readNumber("3 (FSDP group 8)"), 3);
  EXPECT_EQ(readNumber("4K", "seq"), 4096);
  EXPECT_EQ(readNumber("850 ms", "iter_time_s"), 0.85);
  EXPECT_EQ(readNumber("2 min", "iter_time_s"), 120);
  EXPECT_EQ(readNumber("1.5s", "iter_time_s"), 1.5);
  EXPECT_EQ(readNumber("40GB", "mem_gb"), 40);
  EXPECT_EQ(readNumber("512 MiB", "mem_gb"), 0.5);
  EXPECT_EQ(readNumber("41.5%", "mfu_pct"), 41.5);
  EXPECT_EQ(readNumber("121 TFLOP/s", "mfu_pct"), 121);
  for (const char *cell : {"", "x", "~4", "4/8", "16M", "4K", "1,2", "12,34", "1234,567", ",123", "1.2.3", "1e999",
                           "nan", "850 ms", "8x4", "4 8", "1e"})
    EXPECT_EQ(readNumber(cell), std::nullopt) << cell;
  EXPECT_EQ(readNumber("1.2 PFLOP/s", "mfu_pct"), std::nullopt);
  EXPECT_EQ(readNumber("3 h", "iter_time_s"), std::nullopt);
}

TEST(PublishedTable, HeadingsCellsAndLineEndsMayBeWrittenInManyWays) {
  for (const char *text : {"GPU , Notes\r\n H100 ,\tn/a\r\n", "gpu,notes\rH100,-\r", "notes,gpu\n\"\", \"H100\"\n",
                           "\xEF\xBB\xBF\"gpu\",NOTES,extra,\nH100,\xE2\x80\x93,7,\n"}) {
    PublishedTable table = readTable(text);
    EXPECT_TRUE(table.faults.empty()) << text;
    ASSERT_EQ(table.rows.size(), 1u) << text;
    EXPECT_EQ(table.rows[0].text("gpu"), "H100") << text;
    EXPECT_EQ(table.rows[0].text("notes"), "") << text;
  }
}

TEST(PublishedTable, KeepsRowsBesideABadRowButNotWithADuplicateColumn) {
  PublishedTable table = readTable("gpu,tp\nH100,1\nH100\nH100,2\n");
  EXPECT_EQ(table.faults.size(), 1u);
  EXPECT_EQ(table.rows.size(), 2u);
  EXPECT_TRUE(readTable("gpu,tp,tp\nH100,1,2\n").rows.empty());
}

TEST(PublishedRows, UnreadableCellsHaveAReason) {
  const std::pair<Changes, const char *> cases[] = {
      {{}, ""},
      {{{"layers", ""}}, "no layers published"},
      {{{"heads", "x"}}, "heads is 'x', wanted a whole number from 1 to 100000"},
      {{{"hidden", "1e300"}}, "hidden is '1e300', wanted a whole number from 1 to 1000000"},
      {{{"tp", "-2"}}, "tp is '-2', wanted a whole number from 1 to 1000000"},
      {{{"gbs", "nan"}}, "gbs is 'nan', wanted a whole number from 1 to 1000000"},
      {{{"gbs", "16M"}}, "gbs is '16M', wanted a whole number from 1 to 1000000"},
      {{{"gbs", "10,000 tokens"}}, "gbs is '10,000 tokens', wanted a whole number from 1 to 1000000"},
      {{{"vocab", "50k"}}, "vocab is '50k', wanted a whole number from 1 to 100000000"},
      {{{"tp", "2/4"}}, "tp is '2/4', wanted a whole number from 1 to 1000000"},
      {{{"mbs", "3"}}, "the global batch does not divide by dp * micro-batch"},
      {{{"dp", "2"}}, "dp * tp * pp * cp is not the number of devices"},
      {{{"tp", "5"}}, "dp * tp * pp * cp does not divide the devices"},
      {{{"tp", ""}, {"pp", ""}}, "no tp published"},
      {{{"ep", "3"}}, "ep does not divide dp"},
      {{{"iter_time_s", "~4"}}, "iter_time_s is '~4', wanted a number and at most its unit"},
      {{{"mem_gb", "40-44"}}, "mem_gb is '40-44', wanted a number and at most its unit"},
      {{{"sp", "perhaps"}}, "sp 'perhaps' is not known"},
      {{{"zero", "some"}}, "zero 'some' is not modelled"},
      {{{"zero", "3, CPU offload (auto)"}}, "zero '3, CPU offload (auto)' is not modelled"},
      {{{"zero", "ZeRO-Infinity"}}, "zero 'ZeRO-Infinity' is not modelled"},
      {{{"zero", "DeepSpeed ZeRO"}}, "no ZeRO stage published"},
      {{{"recompute", "selective(layer)"}}, "recompute 'selective(layer)' is not modelled"},
      {{{"recompute", "12 of 24"}}, "recompute '12 of 24' is not modelled"},
      {{{"notes", "CPU offload"}}, "offloading is not modelled for published shapes"},
      {{{"notes", "AsyncTP, Interleaved 1F1B"}}, "interleaved, and no vpp published"},
      {{{"model", "LLaMA-7B LoRA"}}, "fine-tuning of adapters is not modelled"},
      {{{"gpu", "TPU v4"}}, "no cluster file for gpu 'TPU v4'"},
      {{{"gpu", ""}}, "no cluster file for gpu ''"},
      {{{"precision", "fp32"}}, "precision 'fp32' is not modelled"},
      {{{"precision", "int8"}}, "precision 'int8' is not modelled"},
      {{{"status", "not run"}}, "status: not run"},
      {{{"iter_time_s", ""}}, "nothing measured"},
  };
  for (const auto &[changes, reason] : cases)
    EXPECT_EQ(runWith(changes).reason, reason);
}

TEST(PublishedRows, ShardingIsSpelledInManyWays) {
  const std::pair<const char *, int> spellings[] = {{"0", 0},       {"none", 0},
                                                    {"DDP", 0},     {"No", 0},
                                                    {"1", 1},       {"ZeRO-1", 1},
                                                    {"zero1", 1},   {"ZeRO stage 1", 1},
                                                    {"yes", 1},     {"distributed optimizer", 1},
                                                    {"", 1},        {"2", 2},
                                                    {"Stage 2", 2}, {"DeepSpeed ZeRO-2", 2},
                                                    {"3", 3},       {"FSDP", 3},
                                                    {"HSDP", 3},    {"3 (FSDP group 64)", 3}};
  for (auto [text, stage] : spellings) {
    PublishedRun found = runWith({{"zero", text}, {"pp", "1"}, {"dp", "8"}});
    EXPECT_EQ(found.reason, "") << text;
    EXPECT_THAT(found.pin, HasSubstr("zero=" + std::to_string(stage))) << text;
  }
}

TEST(PublishedRows, ReadsOffloading) {
  struct Spelling {
    const char *text;
    bool optimizer, parameters;
  };
  const Spelling spellings[] = {{"3", false, false},
                                {"3, CPU offload", true, true},
                                {"ZeRO-3 offload", true, true},
                                {"FSDP, CPU offload", true, true},
                                {"3, optimizer offload", true, false},
                                {"ZeRO-2, CPU offload", true, false}};
  for (const Spelling &spelling : spellings) {
    PublishedRun found = runWith({{"zero", spelling.text}});
    EXPECT_EQ(found.reason, "") << spelling.text;
    EXPECT_EQ(found.pin.find("offload_optimizer") != std::string::npos, spelling.optimizer) << spelling.text;
    EXPECT_EQ(found.pin.find("offload_parameters") != std::string::npos, spelling.parameters) << spelling.text;
    EXPECT_THAT(found.pin, Not(HasSubstr("offload_activations"))) << spelling.text;
  }
}

TEST(PublishedRows, RecomputeAndSequenceParallelismAreSpelledInManyWays) {
  const std::pair<const char *, const char *> spellings[] = {
      {"none", "none"},           {"No", "none"},   {"False", "none"},          {"Full", "full"},
      {"full (uniform)", "full"}, {"True", "full"}, {"selective", "selective"}, {"Selective(attn)", "selective"},
      {"sel", "selective"}};
  for (auto [text, recompute] : spellings)
    EXPECT_THAT(runWith({{"recompute", text}}).pin, HasSubstr(std::string("recompute=") + recompute)) << text;
  EXPECT_THAT(runWith({{"recompute", ""}}).pin, Not(HasSubstr("recompute"))); // every stage keeps what fits
  for (const char *yes : {"1", "True", "yes", "on", ""}) // Megatron Core implies sequence parallelism
    EXPECT_THAT(runWith({{"sp", yes}}).pin, HasSubstr("sp=true")) << yes;
  for (const char *no : {"0", "False", "no", "off"})
    EXPECT_THAT(runWith({{"sp", no}}).pin, HasSubstr("sp=false")) << no;
  EXPECT_THAT(runWith({{"sp", ""}, {"gpu", "V100"}, {"precision", "fp16"}}).pin, HasSubstr("sp=false"));
}

TEST(PublishedRows, ClustersOfManySpellingsAreKnown) {
  const std::pair<const char *, const char *> names[] = {{"A100-40GB", "a100_40g:2x8"},
                                                         {"A100-SXM4-80GB", "a100_80g_selene:2x8"},
                                                         {"a100", "a100_80g_selene:2x8"},
                                                         {"A100-80GB (Jean Zay, 8/node)", "a100_jeanzay:2x8"},
                                                         {"H100-SXM5-80GB", "h100_dgx:2x8"},
                                                         {"H100-96GB HBM2e", "h100_96g:2x8"},
                                                         {"H200", "h200:2x8"},
                                                         {"DGX-GB200", "gb200_nvl72:1x16"},
                                                         {"GB300", "gb300_nvl72:1x16"},
                                                         {"B200", "b200:2x8"},
                                                         {"V100-16GB", "v100_16g:2x8"},
                                                         {"V100-32GB (Jean Zay 4/node)", "v100_32g_x4:4x4"},
                                                         {"Ascend 910B", "ascend_910b_64g:2x8"}};
  for (auto [gpu, cluster] : names)
    EXPECT_EQ(runWith({{"gpu", gpu}}).cluster, cluster) << gpu;
  EXPECT_EQ(runWith({{"n_gpus", "4"}, {"dp", "1"}}).cluster, "h200:1x4");
  EXPECT_EQ(runWith({{"n_gpus", "12"}, {"dp", "3"}, {"gbs", "33"}}).cluster, "h200:3x4"); // hosts of equal size
}

TEST(PublishedRows, FormatsNarrowerThan16BitsAreNamed) {
  EXPECT_EQ(sizeOf(runWith({{"precision", "MXFP8"}}), "matmul_format"), "fp8_hybrid");
  EXPECT_EQ(sizeOf(runWith({{"precision", "float8"}}), "matmul_format"), "fp8_hybrid");
  EXPECT_EQ(sizeOf(runWith({{"precision", "NVFP4"}}), "matmul_format"), "fp4_e2m1");
  EXPECT_EQ(sizeOf(runWith({{"precision", "fp8 rowwise"}}), "matmul_format"), "");
  EXPECT_EQ(sizeOf(runWith({{"precision", "fp16"}}), "compute_dtype"), "float16");
  EXPECT_EQ(sizeOf(runWith({{"precision", "fp8"}}), "compute_dtype"), "bfloat16");
}

TEST(PublishedRows, BatchesMayCountTokensAndSequencesThousandsOf1024) {
  EXPECT_EQ(runWith({{"gbs", "16,384 tokens"}}).globalBatch, 32);
  EXPECT_EQ(runWith({{"gbs", "4M tokens"}, {"seq", "4K"}}).globalBatch, 1024);
  EXPECT_EQ(runWith({{"gbs", "8M tokens"}, {"seq", "2000"}}).globalBatch, 4000);
}

TEST(PublishedRows, WithoutAMicroBatchAllPossibleOnesAreTried) {
  EXPECT_EQ(runWith({}).microBatchSizes, std::vector<int64_t>{1});
  EXPECT_EQ(runWith({{"mbs", ""}}).microBatchSizes, (std::vector<int64_t>{1, 2, 4, 8}));
}

TEST(PublishedRows, ExpertsLieOnTheReplicas) {
  EXPECT_THAT(runWith({{"ep", "2"}}).pin, HasSubstr("dp=2,tp=2,pp=2,cp=1,ep=2"));
  PublishedRun wide = runWith({{"ep", "8"}}); // on all ranks of dp and tp, as whole experts
  EXPECT_THAT(wide.pin, HasSubstr("dp=1,tp=2,pp=2,cp=1,ep=4"));
  EXPECT_THAT(wide.pin, HasSubstr("expert_tensor_parallel=False"));
  PublishedRun named = runWith({{"model", "Qwen3_30b_a3B"}, {"layers", ""}, {"hidden", ""}, {"ep", "4"}});
  EXPECT_EQ(named.base, "qwen3_30b_a3b");
  EXPECT_EQ(valueOf(named, "moe_config.capacity_factor"), "1");
  EXPECT_EQ(named.assumed, std::vector<std::string>{"the sizes of qwen3_30b_a3b"});
}

TEST(PublishedRows, FullyShardedRowsHaveNoOtherAxisByDefault) {
  Changes nothing = {{"tp", ""}, {"pp", ""}, {"dp", ""}, {"mbs", "2"}};
  nothing["zero"] = "FSDP";
  PublishedRun found = runWith(nothing);
  EXPECT_EQ(found.reason, "");
  EXPECT_THAT(found.pin, HasSubstr("dp=16"));
  nothing["zero"] = "1";
  EXPECT_EQ(runWith(nothing).reason, "no tp published");
  nothing["mbs"] = "";
  EXPECT_TRUE(runWith(nothing).withoutPlan);
}

// In torchtitan, mbs is the batch of a rank. Its pipelines gather parameters once per step.
TEST(PublishedRows, PipelinesOfPyTorchCutABatchAndShardPerStep) {
  Changes changes{{"source", "pytorch/torchtitan"}, {"zero", "3"}, {"mbs", "8"}};
  PublishedRun staged = runWith(changes);
  EXPECT_EQ(staged.microBatchSizes, std::vector<int64_t>{4});
  EXPECT_THAT(staged.pin, HasSubstr("zero=1"));
  EXPECT_EQ(staged.assumed.front(), "as many micro-batches as stages");
  changes["mbs"] = "1";
  EXPECT_EQ(runWith(changes).reason, "the micro-batch is not published");
  changes["pp"] = "1", changes["dp"] = "8";
  EXPECT_THAT(runWith(changes).pin, HasSubstr("zero=3"));
}

TEST(PublishedRows, ShapesFollowFromTheFamilyOfTheModel) {
  Changes llama = {{"model", "LLaMA-7B"}, {"hidden", "4096"}, {"heads", "32"}, {"ffn", ""}};
  PublishedRun found = runWith(llama);
  EXPECT_EQ(found.base, "llama2_7b");
  EXPECT_EQ(sizeOf(found, "intermediate_size"), "11008");
  EXPECT_EQ(sizeOf(found, "n_kv_heads"), "32");
  EXPECT_EQ(found.assumed, std::vector<std::string>{"ffn of two thirds of 4 hidden"});
  PublishedRun grouped = runWith({{"model", "Nemotron"}, {"kv_heads", "4"}, {"hidden", "1536"}, {"ffn", "6144"}});
  EXPECT_EQ(grouped.base, "llama2_7b");
  EXPECT_EQ(sizeOf(grouped, "intermediate_size"), "4096");
  EXPECT_EQ(grouped.assumed, std::vector<std::string>{"a gated ffn of as many parameters"});
  EXPECT_EQ(runWith({}).base, "gpt3_175b");
  EXPECT_EQ(sizeOf(runWith({}), "expand_ratio"), "4");
  EXPECT_TRUE(runWith({}).assumed.empty());
  PublishedRun heads = runWith({{"heads", ""}, {"hidden", "1200"}});
  EXPECT_EQ(heads.assumed.front(), "heads of the size nearest 128 that divides hidden");
  EXPECT_EQ(sizeOf(heads, "num_heads"), "10");
}

TEST(PublishedRows, RatesThatChangedTheirFormulaAreNotUsed) {
  Changes rate = {{"iter_time_s", ""}, {"tflops_per_gpu", "100"}, {"recompute", "full"}};
  EXPECT_EQ(runWith(rate).teraflops, 100);
  EXPECT_FALSE(runWith(rate).countsRecompute);
  rate["gpu"] = "V100", rate["precision"] = "fp16"; // at that time, FLOPs included recomputation
  EXPECT_TRUE(runWith(rate).countsRecompute);
  rate["gpu"] = "A100 (Jean Zay)";
  EXPECT_EQ(runWith(rate).reason, "nothing measured");
}

TEST(PublishedRows, SystemsFollowFromSourceMachineAndSharding) {
  auto name = [](const Changes &changes) { return runWith(changes).system; };
  EXPECT_EQ(name({}), "megatron_core");
  EXPECT_EQ(name({{"source", "NVIDIA/NeMo README"}}), "nemo");
  EXPECT_EQ(name({{"gpu", "V100"}, {"precision", "fp16"}}), "megatron_2021");
  EXPECT_EQ(name({{"gpu", "A100"}, {"precision", "fp16"}}), "megatron_2021");
  EXPECT_EQ(name({{"gpu", "A100"}, {"precision", "bf16"}}), "megatron_core");
  EXPECT_EQ(name({{"source", "Korthikanti 2022"}}), "megatron_2022");
  EXPECT_EQ(name({{"gpu", "Ascend 910B"}, {"precision", "fp16"}}), "megatron_core");
  EXPECT_EQ(name({{"zero", "FSDP"}}), "llm_foundry");
  EXPECT_EQ(name({{"zero", "3"}}), "deepspeed_zero");
  EXPECT_EQ(name({{"source", "pytorch/torchtitan docs"}, {"mbs", "2"}}), "torchtitan");
  EXPECT_EQ(name({{"source", "pytorch/torchtitan docs"}, {"mbs", "2"}, {"notes", "FSDP+compile"}}),
            "torchtitan_compiled");
}
