#include "compiler/import/megatron/flag_table.h"

#include <cstdlib>
#include <map>
#include <sstream>

namespace espalier {

namespace {

struct FlagGroup {
  FlagUse use;
  const char *text;
  /// Names without dashes. A flag with values has their type behind `=`, a list `+` or `*` behind it, and a refused
  /// flag with a value of no effect that value behind `:`.
  const char *flags;
};

using enum FlagUse;

// clang-format off
constexpr FlagGroup groups[] = {
    {Written, "", "num-layers=i hidden-size=i ffn-hidden-size=i num-attention-heads=i group-query-attention "
     "num-query-groups=i kv-channels=i seq-length=i max-position-embeddings=i vocab-size=i tokenizer-type=s "
     "null-tokenizer-eod-id=i vocab-file=s swiglu normalization=s norm-epsilon=f apply-layernorm-1p "
     "position-embedding-type=s no-position-embedding use-rotary-position-embeddings rotary-base=i rotary-percent=f "
     "use-rope-scaling rope-scaling-factor=f rope-type=s untie-embeddings-and-output-weights disable-bias-linear "
     "add-qkv-bias qk-layernorm init-method-std=f hidden-dropout=f attention-dropout=f multi-latent-attention "
     "q-lora-rank=i kv-lora-rank=i qk-head-dim=i qk-pos-emb-head-dim=i v-head-dim=i rotary-scaling-factor=f mscale=f "
     "mscale-all-dim=f fp16 bf16 fp8-format=s fp8-hybrid fp8-e4m3 fp4-format=s "
     "attention-backend=s use-flash-attn transformer-impl=s use-legacy-models mtp-num-layers=i "
     "mtp-loss-scaling-factor=f hybrid-layer-pattern=s"},
    {Written, "", "num-experts=i moe-ffn-hidden-size=i moe-layer-freq=s moe-router-topk=i moe-router-pre-softmax "
     "moe-router-load-balancing-type=s+ moe-aux-loss-coeff=f+ moe-z-loss-coeff=f moe-router-enable-expert-bias "
     "moe-router-bias-update-rate=f moe-expert-capacity-factor=f expert-model-parallel-size=i "
     "expert-tensor-parallel-size=i moe-layer-recompute"},
    {Written, "", "micro-batch-size=i global-batch-size=i rampup-batch-size=i+ step-batch-size-schedule=s optimizer=s "
     "sgd-momentum=f muon-momentum=f muon-nesterov muon-num-ns-steps=i muon-scale-mode=s muon-extra-scale-factor=f "
     "muon-tp-mode=s qk-clip qk-clip-threshold=f qk-clip-alpha=f log-max-attention-logit lr-decay-style=s "
     "lr-decay-iters=i lr-decay-samples=i lr-wsd-decay-style=s lr-wsd-decay-iters=i lr-wsd-decay-samples=i "
     "lr-warmup-iters=i lr-warmup-samples=i clip-grad=f loss-scale=f initial-loss-scale=f loss-scale-window=f "
     "hysteresis=i calculate-per-token-loss grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32 seed=i"},
    {Written, "", "tensor-model-parallel-size=i pipeline-model-parallel-size=i context-parallel-size=i "
     "sequence-parallel use-distributed-optimizer data-parallel-sharding-strategy=s use-megatron-fsdp use-torch-fsdp2 "
     "zero-stage=i num-distributed-optimizer-instances=i outer-dp-sharding-strategy=s "
     "num-layers-per-virtual-pipeline-stage=i num-virtual-stages-per-pipeline-rank=i pipeline-model-parallel-layout=s "
     "decoder-first-pipeline-num-layers=i decoder-last-pipeline-num-layers=i account-for-embedding-in-pipeline-split "
     "account-for-loss-in-pipeline-split recompute-granularity=s recompute-activations checkpoint-activations "
     "recompute-method=s recompute-num-layers=i activations-checkpoint-method=s activations-checkpoint-num-layers=i "
     "cpu-offloading-num-layers=i offload-optimizer-states optimizer-cpu-offload"},
    {Written, "", "load=s finetune skip-train no-load-optim data-path=s* mock-data split=s eod-mask-loss "
     "reset-position-ids reset-attention-mask"},
    {Written, "lr_schedule.learning_rate", "lr=f"},
    {Written, "lr_schedule.lr_end", "min-lr=f"},
    {Written, "lr_schedule.warmup_lr_init", "lr-warmup-init=f"},
    {Written, "lr_schedule.warmup_ratio", "lr-warmup-fraction=f"},
    {Written, "lr_schedule.decoupled_lr", "decoupled-lr=f"},
    {Written, "lr_schedule.decoupled_min_lr", "decoupled-min-lr=f"},
    {Written, "optimizer.beta1", "adam-beta1=f"},
    {Written, "optimizer.beta2", "adam-beta2=f"},
    {Written, "optimizer.eps", "adam-eps=f"},
    {Written, "optimizer.weight_decay", "weight-decay=f"},
    {AtRun, "--steps N", "train-iters=i train-samples=i"},
    {AtRun, "--checkpoint DIR", "save=s"},
    {AtRun, "--save-every N", "save-interval=i"},
    {AtRun, "--eval-every N", "eval-interval=i"},
    {AtRun, "--eval-batches N", "eval-iters=i"},
    {AtRun, "--log-every N", "log-interval=i"},
    {AtRun, "--tensorboard DIR", "tensorboard-dir=s"},
    {AtRun, "--dataloader-type single|cyclic", "dataloader-type=s"},
    {Ignored, "give it at the run: `espalier run --load FOLDER`", "pretrained-checkpoint=s"},
    {Ignored, "a run ends after its last step; `espalier run --steps N`", "exit-interval=i exit-duration-in-mins=i"},
    {Ignored, "a run that gets SIGTERM or SIGINT saves and ends", "exit-signal=s exit-signal-handler*"},
    {Ignored, "use `espalier run --keep N`", "save-retain-interval=i"},
    {Ignored, "of evaluations: `espalier run --eval-every N --eval-batches N --eval-split NAME`",
     "eval-global-batch-size=i eval-micro-batch-size=i start-eval-at-iter=i full-validation multiple-validation-sets "
     "validation-set-names=s+ test-mode"},
    {Ignored, "data are named when a run starts: `espalier run --data PREFIX`", "train-data-path=s* valid-data-path=s* "
     "test-data-path=s* data-cache-path=s num-workers=i data-impl=s data-args-path=s per-split-data-args-path=s "
     "per-dataset-sequences-path=s mmap-warmup no-create-attention-mask-in-dataloader no-mmap-bin-files "
     "dataloader-fast-cache-load dataloader-defer-npy-index-mmap num-dataset-builder-threads=i "
     "object-storage-cache-path=s mid-level-dataset-surplus=f enable-msc disable-msc"},
    {Ignored, "data are tokenized beforehand: `espalier data tokenize`", "merge-file=s tokenizer-model=s "
     "vocab-extra-ids=i make-vocab-size-divisible-by=i padded-vocab-size=i no-pad-vocab-size disable-pad-vocab-size "
     "tokenizer-metadata=s tokenizer-special-tokens=s+ tokenizer-sentencepiece-legacy trust-remote-code "
     "null-tokenizer-pad-id=i chat-template=s use-gigatoken tiktoken-* no-tokenizer-* disable-tokenizer-* "
     "tokenizer-hf-*"},
    {Ignored, "samples are packed and have no padding", "allow-ambiguous-pad-tokens"},
    {Ignored, "use `espalier run --metrics FILE`", "tensorboard-queue-size=i tensorboard-log-interval=i "
     "logging-level=i moe-per-layer-logging no-barrier-with-level-1-timing no-one-logger config-logger-dir=s "
     "dump-param-to-param-group-map=s run-workload-inspector-server save-params-interval=i save-activations-interval=i "
     "save-tokens-per-expert-interval=i save-wgrads-interval=i save-dgrads-interval=i log-* timing-log-* no-log-* "
     "disable-log-* wandb-* otel-* one-logger-* app-tag-* moe-routing-trace-*"},
    {Ignored, "use `espalier run --trace FILE`", "profile use-pytorch-profiler memory-snapshot-path=s nvtx-ranges "
     "profile-* pytorch-profiler-* record-*"},
    {Ignored, "use `espalier run --compare-every N`", "disable-straggler-on-startup gpu-sniff-test-interval=i "
     "straggler-*"},
    {Refused, "a run starts from the newest checkpoint; give `espalier run --load` the folder of another step",
     "ckpt-step=i override-ckpt-iteration=i"},
    {Ignored, "checkpoints have a format of their own; `espalier convert` reads and writes those of Megatron",
     "no-save-optim no-save-rng no-load-rng use-checkpoint-args use-mp-args-from-checkpoint-args use-dist-ckpt "
     "auto-detect-ckpt-format use-persistent-ckpt-worker load-main-params-from-ckpt "
     "no-use-tokenizer-model-from-checkpoint-args disable-use-tokenizer-model-from-checkpoint-args "
     "no-strict-fsdp-dtensor-load disable-strict-fsdp-dtensor-load distrib-optim-fully-reshardable-mem-efficient "
     "no-save-tokenizer-assets disable-save-tokenizer-assets replication verify-integrity ckpt-* no-ckpt-* "
     "disable-ckpt-* dist-ckpt-* async-* use-checkpoint-opt* override-opt* non-persistent-* replication-*"},
    {Ignored, "a run without its checkpoint is an error", "exit-on-missing-checkpoint"},
    {Ignored, "DeepSpeed's file is not read: flags say the batch, --zero-stage what is sharded, others the recompute",
     "deepspeed deepspeed_config=s deepspeed-activation-checkpointing"},
    {Ignored, "kernels are always fused", "flash-attention-version=i use-mcore-models "
     "no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion "
     "no-gradient-accumulation-fusion no-persist-layer-norm cross-entropy-loss-fusion cross-entropy-fusion-impl=s "
     "attention-softmax-in-fp32 apply-query-key-layer-scaling no-query-key-layer-scaling bias-gelu-fusion "
     "export-force-local-attention fp16-lm-cross-entropy use-rotary-embedding-fusion use-fusion-attn-v2 "
     "fused-residual-rmsnorm use-transformer-engine-op-fuser use-te-activation-func mla-down-proj-fusion "
     "disable-jit-fuser muon-use-syrk no-clone-scatter-output-in-embedding disable-clone-scatter-output-in-embedding "
     "disable-bf16-reduced-precision-matmul use-grouped-gemm-for-dense-mlp use-fused-*"},
    {Ignored, "kernels are launched without CUDA graphs", "enable-cuda-graph external-cuda-graph optimizer-cuda-graph "
     "delay-offload-until-cuda-graph cuda-graph-*"},
    {Ignored, "of inference, which a training does not have", "flash-decode enable-chunked-prefill "
     "num-speculative-tokens=i decode-only-cuda-graphs max-tokens-to-oom=i nccl-all-reduce-for-prefill "
     "mlp-chunks-for-prefill=i use-legacy-static-engine use-same-sampling-seed-across-dp-ranks cache-mla-latents "
     "symmetric-ar-type=s output-bert-embeddings bert-embedder-type=s moe-pad-experts-for-cuda-graph-inference "
     "inference-* no-inference-* mamba-inference-*"},
    {Ignored, "every run of a plan gives the same bits", "deterministic-mode use-deter-comp batch-invariant-*"},
    {Ignored, "dropout has a random stream of its own for each tensor", "te-rng-tracker"},
    {Ignored, "a step is not computed a second time, and no faults are injected; a failed rank ends the run",
     "rerun-mode=s check-for-spiky-loss check-for-large-grads result-rejected-tracker-filename=s enable-ft-package "
     "calc-ft-timeouts ft-num-warmup-iters=i error-injection-* fault-injector-* inprocess-* adlr-autoresume*"},
    {Ignored, "the plan orders communication and overlaps it with compute where it can",
     "no-overlap-p2p-communication no-async-tensor-model-parallel-allreduce no-scatter-gather-tensors-in-pipeline "
     "delay-grad-reduce delay-wgrad-compute ddp-num-buckets=i ddp-bucket-size=i ddp-pad-buckets-for-high-nccl-busbw "
     "ddp-average-in-collective align-grad-reduce no-contiguous-buffers-in-local-ddp use-mc2 use-ascend-mc2 "
     "use-nccl-ub fsdp-double-buffer fsdp-manual-registration megatron-fsdp-enable-fine-grained-param-gather "
     "megatron-fsdp-max-pool-double-buffer megatron-fsdp-version=i create-all-gather-group "
     "disable-symmetric-registration gtp-remat-nccl-ub gtp-expert-remat-nccl-ub suggested-communication-unit-size=i "
     "keep-fp8-transpose-cache no-gradient-reduce-div-fusion no-use-layer-wise-param-layout "
     "torch-fsdp2-no-reshard-after-forward ep-overlap-early-attn-memory-release defer-embedding-wgrad-compute "
     "wgrad-deferral-limit=i microbatch-group-size-per-virtual-pipeline-stage=i use-ring-exchange-p2p cp-comm-type=s+ "
     "hierarchical-context-parallel-sizes=i+ disable-align-grad-reduce fsdp-db-use-persist-buf-on-alloc-fail "
     "high-priority-a2a-comm-stream high-priority-stream-groups=s+ no-align-grad-reduce no-align-param-gather "
     "overlap-cpu-optimizer-d2h-h2d overlap-dispatch-backward-with-experts-wgrad overlap-grad-reduce "
     "overlap-moe-expert-parallel-comm overlap-p2p-communication overlap-p2p-communication-warmup-flush "
     "overlap-param-gather overlap-param-gather-with-optimizer-step tp-comm-* no-tp-comm-* disable-tp-comm-*"},
    {Ignored, "the launcher and the devices of the cluster decide", "distributed-backend=s local-rank=i local_rank=i "
     "use-cpu-initialization DDP-impl=s lazy-mpu-init manual-gc manual-gc-interval=i no-manual-gc-eval "
     "disable-manual-gc-eval empty-unused-memory-level=i no-check-for-nan-in-loss-and-grad "
     "check-weight-hash-across-dp-replicas-interval=i init-model-with-meta-device train-sync-interval=i "
     "nccl-communicator-config-path=s use-sharp sharp-enabled-group=s disable-gloo-process-groups "
     "pipeline-model-parallel-comm-backend=s use-tp-pp-dp-mapping fake-process-group distributed-timeout-* "
     "flight-recorder-* no-flight-recorder-* disable-flight-recorder-*"},
    {Ignored, "weights that no checkpoint gives have their initial values", "no-initialization"},
    {Ignored, "a batch that the replicas do not divide is an error", "decrease-batch-size-if-needed"},
    {Ignored, "one stage is the default", "no-pipeline-parallel"},
    {Ignored, "--data-parallel-sharding-strategy decides what is sharded", "use-custom-fsdp"},
    {Ignored, "f32 copies of 16-bit parameters are kept once, by the optimizer", "reuse-fp32-param "
     "use-precision-aware-optimizer"},
    {Ignored, "planner.pin.offload_optimizer and planner.pin.offload_activations say what leaves the device",
     "use-torch-optimizer-for-cpu-offload cpu-offloading-retain-pinned-cpu-buffers fine-grained-activation-offloading "
     "offload-modules=s+ min-offloaded-tensor-size=i delta-offload-bytes-across-pp-ranks=i "
     "activation-offload-fraction=f no-pin-cpu-* fine-grained-offloading-* moe-paged-stash*"},
    {Ignored, "the plan says what is kept for the backward pass: --recompute-granularity",
     "distribute-saved-activations recompute-modules=s+ mlp-chunks-for-training=i mhc-recompute-layer-num=i "
     "reuse-grad-buf-for-mxfp8-param-ag"},
    {Ignored, "the tanh form of gelu is taken either way", "openai-gelu onnx-safe=s"},
    {Ignored, "switches nothing on alone", "enable-experimental"},
    {Ignored, "tokens go to experts and back by all-to-all on every back end", "moe-token-dispatcher-type=s "
     "moe-enable-deepep moe-deepep-num-sms=i moe-permute-fusion-into-hybridep moe-ncclep-zero-copy "
     "moe-flex-dispatcher-* moe-hybridep-*"},
    {Ignored, "the products of a rank's experts are one call, and moving rows is one, too", "moe-grouped-gemm "
     "moe-use-legacy-grouped-gemm moe-permute-fusion moe-router-fusion moe-use-grouped-tensor "
     "use-grouped-gemm-for-shared-expert moe-mlp-glu-interleave-size=i moe-shared-expert-glu-interleave-size=i "
     "moe-single-grouped-*"},
    {Ignored, "experts are scored and weighed in f32", "moe-router-dtype=s"},
    {Ignored, "Newton-Schulz products are in f32", "muon-fp32-matmul-prec=s"},
    {Ignored, "q, k and v are separate matrices", "muon-split-qkv"},
    {Ignored, "an expert has capacity for each sample: first choices take it before second ones, tokens in order",
     "moe-token-drop-policy=s moe-pad-expert-input-to-capacity moe-router-padding-for-fp8 "
     "moe-router-padding-for-quantization"},
    {Ignored, "the plan's prices depend on the format of products alone; parameters are priced and gathered in 16 bits",
     "fp8-recipe=s fp8-margin=i fp8-interval=i fp8-amax-history-len=i fp8-amax-compute-algo=s fp8-param-gather "
     "fp8-param fp4-recipe=s fp4-param-gather fp4-param first-last-layers-bf16 num-layers-at-start-in-bf16=i "
     "num-layers-at-end-in-bf16=i"},
    {Refused, "AdamW updates what is no matrix of a layer", "muon-scalar-optimizer=s:adam"},
    {Refused, "Newton-Schulz steps have the quintic coefficients", "muon-coefficient-type=s:quintic"},
    {Refused, "q, k and v are separate matrices", "muon-no-split-qkv"},
    {Refused, "the weight decay is the same in all steps, --weight-decay", "start-weight-decay=f end-weight-decay=f "
     "weight-decay-incr-style=s:constant"},
    {Refused, "matrices decay, and biases and norms do not", "apply-wd-to-qk-layernorm no-weight-decay-cond-type=s"},
    {Refused, "the lowest loss scale is 1", "min-loss-scale=f:1"},
    {Refused, "all products of a layer have one format", "no-fp8-wgrad disable-fp8-wgrad fp8-output-proj "
     "fp8-quantizer-factory=s fp4-quantizer-factory=s te-precision-config-file=s kitchen-config-file=s "
     "kitchen-recipe-number=i use-kitchen-attention"},
    {Refused, "parameters, gradients and optimizer state have the types of --bf16, --fp16 and --grad-reduce-in-bf16",
     "main-grads-dtype=s:fp32 main-params-dtype=s:fp32 exp-avg-dtype=s:fp32 exp-avg-sq-dtype=s:fp32 "
     "megatron-fsdp-main-params-dtype=s:fp32 megatron-fsdp-main-grads-dtype=s:auto "
     "megatron-fsdp-grad-comm-dtype=s:auto ddp-reduce-scatter-with-fp32-accumulation "
     "gtp-remat-reduce-scatter-with-fp32-accumulation ddp-param-name-patterns-for-fp32-local-accumulation=s+ "
     "output-logit-dtype=s fp32-residual-connection moe-dispatch-fwd-dtype=s:bf16 moe-combine-bwd-dtype=s:bf16"},
    {Refused, "all samples are trained, in the order of the data", "sample-rate=f:1 iterations-to-skip=i+ "
     "phase-transition-iterations=s"},
    {Refused, "documents are kept apart by --reset-attention-mask", "dataloader-inter-document-masking"},
    {Refused, "samples are not rearranged to fill the middle", "fim-data"},
    {Refused, "conversations are trained by `espalier data tokenize` and `espalier run --data`", "sft"},
    {Refused, "training by rewards is not built", "perform-rl-step"},
    {Refused, "knowledge distillation is not built", "logits-load-dir=s logits-save-dir=s"},
    {Refused, "all parameters are trained; adapters freeze the others: model_config.pet_config", "freeze-all-layers"},
    {Refused, "replicas start from equal weights", "data-parallel-random-init"},
    {Refused, "weights are drawn from one normal distribution, --init-method-std", "embedding-init-method-std=f "
     "init-method-xavier-uniform"},
    {Refused, "learning rates and weights are not rescaled by width", "use-mup"},
    {Refused, "the state of the optimizer is offloaded as a whole or not", "optimizer-offload-fraction=f:1"},
    {Refused, "tensor ranks split weights, and ZeRO shards them", "tensor-parallel-num-weight-shards=i "
     "expert-tensor-parallel-num-weight-shards=i enable-full-sharding-in-hsdp"},
    {Refused, "every sample has all context ranks", "hybrid-context-parallel"},
    {Refused, "attention sees all earlier tokens", "window-size=s window-attn-skip-freq=s"},
    {Refused, "attention is a softmax of scores over all earlier tokens", "softmax-type=s:vanilla "
     "experimental-attention-variant=s attention-output-gate"},
    {Refused, "the block has its norms before attention and MLP", "apply-residual-connection-post-layernorm "
     "enable-mhc-connections"},
    {Refused, "MLPs have gelu, or silu with a gate", "squared-relu quick-geglu glu-linear-offset=f:0 "
     "activation-func-clamp-value=f"},
    {Refused, "q and k have RMS norms with weights, --qk-layernorm", "qk-l2-norm"},
    {Refused, "rotary positions turn halves of a head by one table of angles, in every layer", "rotary-interleaved "
     "no-rope-freq=s rotary-seq-len-interpolation-factor=i mrope-section=i+ no-yarn-correction-range-round-to-int "
     "yarn-beta-fast=f yarn-beta-slow=f yarn-correction-range-round-to-int yarn-original-max-position-embeddings=i"},
    {Refused, "the kinds of layers are those of --hybrid-layer-pattern", "hybrid-attention-ratio=f:0 "
     "hybrid-mlp-ratio=f:0 linear-attention-freq=s heterogeneous-* mtp-hybrid-override-pattern=s"},
    {Refused, "states of recurrences are in f32", "mamba-training-ssm-states-dtype=s:fp32"},
    {Ignored, "has an effect only with --hybrid-layer-pattern", "is-hybrid-model mamba-num-heads=i mamba-head-dim=i "
     "mamba-num-groups=i mamba-state-dim=i"},
    {Refused, "the model is that of the flags", "spec=s+ yaml-cfg=s"},
    {Refused, "shared experts are built with --moe-router-enable-expert-bias",
     "moe-shared-expert-intermediate-size=i:0"},
    {Refused, "tokens go to the router without noise", "moe-input-jitter-eps=f:0"},
    {Refused, "sigmoids are built with --moe-router-enable-expert-bias", "moe-router-score-function=s:softmax"},
    {Refused, "scaled weights are built with --moe-router-enable-expert-bias", "moe-router-topk-scaling-factor=f:1"},
    {Refused, "groups are built with --moe-router-enable-expert-bias", "moe-router-num-groups=i:1 "
     "moe-router-group-topk=i:1"},
    {Refused, "tokens choose among all experts", "moe-router-topk-limited-devices=i"},
    {Refused, "the router's scores choose the experts", "moe-router-force-load-balancing moe-router-force-biased=f "
     "moe-router-quantile-balancing-ema=f:0 moe-enable-routing-replay"},
    {Refused, "experts are weighed behind their last product", "moe-apply-probs-on-input"},
    {Refused, "tp splits each expert, say --expert-tensor-parallel-size", "moe-extended-tp"},
    {Refused, "a dense checkpoint is not turned into experts", "moe-use-upcycling"},
    {Refused, "experts have the hidden size of the model, and shared ones no gate", "moe-latent-size=i "
     "moe-shared-expert-gate"},
    {Refused, "an expert has slots for each sample, --moe-expert-capacity-factor", "moe-expert-rank-capacity-factor=f"},
    {Refused, "BERT, T5 and retrieval are not built", "bert-no-binary-head decoder-num-layers=i decoder-seq-length=i "
     "mask-prob=f:0.15 short-seq-prob=f:0.1 bert-load=s titles-data-path=s query-in-block-prob=f:0.1 use-one-sent-docs "
     "evidence-data-path=s block-data-path=s embedding-path=s ict-* biencoder-* retriever-* indexer-*"},
    {Refused, "models of images are not built", "num-classes=i:1000 img-h=i:224 img-w=i:224 num-channels=i:3 "
     "patch-dim=i:16 classes-fraction=f:1 data-per-class-fraction=f:1 no-data-sharding head-lr-mult=f:1 "
     "swin-backbone-type=s:tiny mask-type=s:random mask-factor=f:1 iter-per-epoch=i:1250 vision-* dino-*"},
    {Ignored, "has an effect only together with a flag or a value that is refused", "moe-shared-expert-overlap "
     "moe-upcycling-granularity=i refit-method=s gtp-remat-opt-in-modules=s+ max-seqlen-per-dp-cp-rank=i "
     "kitchen-attention-backend=s disable-mamba-mem-eff-path mtp-* dsa-* no-dsa-* disable-dsa-* linear-* mup-* "
     "relative-attention-* mamba-* gdp-* lion-* fim-* sft-* rl-* no-rl-* grpo-* langrl-* mhc-* logits-*"},
};
// clang-format on

/// Names of other versions, and the names of the same flags in the table.
const std::map<std::string, std::string> otherNames = {
    {"--encoder-num-layers", "--num-layers"},
    {"--encoder-seq-length", "--seq-length"},
    {"--layernorm-epsilon", "--norm-epsilon"},
    {"--num-key-value-heads", "--num-query-groups"},
    {"--muon-use-nesterov", "--muon-nesterov"},
    {"--no-muon-split-qkv", "--muon-no-split-qkv"},
    {"--batch-size", "--micro-batch-size"},
    {"--model-parallel-size", "--tensor-model-parallel-size"},
    {"--warmup", "--lr-warmup-fraction"},
    {"--persistent-save-interval", "--save-interval"},
    {"--hybrid-override-pattern", "--hybrid-layer-pattern"},
};

std::vector<FlagRow> readTable() {
  std::vector<FlagRow> rows;
  for (const FlagGroup &group : groups) {
    std::istringstream words(group.flags);
    for (std::string word; words >> word;) {
      size_t equals = word.find('='), colon = word.find(':');
      rows.push_back({"--" + word.substr(0, equals), group.use, group.text,
                      equals == std::string::npos ? '\0' : word[equals + 1],
                      colon == std::string::npos ? "" : word.substr(colon + 1)});
    }
  }
  return rows;
}

} // namespace

bool FlagRow::isOff(const std::string &value) const {
  if (neutral.empty() || value == neutral)
    return !neutral.empty();
  char *end = nullptr;
  double number = std::strtod(value.c_str(), &end);
  return type != 's' && !value.empty() && *end == '\0' && number == std::strtod(neutral.c_str(), nullptr);
}

const std::vector<FlagRow> &flagTable() {
  static const std::vector<FlagRow> rows = readTable();
  return rows;
}

const FlagRow *findFlag(const std::string &name) {
  const FlagRow *family = nullptr;
  for (const FlagRow &row : flagTable())
    if (row.name == name)
      return &row;
    else if (row.name.ends_with('*') && name.starts_with(row.name.substr(0, row.name.size() - 1)))
      family = &row;
  return family;
}

std::string currentFlag(const std::string &name) {
  auto found = otherNames.find(name);
  return found == otherNames.end() ? name : found->second;
}

} // namespace espalier
