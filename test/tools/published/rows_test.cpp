// Tests how published tables are read: spellings, units, and cells that follow from other cells. A cell that cannot be
// read is refused with a reason.
#include "planner/search.h"
#include "tools/published/machines.h"
#include "tools/published/report.h"
#include "tools/published/systems.h"

#include <gtest/gtest.h>

using namespace espalier::planner;

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

PublishedCase caseWith(const Changes &changes) { return caseOf(rowWith(changes)); }

} // namespace

TEST(ReadNumber, TakesAWholeCellWithItsUnitOrNothing) {
  EXPECT_EQ(readNumber("128,256"), 128256);
  EXPECT_EQ(readNumber(" 2,097,152 "), 2097152);
  EXPECT_EQ(readNumber("1e3"), 1000);
  EXPECT_EQ(readNumber("3 (FSDP group 8)"), 3);
  EXPECT_EQ(readNumber("4K", Unit::Positions), 4096);
  EXPECT_EQ(readNumber("850 ms", Unit::Seconds), 0.85);
  EXPECT_EQ(readNumber("2 min", Unit::Seconds), 120);
  EXPECT_EQ(readNumber("1.5s", Unit::Seconds), 1.5);
  EXPECT_EQ(readNumber("40GB", Unit::Gibibytes), 40);
  EXPECT_EQ(readNumber("512 MiB", Unit::Gibibytes), 0.5);
  EXPECT_EQ(readNumber("41.5%", Unit::Rate), 41.5);
  EXPECT_EQ(readNumber("121 TFLOP/s", Unit::Rate), 121);
  for (const char *cell : {"", "x", "~4", "4/8", "16M", "4K", "1,2", "12,34", "1234,567", ",123", "1.2.3", "1e999",
                           "nan", "850 ms", "8x4", "4 8", "1e"})
    EXPECT_EQ(readNumber(cell), std::nullopt) << cell;
  EXPECT_EQ(readNumber("1.2 PFLOP/s", Unit::Rate), std::nullopt);
  EXPECT_EQ(readNumber("3 h", Unit::Seconds), std::nullopt);
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
      {{{"gbs", "16M"}}, "gbs is '16M', wanted a whole number from 1 to 1000000"},
      {{{"gbs", "10,000 tokens"}}, "gbs is '10,000 tokens', wanted a whole number from 1 to 1000000"},
      {{{"vocab", "50k"}}, "vocab is '50k', wanted a whole number from 1 to 100000000"},
      {{{"tp", "2/4"}}, "tp is '2/4', wanted a whole number from 1 to 1000000"},
      {{{"iter_time_s", "~4"}}, "iter_time_s is '~4', wanted a number and at most its unit"},
      {{{"mem_gb", "40-44"}}, "mem_gb is '40-44', wanted a number and at most its unit"},
      {{{"kv_heads", "3"}}, "the key and value heads do not divide the heads"},
      {{{"zero", "some"}}, "zero 'some' is not modelled"},
      {{{"zero", "3, CPU offload"}},
       "nothing can be offloaded, cluster h200 has no link to host memory (host.bandwidth)"},
      {{{"zero", "3, CPU offload (auto)"}}, "zero '3, CPU offload (auto)' is not modelled"},
      {{{"zero", "ZeRO-Infinity"}}, "zero 'ZeRO-Infinity' is not modelled"},
      {{{"zero", "DeepSpeed ZeRO"}}, "no ZeRO stage published"},
      {{{"sp", "perhaps"}}, "sp 'perhaps' is not known"},
      {{{"recompute", "selective(layer)"}}, "recompute 'selective(layer)' is not modelled"},
      {{{"recompute", "12 of 24"}}, "recompute '12 of 24' is not modelled"},
      {{{"notes", "CPU offload"}}, "offloading is not modelled for published shapes"},
      {{{"model", "LLaMA-7B LoRA"}}, "fine-tuning of adapters is not modelled"},
      {{{"gpu", "TPU v4"}}, "no machine for gpu 'TPU v4' with precision 'bf16'"},
      {{{"gpu", "Gaudi 2"}}, "no machine for gpu 'Gaudi 2' with precision 'bf16'"},
      {{{"gpu", ""}}, "no machine for gpu '' with precision 'bf16'"},
      {{{"precision", "fp32"}}, "no machine for gpu 'H200' with precision 'fp32'"},
      {{{"precision", "TF32"}}, "no machine for gpu 'H200' with precision 'TF32'"},
      {{{"precision", "int8"}}, "no machine for gpu 'H200' with precision 'int8'"},
      {{{"gpu", "A100"}, {"precision", "fp8"}}, "no machine for gpu 'A100' with precision 'fp8'"},
      {{{"gpu", "H100"}, {"precision", "NVFP4"}}, "no machine for gpu 'H100' with precision 'NVFP4'"},
  };
  for (const auto &[changes, reason] : cases)
    EXPECT_EQ(caseWith(changes).reason, reason);
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
    PublishedCase found = caseWith({{"zero", text}, {"pp", "1"}, {"dp", "8"}});
    EXPECT_EQ(found.reason, "") << text;
    EXPECT_EQ(found.plan.zero, stage) << text;
  }
}

