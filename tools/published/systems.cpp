// One function per family of systems. `familyOf` assigns a row to a family by keywords.
#include "tools/published/systems.h"

#include <algorithm>

namespace espalier::planner {

namespace {

enum class Family {
  MegatronDeepSpeed, ///< Jean Zay
  JeanZayZero,       ///< the same site's runs of ZeRO 3
  UnfusedMegatron,   ///< until 2022: scores are stored
  LlmFoundry,
  Torchtitan,
  Fsdp,      ///< any other that shards parameters with PyTorch
  DeepSpeed, ///< ZeRO 3
  Nemo,      ///< NeMo, Megatron-Bridge and their recipes
  MegatronCore
};

bool holdsOneOf(const std::string &text, std::initializer_list<const char *> parts) {
  return std::ranges::any_of(parts, [&](const char *part) { return text.find(part) != std::string::npos; });
}

// Whether a run stored its attention scores. Flash attention appeared in May 2022 and needs Turing. Runs on V100, in
// fp16 on A100, or known to be older are before it.
bool isBeforeFlashAttention(const PublishedRow &row, const std::string &source) {
  std::string gpu = lowerCase(row.text("gpu")), precision = lowerCase(row.text("precision"));
  std::string model = lowerCase(row.text("model"));
  return holdsOneOf(source, {"korthikanti", "narayanan", "alpa-projects", "calculon", "superscaler", "turing-nlg"}) ||
         holdsOneOf(model, {"mt-nlg", "neox", "opt-", "glm-130"}) || holdsOneOf(gpu, {"v100"}) ||
         (holdsOneOf(gpu, {"a100", "a800"}) && holdsOneOf(precision, {"fp16", "float16"}) &&
          !holdsOneOf(precision, {"bf16", "bfloat16"}));
}

Family familyOf(const PublishedRow &row) {
  std::string source = lowerCase(row.text("source")), notes = lowerCase(row.text("notes"));
  if (holdsOneOf(lowerCase(row.text("gpu")), {"jean zay"}))
    return holdsOneOf(lowerCase(row.text("zero")), {"deepspeed zero"}) ? Family::JeanZayZero
                                                                       : Family::MegatronDeepSpeed;
  if (holdsOneOf(source, {"llm-foundry"}))
    return Family::LlmFoundry;
  if (holdsOneOf(source, {"torchtitan"}))
    return Family::Torchtitan;
  if (holdsOneOf(source, {"megatron-bridge", "nemo", "dgxc-benchmarking"}) && !holdsOneOf(notes, {"paxml"}))
    return Family::Nemo;
  if (isBeforeFlashAttention(row, source))
    return Family::UnfusedMegatron;
  std::string sharding = lowerCase(row.text("zero")), said = source + notes + sharding;
  if (holdsOneOf(said, {"fsdp", "hsdp"}))
    return Family::Fsdp;
  if (holdsOneOf(sharding, {"3"}))
    return holdsOneOf(said, {"megatron"}) ? Family::MegatronCore : Family::DeepSpeed;
  return Family::MegatronCore;
}

PublishedSystem megatronDeepSpeed(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  std::string precision = lowerCase(row.text("precision"));
  system.name = "megatron-deepspeed";
  system.fusedAttention = false;
  system.scattersBoundary = true; // PipelineEngine sends partitioned activations
  result.fillsFirstStages = true; // partition_balanced
  // bf16: gradients in both types, and two more bytes as measured. fp16: one f32 copy of the gradients of the rank's
  // shard during the update.
  bool wide = holdsOneOf(precision, {"fp32 grad"}) || precision == "bf16";
  system.gradientBytes = wide ? 8 : 2;
  system.allocatedShare = 1.14;
  system.updateBytes = wide ? 0 : 4;
  const std::string &notes = row.text("notes");
  if (holdsOneOf(notes, {"\"BNB\""}) && !holdsOneOf(notes, {"same conf"}))
    system.optimizerBytes -= 6; // 8-bit moments
  system.reducedBytes = wide ? 4 : 2;
  system.accumulationBytes = wide ? 10 : 6; // reads both, writes one
  result.flops = PublishedFlops::Unknown;   // the formula differed before 2022-02-21
  return result;
}

// Returns details from the source page that the table omits (bigscience experiments/gpt2.md): a heading, and columns
// on offloading, by line of the page.
PublishedOffload offloadOnPage(const PublishedRow &row) {
  if (holdsOneOf(lowerCase(row.text("zero")), {"max model size"})) // "HF + Deepspeed Zero 3 + Full Offload"
    return {.optimizer = true, .parameters = true};
  const std::string &notes = row.text("notes");
  bool isPage = holdsOneOf(row.text("source"), {"experiments/gpt2.md@9e64edec2ad1"});
  PublishedOffload offload;
  offload.optimizer = isPage && holdsOneOf(notes, {"line 483;", "line 484;", "line 485;"});
  offload.parameters = isPage && holdsOneOf(notes, {"line 485;"});
  return offload;
}

// Megatron 1.1.5 or, if a row names neither tensor ranks nor replicas, the Hugging Face trainer. Both use DeepSpeed's
// ZeRO 3 in fp16. The scripts beside the page give the settings (gpt2-meg-ds-zero, gpt2-hf-ds). Megatron's runs keep
// layer inputs in host memory, split over tensor ranks, offloaded or not (`--partition-activations
// --checkpoint-in-cpu`). "full cpu offload" adds `offload_param` and `offload_optimizer`.
PublishedSystem jeanZayZero(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  system.name = "deepspeed-zero3";
  system.fusedAttention = false;
  system.gradientBytes = 2;
  system.updateBytes = 4;
  system.gatheredShare = 1.0 / 3; // parameters of one layer (`stage3_max_live_parameters`), gradients of one matrix
  result.impliedZero = 3;
  result.heads = 32;
  result.reservedGiB =
      2; // the usual value; the site's pipelines, which the larger value was fitted on, have more communicators
  result.flops = PublishedFlops::WithRecompute;
  bool isMegatron = !row.text("tp").empty() || !row.text("dp").empty();
  if (isMegatron) {
    system.slicesInputs = result.offload.activations = true;
    return result;
  }
  result.offload = offloadOnPage(row);
  result.hasDropout = true;
  system.elementwiseShare = 2; // unfused kernels
  return result;
}

// Megatron of 2020 to 2022 stored attention scores. In fp16 its gradients were 16-bit by default, accumulated by a
// separate kernel and copied to f32 for the update. Korthikanti's runs kept f32 gradients.
PublishedSystem unfusedMegatron(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  std::string source = lowerCase(row.text("source")), precision = lowerCase(row.text("precision"));
  system.name = "megatron-2022";
  system.fusedAttention = false;
  system.scattersBoundary = true;
  system.gradientPasses = 7; // unscale 2, norm 1, clip 2, update 1, clear 1
  system.hidesInputGradients = holdsOneOf(source, {"korthikanti", "calculon"});
  bool isWide = holdsOneOf(source, {"korthikanti", "calculon", "alpa-projects", "superscaler"}) ||
                holdsOneOf(precision, {"bf16", "bfloat16"});
  if (!isWide)
    system.gradientBytes = 2, system.updateBytes = 4, system.accumulationBytes = 6;
  result.hasDropout = true;
  result.showsAllocated = holdsOneOf(source, {"alpa-projects"}); // `get_max_memory_allocated`
  result.flops = PublishedFlops::WithRecompute;
  return result;
}

PublishedSystem llmFoundry(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  system.name = "fsdp";
  system.stopsRecomputeEarly = holdsOneOf(lowerCase(row.text("gpu")), {"h100"}); // its A100 runs used PyTorch 1.13
  system.elementwiseShare = 2;                                                   // unfused kernels
  bool pure = holdsOneOf(lowerCase(row.text("precision")), {"pure"});
  system.parameterBytes = pure ? 2 : 4, system.gradientBytes = pure ? 2 : 4, system.optimizerBytes = pure ? 4 : 8;
  return result;
}

PublishedSystem torchtitan(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  system.name = "torchtitan";
  system.stopsRecomputeEarly = true;
  bool isCompiled = holdsOneOf(row.text("notes"), {"compile"});
  system.elementwiseShare = isCompiled ? 1.2 : 2;
  system.parameterBytes = 4, system.gradientBytes = 4, system.optimizerBytes = 8;
  // Backward of the loss holds log-softmax, its gradient and that of the logits; split over tp also its exponent. The
  // 16-bit logits are already freed, but the table shows allocator memory, and their block is too small for f32.
  system.lossBytes = row.number("tp", 1) > 1 ? 16 : 12;
  system.cachedLossBytes = 2;
  // From 2025 the loss is compiled with the model, so that only 16-bit logits and their gradient remain.
  if (isCompiled && holdsOneOf(row.text("source"), {"2025", "2026"}))
    system.lossBytes = 4, system.cachedLossBytes = 0;
  system.keepsGatheredInputs = true;
  system.repeatsSecondProducts = true;
  system.keepsLastProduct = !isCompiled; // a compiled layer keeps what its backward reads
  result.isPyTorch = true;
  // Stages keep unsharded parameters after forward. They sum gradients in f32 before they reduce them, layer by layer
  // beside the last backward (`reshard_after_forward`, `unsharded_accumulated_grad`).
  if (row.number("pp", 1) > 1) {
    result.shardsPerStep = result.cutsBatchByStages = true;
    system.parameterBytes = 2, system.optimizerBytes = 12, system.hidesGradients = true;
  }
  return result;
}

// PyTorch FSDP with bf16 products: parameters, gradients and moments are sharded in f32.
PublishedSystem fsdp(const PublishedRow &row) {
  PublishedSystem result = llmFoundry(row);
  result.system.stopsRecomputeEarly = true; // from PyTorch 2.1
  result.isPyTorch = true;
  result.impliedZero = 3;
  return result;
}

// Keeps 16-bit parameters and gradients, copies those of its shard to f32 for the update, and runs unfused PyTorch
// kernels.
PublishedSystem deepSpeed() {
  PublishedSystem result;
  result.system.name = "deepspeed";
  result.system.gradientBytes = 2;
  result.system.updateBytes = 4;
  result.isPyTorch = true;
  result.system.elementwiseShare = 2;
  return result;
}

PublishedSystem megatronCore(const PublishedRow &row) {
  PublishedSystem result;
  System &system = result.system;
  std::string precision = lowerCase(row.text("precision"));
  system.name = "megatron-core";
  system.hidesGradients = system.hidesTensor = true;
  if (holdsOneOf(precision, {"fp8", "fp4"}))
    system.productInputBytes = 1; // kept in 8 bits
  result.impliesSequenceParallel = true;
  return result;
}

// Defaults of the launcher and the recipes: gradients are kept and reduced in 16 bits (`grad_sync_dtype: bf16`,
// `grad_reduce_in_fp32=False`), and transfers between chunks overlap with compute (`overlap_p2p_comm`).
PublishedSystem nemo(const PublishedRow &row) {
  PublishedSystem result = megatronCore(row);
  result.system.gradientBytes = 2;
  return result;
}

} // namespace

PublishedSystem systemOf(const PublishedRow &row) {
  switch (familyOf(row)) {
  case Family::MegatronDeepSpeed:
    return megatronDeepSpeed(row);
  case Family::JeanZayZero:
    return jeanZayZero(row);
  case Family::UnfusedMegatron:
    return unfusedMegatron(row);
  case Family::LlmFoundry:
    return llmFoundry(row);
  case Family::Torchtitan:
    return torchtitan(row);
  case Family::Fsdp:
    return fsdp(row);
  case Family::DeepSpeed:
    return deepSpeed();
  case Family::Nemo:
    return nemo(row);
  case Family::MegatronCore:
    break;
  }
  return megatronCore(row);
}

} // namespace espalier::planner
