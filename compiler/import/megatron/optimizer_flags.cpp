#include "compiler/import/megatron/flag_table.h"
#include "compiler/import/megatron/section_flags.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <map>

namespace espalier {

namespace {

/// Writes the optimizer and its schedule.
class OptimizerWriter : FlagWriter {
public:
  OptimizerWriter(GivenFlags &given, RunFileWriter &yaml, const ScriptDType &dtype, const ScriptSizes &sizes)
      : FlagWriter(given, yaml), dtype(dtype), sizes(sizes) {}

  void write(bool hasBase) {
    if (given.isGiven("--lr") || given.isGiven("--lr-decay-style"))
      writeSchedule();
    writeSteps();
    writeType(hasBase);
    for (const FlagRow &row : flagTable())
      if (row.use == FlagUse::Written && !row.text.empty())
        putNumber(row.text, row.name);
    if (dtype.isStated && dtype.name != "float32")
      put("optimizer.master_weights", "True");
    writeWrapper();
  }

private:
  void writeType(bool hasBase) {
    static const std::map<std::string, std::string> types = {
        {"adam", "AdamW"}, {"sgd", "SGD"}, {"muon", "Muon"}, {"dist_muon", "Muon"}};
    const char *flag = "--optimizer";
    std::string name = given.value(flag, "optimizer.type").value_or("adam");
    auto type = types.find(name);
    if (type == types.end())
      return given.error(flag, fmt::format("no optimizer '{}' here, there are adam, sgd, muon", name));
    if (!hasBase || given.isGiven(flag) || given.isGiven("--weight-decay") || given.isGiven("--adam-beta1"))
      put("optimizer.type", type->second, flag);
    writeMomentum("--sgd-momentum", "0.9", type->second == "SGD");
    writeMuon(type->second == "Muon");
    writeQkClip();
  }

  /// Megatron clips after the step of every optimizer.
  void writeQkClip() {
    const std::string threshold = "optimizer.qk_clip_threshold", alpha = "optimizer.qk_clip_alpha";
    bool isUsed = given.isSet("--qk-clip", threshold);
    std::string unused = "--qk-clip is not given";
    std::optional<std::string> limit = given.number("--qk-clip-threshold", isUsed ? threshold : unused);
    std::optional<std::string> share = given.number("--qk-clip-alpha", isUsed ? alpha : unused);
    given.isSet("--log-max-attention-logit", "metrics have the largest attention score of a run with QK-clip");
    if (!isUsed)
      return;
    put(threshold, limit.value_or("100"), given.isGiven("--qk-clip-threshold") ? "--qk-clip-threshold" : "--qk-clip");
    put(alpha, share.value_or("0.5"), given.isGiven("--qk-clip-alpha") ? "--qk-clip-alpha" : "--qk-clip");
  }

  /// Writes a number, or its default in Megatron. Drops the flag if it belongs to another optimizer.
  void writeMomentum(const char *flag, const char *initial, bool isUsed) {
    std::optional<std::string> momentum = given.number(flag, isUsed ? "optimizer.momentum" : "of another optimizer");
    if (isUsed)
      put("optimizer.momentum", momentum.value_or(initial), flag);
  }

  void writeMuon(bool isUsed) {
    const std::string section = "optimizer.", other = "of another optimizer";
    auto effect = [&](const char *key) { return isUsed ? section + key : other; };
    writeMomentum("--muon-momentum", "0.95", isUsed);
    bool isNesterov = given.isSet("--muon-nesterov", effect("nesterov"));
    std::optional<int64_t> steps = given.count("--muon-num-ns-steps", effect("ns_steps"));
    std::optional<std::string> mode = given.value("--muon-scale-mode", effect("scale_mode"));
    std::optional<std::string> factor = given.number("--muon-extra-scale-factor", effect("extra_scale_factor"));
    const char *tensorFlag = "--muon-tp-mode";
    std::optional<std::string> tensorMode =
        given.value(tensorFlag, isUsed ? "each tensor rank computes with whole matrices" : other);
    if (!isUsed)
      return;
    if (sizes.tensorRanks > 1)
      checkTensorMode(tensorFlag, tensorMode.value_or("blockwise"));
    put(section + "nesterov", isNesterov ? "True" : "False", "--muon-nesterov");
    if (steps)
      put(section + "ns_steps", fmt::format("{}", *steps), "--muon-num-ns-steps");
    put(section + "scale_mode", mode.value_or("spectral"), "--muon-scale-mode");
    put(section + "extra_scale_factor", factor.value_or("1"), "--muon-extra-scale-factor");
  }

  /// Checks that a split matrix has the update of the whole matrix. The modes duplicated and distributed compute the
  /// same update.
  void checkTensorMode(const char *flag, const std::string &mode) {
    if (mode == "blockwise")
      given.error(flag, fmt::format("{0} blockwise, Megatron's default, orthogonalizes the slices of the {1} tensor "
                                    "ranks apart, which is not the update of the whole matrix; {0}: blockwise → "
                                    "duplicated",
                                    flag, sizes.tensorRanks));
    else if (mode != "duplicated" && mode != "distributed")
      given.error(flag, fmt::format("no mode '{}' here, there are duplicated, distributed", mode));
  }

  /// Writes a number of steps that one flag gives in steps and another in samples. Returns the number, or nothing if
  /// neither flag has a known value.
  std::optional<int64_t> putSteps(const std::string &key, const char *stepsFlag, const char *samplesFlag,
                                  int64_t least = 1) {
    std::optional<int64_t> steps = given.count(stepsFlag, key, least), samples = given.count(samplesFlag, key, least);
    if (samples)
      steps = std::max(least, stepsOf(*samples, samplesFlag));
    if (steps)
      put(key, fmt::format("{}", *steps), samples ? samplesFlag : stepsFlag);
    return steps;
  }