// Only the parameters are offloaded under ZeRO 3 if the cell does not name the optimizer.
TEST(PublishedRows, ReadsOffloading) {
  struct Spelling {
    const char *text;
    int zero;
    bool optimizer, parameters;
  };
  const Spelling spellings[] = {{"3", 3, false, false},
                                {"3, CPU offload", 3, true, true},
                                {"ZeRO-3 offload", 3, true, true},
                                {"FSDP, CPU offload", 3, true, true},
                                {"3, optimizer offload", 3, true, false},
                                {"ZeRO-2, CPU offload", 2, true, false}};
  for (const Spelling &spelling : spellings) {
    PublishedCase found =
        caseWith({{"gpu", "V100-32GB (Jean Zay 4/node)"}, {"precision", "fp16"}, {"zero", spelling.text}});
    EXPECT_EQ(found.reason, "") << spelling.text;
    EXPECT_EQ(found.plan.zero, spelling.zero) << spelling.text;
    EXPECT_EQ(found.plan.offloadOptimizer, spelling.optimizer) << spelling.text;
    EXPECT_EQ(found.plan.offloadParameters, spelling.parameters) << spelling.text;
    EXPECT_FALSE(found.plan.offloadActivations) << spelling.text;
  }
}

// Jean Zay's rows of ZeRO 3 name a section of the page. The section states what the runs offload.
TEST(PublishedRows, PageSectionsDefineOffloading) {
  const Changes row = {{"gpu", "V100-32GB (Jean Zay 4/node)"},
                       {"precision", "fp16"},
                       {"pp", "1"},
                       {"gbs", "16"},
                       {"recompute", "full"},
                       {"heads", ""}};
  auto rowOf = [&](const char *section, Changes changes) {
    changes.insert(row.begin(), row.end());
    changes["zero"] = std::string("DeepSpeed ZeRO (section: ") + section + ")";
    return caseWith(changes);
  };
  PublishedCase megatron = rowOf("With full cpu offload", {{"dp", "4"}, {"tp", ""}, {"mbs", "4"}});
  ASSERT_EQ(megatron.reason, "");
  EXPECT_EQ(megatron.plan.tp, 4);
  EXPECT_EQ(megatron.plan.zero, 3);
  EXPECT_EQ(megatron.problem.dimensions[3].size, 32); // heads
  EXPECT_TRUE(megatron.plan.offloadOptimizer && megatron.plan.offloadParameters && megatron.plan.offloadActivations);
  EXPECT_EQ(megatron.assumed.front(), "ZeRO 3");
  megatron = rowOf("Performance", {{"dp", "8"}, {"mbs", "2"}});
  EXPECT_FALSE(megatron.plan.offloadOptimizer || megatron.plan.offloadParameters);
  EXPECT_TRUE(megatron.plan.offloadActivations);
  PublishedCase huggingFace = rowOf("Max model size", {{"dp", ""}, {"tp", ""}});
  ASSERT_EQ(huggingFace.reason, "");
  EXPECT_EQ(huggingFace.plan.dp, 16);
  EXPECT_TRUE(huggingFace.plan.offloadOptimizer && huggingFace.plan.offloadParameters);
  EXPECT_FALSE(huggingFace.plan.offloadActivations);
  huggingFace = rowOf("Performance", {{"dp", ""}, {"tp", ""}});
  EXPECT_FALSE(huggingFace.plan.offloads());
  for (auto [line, parameters] : {std::pair("line 484; x", false), {"line 485; x", true}}) {
    huggingFace =
        rowOf("Performance", {{"dp", ""}, {"tp", ""}, {"notes", line}, {"source", "experiments/gpt2.md@9e64edec2ad1"}});
    EXPECT_TRUE(huggingFace.plan.offloadOptimizer);
    EXPECT_EQ(huggingFace.plan.offloadParameters, parameters);
  }
}

