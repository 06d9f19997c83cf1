#include "compiler/import/megatron/megatron_flags.h"

#include "compiler/import/megatron/unbuilt_flags.h"

#include <iterator>
#include <map>

namespace espalier {

namespace {

/// Flags that import-args maps.
constexpr const char *mappedFlags[] = {
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--group-query-attention",
    "--num-query-groups",
    "--num-key-value-heads",
    "--seq-length",
    "--max-position-embeddings",
    "--vocab-size",
    "--tokenizer-type",
    "--swiglu",
    "--normalization",
    "--norm-epsilon",
    "--layernorm-epsilon",
    "--position-embedding-type",
    "--no-position-embedding",
    "--use-rotary-position-embeddings",
    "--rotary-base",
    "--untie-embeddings-and-output-weights",
    "--disable-bias-linear",
    "--init-method-std",
    "--hidden-dropout",
    "--attention-dropout",
    "--fp16",
    "--bf16",
    "--finetune",
    "--skip-train",
    "--no-load-optim",
    "--loss-scale",
    "--initial-loss-scale",
    "--mock-data",
    "--loss-scale-window",
    "--hysteresis",
    "--eod-mask-loss",
    "--reset-position-ids",
    "--reset-attention-mask",
    "--seed",
    "--micro-batch-size",
    "--global-batch-size",
    "--lr",
    "--min-lr",
    "--lr-decay-style",
    "--lr-decay-iters",
    "--lr-decay-samples",
    "--lr-wsd-decay-style",
    "--lr-wsd-decay-iters",
    "--lr-wsd-decay-samples",
    "--lr-warmup-fraction",
    "--lr-warmup-iters",
    "--lr-warmup-samples",
    "--weight-decay",
    "--adam-beta1",
    "--adam-beta2",
    "--adam-eps",
    "--optimizer",
    "--sgd-momentum",
    "--muon-momentum",
    "--muon-use-nesterov",
    "--muon-nesterov",
    "--muon-num-ns-steps",
    "--muon-scale-mode",
    "--muon-extra-scale-factor",
    "--muon-tp-mode",
    "--qk-clip",
    "--qk-clip-threshold",
    "--qk-clip-alpha",
    "--log-max-attention-logit",
    "--clip-grad",
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--sequence-parallel",
    "--use-distributed-optimizer",
    "--data-parallel-sharding-strategy",
    "--zero-stage",
    "--num-distributed-optimizer-instances",
    "--outer-dp-sharding-strategy",
    "--num-layers-per-virtual-pipeline-stage",
    "--num-virtual-stages-per-pipeline-rank",
    "--pipeline-model-parallel-layout",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--recompute-granularity",
    "--recompute-activations",
    "--checkpoint-activations",
    "--recompute-method",
    "--recompute-num-layers",
    "--activations-checkpoint-method",
    "--activations-checkpoint-num-layers",
    "--calculate-per-token-loss",
    "--grad-reduce-in-bf16",
    "--accumulate-allreduce-grads-in-fp32",
    "--cpu-offloading-num-layers",
    "--offload-optimizer-states",
    "--kv-channels",
    "--qk-layernorm",
    "--add-qkv-bias",
    "--rotary-percent",
    "--use-rope-scaling",
    "--rope-scaling-factor",
    "--num-experts",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--moe-ffn-hidden-size",
    "--moe-layer-freq",
    "--moe-router-topk",
    "--moe-router-pre-softmax",
    "--moe-router-load-balancing-type",
    "--moe-aux-loss-coeff",
    "--moe-z-loss-coeff",
    "--moe-router-enable-expert-bias",
    "--moe-router-bias-update-rate",
    "--moe-expert-capacity-factor",
    "--multi-latent-attention",
    "--q-lora-rank",
    "--kv-lora-rank",
    "--qk-head-dim",
    "--qk-pos-emb-head-dim",
    "--v-head-dim",
    "--rope-type",
    "--rotary-scaling-factor",
    "--mscale",
    "--mscale-all-dim",
};

struct IgnoredGroup {
  const char *reason;
  std::vector<const char *> flags;
};

// clang-format off
const std::vector<IgnoredGroup> &ignoredGroups() {
  static const std::vector<IgnoredGroup> groups = {
      {"data are named when a run starts: `espalier run --data PREFIX`",
       {"--data-path", "--train-data-path", "--valid-data-path", "--test-data-path", "--split", "--data-cache-path",
        "--num-workers", "--data-impl", "--data-args-path", "--mmap-warmup",
        "--no-create-attention-mask-in-dataloader", "--no-mmap-bin-files"}},
      {"data are tokenized beforehand: `espalier data tokenize`",
       {"--vocab-file", "--merge-file", "--tokenizer-model", "--tiktoken-pattern", "--vocab-extra-ids",
        "--make-vocab-size-divisible-by"}},
      {"say `espalier run --steps N`",
       {"--train-iters", "--train-samples", "--exit-interval", "--exit-duration-in-mins"}},
      {"say `espalier run --checkpoint DIR --save-every N`, and --resume",
       {"--save", "--load", "--save-interval", "--no-save-optim", "--no-save-rng", "--no-load-rng",
       "--use-checkpoint-args",
        "--use-dist-ckpt", "--ckpt-format", "--async-save", "--use-checkpoint-opt_param-scheduler",
        "--override-opt_param-scheduler", "--auto-detect-ckpt-format", "--dist-ckpt-format",
        "--non-persistent-save-interval", "--dist-ckpt-strictness", "--use-persistent-ckpt-worker",
        "--ckpt-fully-parallel-save", "--ckpt-fully-parallel-load", "--no-ckpt-fully-parallel-save",
        "--ckpt-assume-constant-structure"}},
      {"say `espalier run --keep N`", {"--save-retain-interval"}},
      {"say `espalier run --eval-every N --eval-batches N`", {"--eval-interval", "--eval-iters"}},
      {"say `espalier run --metrics FILE`",
       {"--log-interval",
        "--tensorboard-dir",
        "--tensorboard-queue-size",
        "--log-throughput",
        "--timing-log-level",
        "--log-timers-to-tensorboard",
        "--log-params-norm",
        "--log-num-zeros-in-grad",
        "--log-progress",
        "--log-validation-ppl-to-tensorboard",
        "--log-memory-to-tensorboard",
        "--log-batch-size-to-tensorboard",
        "--log-world-size-to-tensorboard",
        "--wandb-project",
        "--wandb-exp-name",
        "--wandb-save-dir",
        "--wandb-entity",
        "--logging-level",
        "--timing-log-option",
        "--log-straggler",
        "--tensorboard-log-interval",
        "--moe-per-layer-logging"}},
      {"DeepSpeed's file is not read: flags say the batch, --zero-stage how much is sharded, others what is repeated",
       {"--deepspeed", "--deepspeed_config", "--deepspeed-activation-checkpointing"}},
      {"one stage is the default", {"--no-pipeline-parallel"}},
      {"attention never stores its scores and kernels are always fused",
       {"--attention-backend", "--use-flash-attn", "--transformer-impl", "--use-mcore-models", "--use-legacy-models",
        "--no-masked-softmax-fusion", "--no-bias-gelu-fusion", "--no-bias-swiglu-fusion", "--no-bias-dropout-fusion",
        "--no-rope-fusion", "--no-gradient-accumulation-fusion", "--no-persist-layer-norm",
        "--cross-entropy-loss-fusion", "--attention-softmax-in-fp32", "--apply-query-key-layer-scaling",
        "--no-query-key-layer-scaling", "--bias-gelu-fusion",
        "--fp16-lm-cross-entropy", "--use-fused-rmsnorm", "--use-fused-swiglu", "--use-fused-rotary-pos-emb",
        "--use-fused-softmax", "--use-fused-ring-attention-update", "--use-fused-moe-token-permute-and-unpermute",
        "--use-rotary-embedding-fusion", "--use-fusion-attn-v2"}},
      {"the plan orders communication and overlaps it with compute where it can",
       {"--overlap-grad-reduce", "--overlap-param-gather", "--overlap-p2p-communication",
        "--no-overlap-p2p-communication", "--tp-comm-overlap", "--no-async-tensor-model-parallel-allreduce",
        "--no-scatter-gather-tensors-in-pipeline", "--delay-grad-reduce", "--ddp-bucket-size", "--align-grad-reduce",
        "--overlap-param-gather-with-optimizer-step", "--no-contiguous-buffers-in-local-ddp", "--tp-comm-bulk-dgrad",
        "--disable-tp-comm-overlap-ag", "--use-mc2", "--use-ascend-mc2", "--use-nccl-ub", "--fsdp-double-buffer",
        "--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"}},
      {"the launcher and the devices of the cluster decide",
       {"--distributed-backend", "--distributed-timeout-minutes", "--local-rank", "--local_rank",
        "--use-cpu-initialization", "--DDP-impl", "--lazy-mpu-init", "--manual-gc", "--manual-gc-interval",
        "--empty-unused-memory-level", "--no-check-for-nan-in-loss-and-grad",
        "--check-weight-hash-across-dp-replicas-interval", "--init-model-with-meta-device"}},
      {"every run of a plan gives the same bits", {"--deterministic-mode", "--use-deter-comp"}},
      {"--data-parallel-sharding-strategy decides what is sharded", {"--use-custom-fsdp", "--use-megatron-fsdp"}},
      {"f32 copies of 16-bit parameters are kept once, by the optimizer", {"--reuse-fp32-param"}},
      {"the tanh form of gelu is taken either way", {"--openai-gelu", "--onnx-safe"}},
      {"a decoder-only model has one stack of layers", {"--encoder-num-layers", "--encoder-seq-length"}},
      {"tokens go to experts and back by all-to-all on every back end",
       {"--moe-token-dispatcher-type", "--moe-enable-deepep", "--moe-deepep-num-sms"}},
      {"the products of a rank's experts are one call, and moving rows is one, too",
       {"--moe-grouped-gemm", "--moe-use-legacy-grouped-gemm", "--moe-permute-fusion", "--moe-router-fusion"}},
      {"experts are scored and weighed in f32", {"--moe-router-dtype"}},
      {"Newton-Schulz products are in f32", {"--muon-fp32-matmul-prec"}},
      {"q, k and v are separate matrices", {"--muon-split-qkv"}},
      {"an expert has capacity for each sample: first choices take it before second ones, tokens in order",
       {"--moe-token-drop-policy", "--moe-pad-expert-input-to-capacity", "--moe-router-padding-for-fp8"}},
      {"has an effect only together with a flag that is refused",
       {"--fp8-recipe", "--fp8-margin", "--fp8-interval", "--fp8-amax-history-len",
        "--fp8-amax-compute-algo", "--fp8-param-gather",
        "--moe-shared-expert-overlap",
        "--moe-upcycling-granularity"}},
      {"profiling a run is not built", {"--profile", "--profile-step-start", "--profile-step-end", "--profile-ranks"}},
  };
  return groups;
}
// clang-format on

} // namespace

const char *ignoredReason(const std::string &flag) {
  static const std::map<std::string, const char *> reasons = [] {
    std::map<std::string, const char *> all;
    for (const IgnoredGroup &group : ignoredGroups())
      for (const char *name : group.flags)
        all[name] = group.reason;
    return all;
  }();
  auto found = reasons.find(flag);
  return found == reasons.end() ? nullptr : found->second;
}

std::vector<std::string> knownFlags() {
  std::vector<std::string> names(std::begin(mappedFlags), std::end(mappedFlags));
  for (const IgnoredGroup &group : ignoredGroups())
    names.insert(names.end(), group.flags.begin(), group.flags.end());
  for (const std::string &name : unbuiltFlags())
    names.push_back(name);
  return names;
}

} // namespace espalier