  /// Writes the length of the schedule, which is the length of the run unless flags of the decay give another one.
  void writeSteps() {
    const std::string key = "lr_schedule.total_steps";
    const char *flag = given.isStated("--train-samples") ? "--train-samples" : "--train-iters";
    std::optional<int64_t> run, decay;
    if (given.isStated(flag) && given.value(flag, key) != "0" && !given.isGiven("--skip-train"))
      run = putSteps(key, "--train-iters", "--train-samples");
    decay = putSteps(key, "--lr-decay-iters", "--lr-decay-samples");
    if (run && decay && *run != *decay)
      given.warning(flag, fmt::format("the learning rate has a schedule of {} steps and the run has {}: give `espalier "
                                      "run --steps {}`",
                                      *decay, *run, *run));
  }

  void writeSchedule() {
    const std::string section = "lr_schedule.";
    std::string style = given.value("--lr-decay-style", section + "type").value_or("linear");
    const std::vector<std::string> styles = {"constant", "cosine", "inverse-square-root", "linear", "WSD"};
    const std::string kind = style == "WSD" ? "wsd" : style == "inverse-square-root" ? "inverse_sqrt" : style;
    if (std::ranges::find(styles, style) == styles.end())
      given.error("--lr-decay-style", fmt::format("no decay '{}' here, there are {}", style, fmt::join(styles, ", ")));
    else
      put(section + "type", kind, "--lr-decay-style");
    putSteps(section + "warmup_steps", "--lr-warmup-iters", "--lr-warmup-samples", 0);
    putSteps(section + "decay_steps", "--lr-wsd-decay-iters", "--lr-wsd-decay-samples");
    const char *fallFlag = "--lr-wsd-decay-style";
    if (std::string fall = given.value(fallFlag, section + "type").value_or("exponential"); fall != "exponential")
      given.error(fallFlag, fmt::format("the rate of WSD falls exponentially here, got {}; {}: {} → exponential", fall,
                                        fallFlag, fall));
    if (style == "WSD" && !given.isGiven("--lr-wsd-decay-iters") && !given.isGiven("--lr-wsd-decay-samples"))
      given.error("--lr-decay-style", "WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
  }

  /// Returns the steps of so many samples at the beginning of the schedule, or at its end if they are of a decay.
  int64_t stepsOf(int64_t samples, std::string_view flag) {
    const char *end = given.isGiven("--lr-decay-samples") ? "--lr-decay-samples" : "--train-samples";
    bool isAtEnd = flag == "--lr-wsd-decay-samples" && given.isGiven(end);
    int64_t whole = isAtEnd ? given.count(end, "the steps of the schedule").value_or(samples) : samples;
    return isAtEnd ? sizes.stepsOf(whole) - sizes.stepsOf(std::max<int64_t>(0, whole - samples))
                   : sizes.stepsOf(samples);
  }

  void writeWrapper() {
    given.isSet("--calculate-per-token-loss", "the loss of a step is a mean over its tokens, in all micro-batches");
    bool isReduced = given.isSet("--grad-reduce-in-bf16", "parallel.gradient_fp32_sync, if the type is bfloat16") &&
                     (dtype.name == "bfloat16" || !dtype.isStated);
    if (isReduced)
      put("parallel.gradient_fp32_sync", "False", "--grad-reduce-in-bf16");
    // Megatron's gradients have the type of the parameters; it raises those in bfloat16 to f32, unlike those in
    // float16.
    bool isRaised = given.isSet("--accumulate-allreduce-grads-in-fp32", "parallel.gradient_fp32_sync, which is f32");
    if (!dtype.isStated && isRaised && !isReduced) // flags over a run file that has the type
      put("parallel.gradient_fp32_sync", "True", "--accumulate-allreduce-grads-in-fp32");
    if (dtype.isStated && dtype.name == "float16")
      put("parallel.gradient_fp32_sync", isRaised ? "True" : "False",
          isRaised ? "--accumulate-allreduce-grads-in-fp32" : "--fp16");
    const std::string section = "runner_wrapper.", key = section + "scale_sense";
    if (std::optional<std::string> clip = given.number("--clip-grad", section + "max_grad_norm");
        clip && *clip != "0") {
      put(section + "use_clip_grad", "True", "--clip-grad");
      put(section + "max_grad_norm", *clip, "--clip-grad");
    }
    std::optional<std::string> fixed = given.number("--loss-scale", key);
    std::optional<std::string> initial = given.number("--initial-loss-scale", key + ".loss_scale_value");
    std::optional<int64_t> window = given.count("--loss-scale-window", key + ".scale_window");
    std::optional<int64_t> hysteresis = given.count("--hysteresis", "one overflow halves the loss scale");
    if (dtype.name != "float16")
      return;
    if (fixed) {
      put(key, *fixed, "--loss-scale");
      return;
    }
    if (hysteresis.value_or(1) != 1)
      given.warning("--hysteresis", fmt::format("one overflow halves the loss scale here, and not the {} that "
                                                "--hysteresis waits for",
                                                *hysteresis));
    put(key + ".type", "DynamicLossScaleUpdateCell");
    put(key + ".loss_scale_value", initial.value_or("4294967296"), "--initial-loss-scale");
    put(key + ".scale_factor", "2");
    put(key + ".scale_window", fmt::format("{}", window.value_or(1000)), "--loss-scale-window");
  }

  const ScriptDType &dtype;
  const ScriptSizes &sizes;
};

} // namespace

void writeOptimizer(GivenFlags &given, RunFileWriter &yaml, const ScriptDType &dtype, const ScriptSizes &sizes,
                    bool hasBase) {
  OptimizerWriter(given, yaml, dtype, sizes).write(hasBase);
}

} // namespace espalier