TEST(PublishedRows, RecomputeAndSequenceParallelismAreSpelledInManyWays) {
  const std::pair<const char *, Recompute> spellings[] = {
      {"none", Recompute::None},           {"No", Recompute::None},
      {"False", Recompute::None},          {"Full", Recompute::Full},
      {"full (uniform)", Recompute::Full}, {"True", Recompute::Full},
      {"selective", Recompute::Selective}, {"Selective(attn)", Recompute::Selective},
      {"sel", Recompute::Selective}};
  for (auto [text, recompute] : spellings) {
    PublishedCase found = caseWith({{"recompute", text}});
    EXPECT_EQ(found.reason, "") << text;
    EXPECT_EQ(found.problem.pins.recompute, recompute) << text;
  }
  for (const char *yes : {"1", "True", "yes", "on", ""}) // Megatron Core implies sequence parallelism
    EXPECT_TRUE(caseWith({{"sp", yes}}).plan.sequenceParallel) << yes;
  for (const char *no : {"0", "False", "no", "off"})
    EXPECT_FALSE(caseWith({{"sp", no}}).plan.sequenceParallel) << no;
  EXPECT_FALSE(caseWith({{"sp", ""}, {"gpu", "V100"}, {"precision", "fp16"}})
                   .plan.sequenceParallel); // sequence parallelism is newer than these runs
}

TEST(PublishedRows, MachinesOfManySpellingsAreKnown) {
  const std::pair<const char *, double> memory[] = {{"A100-40GB", 40},
                                                    {"A100 40 GB", 40},
                                                    {"A100 40GB PCIe", 40},
                                                    {"A100-PCIE-40GB", 40},
                                                    {"NVIDIA A100 80GB PCIe", 80},
                                                    {"A100-SXM4-80GB", 80},
                                                    {"A100 SXM", 80},
                                                    {"a100", 80},
                                                    {"A800", 80},
                                                    {"A800-80GB", 80},
                                                    {"H100 PCIe", 80},
                                                    {"H100-SXM5-80GB", 80},
                                                    {"H100 80GB HBM3 (NVLink)", 80},
                                                    {"DGX H100", 80},
                                                    {"H100 NVL", 94},
                                                    {"H800", 80},
                                                    {"H20", 96},
                                                    {"GH200", 96},
                                                    {"H200", 141},
                                                    {"B200", 180},
                                                    {"GB200 NVL72", 186},
                                                    {"GB300", 279},
                                                    {"B300", 269},
                                                    {"V100-16GB", 16},
                                                    {"V100 32GB", 32},
                                                    {"V100 (DGX-2)", 32},
                                                    {"V100 PCIe", 32},
                                                    {"L40S", 48},
                                                    {"L40", 48},
                                                    {"RTX 3090", 24},
                                                    {"GeForce RTX 4090", 24},
                                                    {"RTX 5090", 32},
                                                    {"RTX A6000", 48},
                                                    {"RTX 6000 Ada", 48},
                                                    {"A10G", 24},
                                                    {"Ascend 910B", 64},
                                                    {"Ascend 910", 32},
                                                    {"Atlas 800T A2", 64},
                                                    {"MI300X", 192},
                                                    {"MI250X", 64}};
  for (auto [gpu, gibibytes] : memory)
    EXPECT_EQ(publishedMachine(gpu, "bf16", 8).memoryBytes, gibibytes * 1073741824.0) << gpu;
  for (const char *precision : {"bf16", "BF16", "bfloat16", "fp16", "float16", "mixed", "amp_bf16", "half", ""})
    EXPECT_EQ(publishedMachine("A100", precision, 8).peakFlops, 312e12) << precision;
  EXPECT_GT(publishedMachine("H100", "FP8", 8).peakFlops, 1.5 * 989e12);
  EXPECT_LT(publishedMachine("A800", "bf16", 8).link.bytesPerSecond,
            publishedMachine("A100", "bf16", 8).link.bytesPerSecond);
  EXPECT_LT(publishedMachine("H100 PCIe", "bf16", 8).peakFlops, publishedMachine("H100", "bf16", 8).peakFlops);
  EXPECT_EQ(publishedMachine("V100 (DGX-2)", "fp16", 16).hosts, 1);
}

