// Memory of other software, compared with public reports of runs that fitted or ran out of memory.
#include "compiler/profile/profile_model.h"
#include "planner/price.h"
#include "test/compiler/profile/sample_plans.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

/// A reported run: the model as `--set` values, the devices and the plan.
struct Report {
  std::string base;
  std::vector<std::string> sizes;
  std::string cluster, system, pin;
  int64_t globalBatch;
};

planner::Prediction price(const Report &report, std::vector<std::string> more = {}) {
  ImportOptions options;
  options.cluster = report.cluster, options.system = report.system;
  options.pins = {{"--pin", report.pin}};
  options.freeAtBatch = report.globalBatch;
  for (const std::string &size : report.sizes)
    options.sets.push_back(sizes + size);
  for (const char *plain :
       {"parallel.parallel_mode=2", "use_parallel=True", "context.max_device_memory=null", "planner.pin={}"})
    options.sets.emplace_back(plain);
  options.sets.insert(options.sets.end(), more.begin(), more.end());
  ImportedRun imported = importRun(ESPALIER_SOURCE_DIR "/configs/" + report.base + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  mlir::MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, imported.config, "cpu", /*onlyPinned=*/true);
  if (!problem) {
    ADD_FAILURE() << "no profile";
    return {};
  }
  return planner::pricePlan(*problem, pinnedPlan(imported.config)).prediction;
}

Report deepspeed(std::vector<std::string> shape, const std::string &cluster, int devices, int zero) {
  shape.insert(shape.end(), {"compute_dtype=float16", "param_init_type=float16"});
  return {"llama2_7b",
          shape,
          cluster,
          "deepspeed_zero",
          fmt::format("dp={},tp=1,pp=1,cp=1,ep=1,mbs=1,zero={},recompute=full", devices, zero),
          devices};
}

// LlamaFactory issues 1221, 8642 and 1158: torch's AdamW takes the square root of the second moment of the partition.
TEST(ForeignMemory, AnUnfusedUpdateOfAFlatPartitionNeedsTemporaries) {
  const std::vector<std::string> b7 = {"seq_length=512"},
                                 b13 = {"num_layers=40", "hidden_size=5120",        "num_heads=40",
                                        "n_kv_heads=40", "intermediate_size=13824", "seq_length=1536"},
                                 b32 = {"num_layers=64", "hidden_size=5120",        "num_heads=64",
                                        "n_kv_heads=8",  "intermediate_size=25600", "vocab_size=151936",
                                        "head_dim=128",  "seq_length=1024"};
  const std::vector<std::string> adamw = {"optimizer={type: AdamW, master_weights: True}"};
  EXPECT_FALSE(price(deepspeed(b7, "v100_32g:1x8", 8, 2), adamw).fits());
  EXPECT_FALSE(price(deepspeed(b32, "h200:1x8", 8, 2), adamw).fits());
  EXPECT_FALSE(price(deepspeed(b13, "a100_80g_selene:1x4", 4, 2), adamw).fits());
  EXPECT_TRUE(price(deepspeed(b13, "a100_80g_selene:1x4", 4, 3), adamw).fits());
  EXPECT_TRUE(price(deepspeed(b13, "a100_80g_selene:1x8", 8, 2), adamw).fits());
}

// Megatron-LM issue 525: GPT-2 774M on one V100 ran out of memory at 28.8 GiB and 0.8 more.
TEST(ForeignMemory, DevicesWithoutAFusedAttentionStoreItsScores) {
  auto gpt2 = [](const std::string &cluster, const std::string &system, int samples) {
    return Report{"gpt3_175b",
                  {"num_layers=36", "hidden_size=1280", "num_heads=20", "seq_length=1024", "vocab_size=50304",
                   "compute_dtype=float16", "param_init_type=float16"},
                  cluster,
                  system,
                  fmt::format("dp=1,tp=1,pp=1,cp=1,ep=1,mbs={},zero=0,recompute=none", samples),
                  samples};
  };
  const std::vector<std::string> dropout = {"optimizer={type: AdamW, master_weights: True}",
                                            sizes + "attention_dropout_rate=0.1", sizes + "hidden_dropout_rate=0.1"};
  EXPECT_FALSE(price(gpt2("v100_32g:1x1", "megatron_core", 4), dropout).fits());
  EXPECT_FALSE(price(gpt2("v100_32g:1x1", "megatron_2022", 4), dropout).fits());
  EXPECT_TRUE(price(gpt2("v100_32g:1x1", "megatron_core", 1), dropout).fits());
  // On a device with such kernels, the run chooses.
  const Report ampere = gpt2("a100_40g:1x1", "megatron_core", 4);
  std::vector<std::string> unfused = dropout, without = dropout;
  unfused.push_back(sizes + "use_flash_attention=False");
  without.push_back(unfused.back());
  without.push_back(sizes + "attention_dropout_rate=0");
  double fused = price(ampere, dropout).peakBytes, stored = price(ampere, unfused).peakBytes,
         kept = price(ampere, without).peakBytes;
  constexpr double scores = 36.0 * 4 * 20 * 1024 * 1024;
  EXPECT_NEAR(stored - kept, 3 * scores, 0.1 * scores);
  EXPECT_NEAR(kept - fused, 2 * scores, 0.2 * scores);
  EXPECT_GT(price(ampere, unfused).stepSeconds, price(ampere, dropout).stepSeconds);
}

} // namespace
} // namespace espalier