TEST(PublishedRows, BatchesMayCountTokensAndSequencesThousandsOf1024) {
  EXPECT_EQ(caseWith({{"gbs", "16,384 tokens"}}).problem.globalBatch, 32);
  EXPECT_EQ(caseWith({{"gbs", "4M tokens"}, {"seq", "4K"}}).problem.globalBatch, 1024);
  EXPECT_EQ(caseWith({{"gbs", "8M tokens"}, {"seq", "2000"}}).problem.globalBatch, 4000);
}

TEST(PublishedRows, FullyShardedRowsHaveNoOtherAxisByDefault) {
  Changes nothing = {{"tp", ""}, {"pp", ""}, {"dp", ""}, {"mbs", "2"}};
  nothing["zero"] = "FSDP";
  PublishedCase found = caseWith(nothing);
  EXPECT_EQ(found.reason, "");
  EXPECT_EQ(found.plan.dp, 16);
  nothing["zero"] = "1";
  EXPECT_EQ(caseWith(nothing).reason, "no tp published");
}

// The page of the BLOOM table says of 78 layers: "The last stage has 1 block, while the rest have 7".
TEST(PublishedRows, LayersThatDoNotDivideAreLaidAsTheSystemDoes) {
  auto counts = [](const char *layers, const char *gpu) {
    PublishedCase found = caseWith({{"layers", layers}, {"pp", "4"}, {"dp", "2"}, {"gpu", gpu}});
    std::vector<int> list;
    for (const StagePlan &stage : pricePlan(found.problem, found.plan).plan.stages)
      list.push_back(stage.layers);
    return list;
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(counts("9", "A100 (Jean Zay)"), (Counts{2, 3, 2, 2})); // otherwise the fourth stage would be empty
  EXPECT_EQ(counts("13", "A100 (Jean Zay)"), (Counts{4, 4, 4, 1}));
  EXPECT_EQ(counts("13", "A100"), (Counts{3, 4, 3, 3}));
  for (const char *gpu : {"A100 (Jean Zay)", "A100"})
    EXPECT_EQ(counts("14", gpu), (Counts{3, 4, 4, 3})) << gpu;
}

// In torchtitan, mbs is the batch of a rank. Its pipelines gather parameters once per step and keep what stages send.
TEST(PublishedRows, PipelinesOfPyTorchCutABatchAndShardPerStep) {
  Changes changes{{"source", "pytorch/torchtitan"}, {"zero", "3"}, {"mbs", "8"}};
  PublishedCase staged = caseWith(changes);
  EXPECT_EQ(staged.plan.microBatchSize, 4);
  EXPECT_EQ(staged.plan.microBatches, 2);
  EXPECT_EQ(staged.plan.zero, 1);
  EXPECT_EQ(staged.problem.streamBuffers.sends, 4);
  EXPECT_EQ(staged.assumed.front(), "as many micro-batches as stages");
  changes["vpp"] = "2";
  EXPECT_EQ(caseWith(changes).problem.streamBuffers.sends, 8);
  changes["mbs"] = "1";
  EXPECT_EQ(caseWith(changes).reason, "the micro-batch is not published");
  changes["pp"] = "1", changes["dp"] = "8", changes["vpp"] = "";
  EXPECT_EQ(caseWith(changes).plan.zero, 3);
  EXPECT_EQ(caseWith({{"notes", "AsyncTP, Interleaved 1F1B"}}).reason, "interleaved, and no vpp published");
}

TEST(PublishedRows, ShapesFollowFromTheFamilyOfTheModel) {
  auto parameters = [](const Changes &changes) { return caseWith(changes).problem.parameters; };
  Changes llama = {{"model", "LLaMA-7B"}, {"layers", "32"}, {"hidden", "4096"}, {"heads", "32"}, {"vocab", "32000"}};
  llama["ffn"] = "11008";
  double stated = parameters(llama);
  llama["ffn"] = "";
  EXPECT_EQ(parameters(llama), stated);
  EXPECT_EQ(caseWith(llama).assumed, std::vector<std::string>{"ffn of two thirds of 4 hidden"});
  EXPECT_FALSE(caseWith({{"model", "Nemotron-8B"}}).problem.tiedEmbedding);
  EXPECT_TRUE(caseWith({}).problem.tiedEmbedding);
  EXPECT_TRUE(caseWith({}).assumed.empty());
}

TEST(PublishedRows, TimeFollowsFromTflopsAsTheSystemCountsThem) {
  Changes rate = {{"iter_time_s", ""}, {"tflops_per_gpu", "100"}, {"recompute", "full"}};
  PublishedCase model = caseWith(rate);
  EXPECT_NEAR(model.seconds, model.problem.modelFlops * 32 / 16 / 100e12, 1e-12);
  rate["gpu"] = "V100", rate["precision"] = "fp16"; // at that time, FLOPs included recomputation
  EXPECT_NEAR(caseWith(rate).seconds, model.seconds * 4 / 3, 1e-12);
  rate["gpu"] = "A100 (Jean Zay)"; // the source has changed its formula, so its TFLOPS are not used
  EXPECT_EQ(caseWith(rate).reason, "nothing measured");
}

TEST(PublishedSystems, FollowFromSourceMachineAndSharding) {
  auto name = [](const Changes &changes) { return systemOf(rowWith(changes)).system.name; };
  EXPECT_EQ(name({}), "megatron-core");
  EXPECT_EQ(name({{"source", "NVIDIA/NeMo README"}}), "megatron-core");
  EXPECT_EQ(name({{"gpu", "V100"}, {"precision", "fp16"}}), "megatron-2022");
  EXPECT_EQ(name({{"gpu", "A100"}, {"precision", "fp16"}}), "megatron-2022");
  EXPECT_EQ(name({{"gpu", "A100"}, {"precision", "bf16"}}), "megatron-core");
  EXPECT_EQ(name({{"model", "MT-NLG 530B"}, {"gpu", "A100"}}), "megatron-2022");
  EXPECT_EQ(name({{"gpu", "Ascend 910B"}, {"precision", "fp16"}}), "megatron-core");
  EXPECT_EQ(name({{"zero", "FSDP"}}), "fsdp");
  EXPECT_EQ(name({{"zero", "3"}}), "deepspeed");
  EXPECT_EQ(name({{"source", "pytorch/torchtitan docs"}}), "torchtitan");
  EXPECT_EQ(systemOf(rowWith({{"source", "NVIDIA/NeMo README"}})).system.gradientBytes, 2);
  EXPECT_EQ(systemOf(rowWith({})).system.gradientBytes, 4);
  PublishedSystem early = systemOf(rowWith({{"source", "torchtitan 2024"}, {"notes", "compile"}}));
  PublishedSystem late = systemOf(rowWith({{"source", "torchtitan 2025"}, {"notes", "compile"}}));
  EXPECT_GT(early.system.lossBytes, late.system.lossBytes);
  EXPECT_EQ(early.system.cachedLossBytes, 2);
  EXPECT_EQ(late.system.cachedLossBytes, 0);
  EXPECT_FALSE(late.system.keepsLastProduct);
  EXPECT_TRUE(systemOf(rowWith({{"source", "torchtitan 2024"}})).system.keepsLastProduct);
}

// Under PyTorch, attention on Hopper reaches a smaller share of the peak, as the runs of llm-foundry show.
TEST(PublishedMachine, PyTorchHasItsOwnEfficiencies) {
  Machine other = publishedMachine("H200", "bf16", 8),
          torch = publishedMachine("H200", "bf16", 8, /*underPyTorch=*/true);
  EXPECT_LT(torch.attentionEfficiency, other.attentionEfficiency);
  EXPECT_EQ(torch.memoryBytes, other.memoryBytes);
  EXPECT_EQ(publishedMachine("H100-96GB", "bf16", 8, true).matmulEfficiency,
            publishedMachine("H100-96GB", "bf16", 8).matmulEfficiency);
}
