// Imports loss scale, data and dtypes of a run file.
#include "compiler/import/run/cluster_file.h"
#include "compiler/import/run/run_reader.h"
#include "format/blend_list.h"
#include "format/splits.h"
#include "messages/data_error.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace espalier {
namespace {

void importLossScale(const RunReader &reader) {
  LossScaleConfig &scale = reader.config().lossScale;
  const std::string key = "runner_wrapper.scale_sense";
  if (std::optional<double> fixed = reader.number(key)) {
    scale.initial = *fixed;
  } else if (const YamlNode *node = reader.find(key); node && node->isMap()) {
    std::string type = reader.text(key + ".type").value_or("DynamicLossScaleUpdateCell");
    scale.dynamic = type == "DynamicLossScaleUpdateCell";
    if (!scale.dynamic && type != "FixedLossScaleUpdateCell")
      reader.error(key + ".type", fmt::format("no loss scale '{}', there are DynamicLossScaleUpdateCell "
                                              "and FixedLossScaleUpdateCell",
                                              type));
    if (scale.dynamic && reader.config().dtypes.compute != DType::F16) {
      scale = {};
      return reader.report(key, KeyAction::Accepted, "only float16 computation needs a loss scale");
    }
    scale.initial = reader.number(key + ".loss_scale_value").value_or(4294967296.0);
    scale.factor = reader.number(key + ".scale_factor").value_or(2);
    scale.window = reader.integer(key + ".scale_window").value_or(1000);
  }
  if (scale.initial <= 0)
    reader.error(key, fmt::format("loss scale is {}, must be above 0", scale.initial));
  if (scale.dynamic && scale.factor <= 1)
    reader.error(key + ".scale_factor", fmt::format("scale_factor is {}, must be above 1", scale.factor));
}

void importEpilogues(const RunReader &reader) {
  const char *key = "context.unfused_epilogues";
  std::vector<std::string> known;
  for (int number = 1; number < rt::pb::LibraryCall::Epilogue_ARRAYSIZE; ++number)
    known.push_back(epilogueName(static_cast<rt::pb::LibraryCall::Epilogue>(number)));
  const YamlNode *list = reader.find(key);
  for (const YamlPtr &item : list ? list->items : std::vector<YamlPtr>()) {
    if (std::find(known.begin(), known.end(), item->text) == known.end())
      reader.error(key, fmt::format("no epilogue '{}', there are {}{}", item->text, fmt::join(known, ", "),
                                    didYouMean(item->text, known)));
    reader.config().unfusedEpilogues.push_back(item->text);
  }
}

void importMode(const RunReader &reader) {
  RunConfig &config = reader.config();
  config.seed = static_cast<uint64_t>(reader.integer("seed").value_or(0));
  config.runMode = reader.text("run_mode").value_or("train");
  const std::vector<std::string> modes = {"train", "finetune", "eval", "predict", "export"};
  if (std::find(modes.begin(), modes.end(), config.runMode) == modes.end())
    reader.error("run_mode", fmt::format("no run_mode '{}', there are {}{}", config.runMode, fmt::join(modes, ", "),
                                         didYouMean(config.runMode, modes)));
  config.outputDir = reader.text("output_dir").value_or(config.outputDir);
  const YamlNode *resume = reader.find("resume_training");
  config.resume = resume && yamlBool(*resume).value_or(false);
  config.epochs = reader.integer("runner_config.epochs").value_or(1);
  if (reader.integer("context.mode").value_or(0) != 0)
    reader.error("context.mode", "mode 1 (op by op) is not built, everything is compiled: 1 → 0");
  importEpilogues(reader);
  if (std::string arch = reader.text("model.arch.type").value_or(""); arch.ends_with("ForSequenceClassification")) {
    std::string reason = fmt::format("classification heads are not built, a plan trains the language model of the same "
                                     "sizes; type: {} → that model's",
                                     arch);
    reader.refuse("model.arch.type", reason);
    reader.report("model.model_config.num_labels", KeyAction::Rejected, reason);
  }
}

void refusePlaceholder(const RunReader &reader, const std::string &key, const std::string &text) {
  if (isPlaceholder(text))
    reader.error(key, fmt::format("{} is a placeholder, {}; write yours in its place", key, text));
}

/// Imports the checkpoint to start from, and the mode. Whether the weights exist is checked on the machine that runs
/// the plan.
void importStart(const RunReader &reader) {
  RunConfig &config = reader.config();
  const char *checkpointKey = reader.has("load_checkpoint") ? "load_checkpoint" : "resume_or_finetune_checkpoint";
  config.loadCheckpoint = reader.text(checkpointKey).value_or("");
  const std::string &from = config.loadCheckpoint;
  refusePlaceholder(reader, checkpointKey, from);
  if (config.runMode == "export")
    reader.refuse("run_mode",
                  "export is not built, plans train, evaluate or generate, `espalier convert` exports weights; "
                  "run_mode: export → train");
  if (config.runMode == "finetune" && from.empty())
    reader.refuse("run_mode",
                  "finetune without load_checkpoint has no weights to start from; run_mode: finetune → train");
  if (from.ends_with(".ckpt"))
    reader.refuse(checkpointKey,
                  fmt::format("MindSpore's .ckpt files are not read, so that nothing is loaded from '{}'; "
                              "export them as safetensors with the names of transformers and give that "
                              "folder",
                              from));
  if (const YamlNode *resume = reader.find("resume_training"); resume && !yamlBool(*resume))
    reader.refuse("resume_training", fmt::format("'{}' names a checkpoint of MindSpore, which is not read; "
                                                 "resume_training: True resumes from the newest one of load_checkpoint",
                                                 resume->text));
  if (config.resume && from.empty())
    reader.report("resume_training", KeyAction::Accepted, "load_checkpoint is empty: use `espalier run --resume`");
  config.resume = config.resume && !from.empty();
  const std::string weightsKey = "model.model_config.checkpoint_name_or_path";
  std::string weights = reader.text(weightsKey).value_or("");
  if (weights.empty() || config.runMode == "predict" || config.runMode == "export")
    return;
  if (!from.empty())
    return reader.report(weightsKey, KeyAction::Accepted, "load_checkpoint is what is loaded");
  std::string what = fmt::format("not loaded: training starts from initial values, not from '{}'", weights);
  reader.report(weightsKey, KeyAction::Rejected, what);
  reader.warning(weightsKey, "checkpoint_name_or_path is " + what);
}

void importCallbacks(const RunReader &reader) {
  RunConfig &config = reader.config();
  const YamlNode *callbacks = reader.find("callbacks");
  for (size_t i = 0; callbacks && i < callbacks->items.size(); ++i) {
    const YamlNode &item = *callbacks->items[i];
    const YamlNode *type = item.find("type");
    std::string name = type ? type->text : "";
    auto integer = [&item](const char *key, int64_t otherwise) {
      const YamlNode *node = item.find(key);
      return node ? yamlInteger(*node).value_or(otherwise) : otherwise;
    };
    if (name == "MFLossMonitor") {
      config.logSteps = integer("per_print_times", 1);
    } else if (name == "CheckpointMointor" || name == "CheckpointMonitor") { // the first is MindFormers' spelling
      const YamlNode *prefix = item.find("prefix");
      config.checkpointPrefix = prefix ? prefix->text : "";
      config.checkpointSteps = integer("save_checkpoint_steps", 1);
      config.keepCheckpoints = integer("keep_checkpoint_max", 5);
    } else {
      reader.report(fmt::format("callbacks[{}].type", i), KeyAction::Accepted,
                    name == "MaxLogitsMonitor" ? "metrics have max_attention_logit of runs with QK-clip"
                                               : "a callback without a counterpart here");
    }
  }
}

} // namespace

void importTraining(const RunReader &reader) {
  importMode(reader);
  importStart(reader);
  importOptimizer(reader);
  importQkClip(reader);
  importSchedules(reader);
  importLossScale(reader);
  importCallbacks(reader);
}

namespace {

/// Imports paths and split. Checks only what does not need the data to be present.
void importPaths(const RunReader &reader) {
  const std::string loader = "train_dataset.data_loader.", folderKey = loader + "dataset_dir",
                    pathKey = loader + "config.data_path", splitKey = loader + "config.split";
  rt::pb::Data &data = reader.config().data;
  if (std::string folder = reader.text(folderKey).value_or(""); !folder.empty()) {
    data.add_path(folder);
    refusePlaceholder(reader, folderKey, folder);
  }
  std::vector<std::string> paths = yamlTexts(reader.find(pathKey));
  if (!paths.empty() && paths != std::vector<std::string>{""})
    try {
      for (const rt::BlendPart &part : rt::parseBlend(paths))
        refusePlaceholder(reader, pathKey, part.path);
      data.mutable_path()->Assign(paths.begin(), paths.end());
    } catch (const rt::DataError &fault) {
      reader.error(pathKey, fmt::format("data_path: {}", fault.reason()));
    }
  data.set_split(reader.text(splitKey).value_or("969, 30, 1"));
  try {
    rt::parseSplit(data.split());
  } catch (const rt::DataError &fault) {
    reader.error(splitKey, fmt::format("split \"{}\": {}", data.split(), fault.reason()));
  }
}

/// Limits attention to documents: adds the input visible_from to every attention of the model.
void limitAttention(const RunReader &reader, const std::string &key, ModelDescription &model) {
  bool isFound = model.segments.empty(); // the model has errors
  for (SegmentDescription &segment : model.segments)
    for (OpDescription &op : segment.ops) {
      if (hasState(op))
        op.inputs.push_back("visible_from");
      if (op.kind != "attention" && !hasState(op))
        continue;
      isFound = true;
      if (auto causal = op.numbers.find("causal"); causal != op.numbers.end() && causal->second == 0)
        return reader.error(key, fmt::format("attention that ends with a document is causal; the attention of segment "
                                             "{} is not: leave {} out",
                                             segment.kind, key));
      if (op.kind == "attention" && op.inputs.back() != "visible_from")
        op.inputs.emplace_back("visible_from");
    }
  if (!isFound)
    reader.error(key, "the model has no attention that could end with a document");
}

/// Returns whether a layer's tokens attend to chunks of a sample.
bool hasChunks(const ModelDescription &model) {
  auto isSplit = [&](const OpDescription &op) {
    auto chunk = op.numbers.find("chunk");
    return chunk != op.numbers.end() && chunk->second < static_cast<double>(model.dims.at("seq"));
  };
  return std::ranges::any_of(
      model.segments, [&](const SegmentDescription &segment) { return std::ranges::any_of(segment.ops, isSplit); });
}

/// Imports what happens at the end of a document. `task` is the section of the data loader.
void importDocuments(const RunReader &reader, const std::string &task, rt::pb::Data &data) {
  auto isSet = [&](const std::string &key) {
    bool isOn = reader.flag(key).value_or(false);
    if (isOn && !data.has_eod_token() && (!data.pack_balanced() || key.ends_with("eod_mask_loss")))
      reader.error(key, fmt::format("{} needs the token that ends a document, eod", key.substr(key.rfind('.') + 1)));
    return isOn;
  };
  const std::string packKey = task + "pack", pack = reader.text(packKey).value_or("concatenated");
  data.set_pack_balanced(pack == "balanced");
  if (pack != "balanced" && pack != "concatenated")
    reader.error(packKey, fmt::format("pack is '{}', want concatenated or balanced", pack));
  data.set_eod_mask_loss(isSet(task + "eod_mask_loss"));
  data.set_reset_position_ids(isSet(task + "reset_position_ids"));
  for (const std::string &key :
       {task + "reset_attention_mask", task + "create_compressed_eod_mask",
        std::string("train_dataset.data_loader.create_compressed_eod_mask"), std::string("train_dataset.eod_reset")})
    if (isSet(key) && !std::exchange(reader.config().resetAttentionMask, true))
      limitAttention(reader, key, reader.config().model);
  if (data.pack_balanced() && !reader.config().resetAttentionMask)
    reader.error(packKey, "attention is not limited to documents, so that all samples have the same work: set "
                          "reset_attention_mask: True, or leave pack out");
  data.set_reset_position_ids(data.reset_position_ids() || reader.flag("train_dataset.eod_reset").value_or(false));
  if (data.reset_position_ids() && hasChunks(reader.config().model))
    reader.error(task + "reset_position_ids", "the chunks of attention are counted in the sample, in which positions "
                                              "would restart: leave reset_position_ids out");
}

} // namespace

void importData(const RunReader &reader) {
  RunConfig &config = reader.config();
  const std::string task = "train_dataset.data_loader.config.";
  rt::pb::Data &data = config.data;
  importPaths(reader);
  for (const std::string &key : {std::string("train_dataset.seed"), task + "random_seed", task + "seed"})
    if (std::optional<int64_t> seed = reader.integer(key))
      data.set_seed(static_cast<uint64_t>(*seed));
  for (const std::string &key : {std::string("train_dataset.eod_token_id"), task + "eod"}) // the latter wins
    if (std::optional<int64_t> token = reader.integer(key))
      data.set_eod_token(*token);
  importDocuments(reader, task, data);
  if (std::optional<int64_t> ignore = reader.integer("model.model_config.ignore_token_id"))
    config.ignoreToken = *ignore >= 0 && *ignore <= 0x7fffffff ? static_cast<int>(*ignore) : -1;
  std::optional<int64_t> seq = reader.integer(task + "seq_length");
  auto dim = config.model.dims.find("seq");
  if (seq && dim != config.model.dims.end() && dim->second > 0 && *seq != dim->second)
    reader.error(task + "seq_length",
                 fmt::format("data have {} tokens per sample, the model has seq_length {}", *seq, dim->second));
}

void importDocumentTokens(const RunReader &reader) {
  const std::string preference = "planner.prefer_simple";
  double &share = reader.config().preferSimple;
  share = reader.number(preference).value_or(share);
  if (share < 0 || share > 1)
    reader.error(preference, fmt::format("prefer_simple must be a share from 0 to 1, got {}", share));
  const std::string key = "planner.document_tokens";
  std::optional<int64_t> tokens = reader.integer(key);
  if (!tokens || *tokens < 1 || *tokens > kMostCount) // the key checker reports the latter two
    return;
  ModelDescription &model = reader.config().model;
  bool isLimited = model.segments.empty(); // the model has errors
  for (const SegmentDescription &segment : model.segments)
    for (const OpDescription &op : segment.ops)
      isLimited = isLimited || (op.kind == "attention" && op.inputs.back() == "visible_from");
  if (!isLimited)
    return reader.error(key, fmt::format("{} is {}, but attention is not limited to documents: set "
                                         "train_dataset.data_loader.config.reset_attention_mask or leave {} out",
                                         key, *tokens, key));
  // Software that stores attention scores computes all of them.
  if (reader.config().system.storage.scoreBytes == 0)
    model.documentTokens = static_cast<double>(*tokens);
}

void importDTypes(const RunReader &reader, const SizeTable &sizes) {
  auto dtype = [&sizes](const char *key, DType otherwise) {
    auto size = sizes.find(key);
    if (size == sizes.end() || size->second.text.empty())
      return otherwise;
    return size->second.text == "float16" ? DType::F16 : size->second.text == "bfloat16" ? DType::BF16 : DType::F32;
  };
  DTypePolicy &policy = reader.config().dtypes;
  policy.parameters = dtype("param_init_type", DType::F32);
  policy.compute = dtype("compute_dtype", DType::F32);
  policy.norm = dtype("layernorm_compute_type", DType::F32);
  policy.softmax = dtype("softmax_compute_type", DType::F32);
  policy.gradients = reader.flag("parallel.gradient_fp32_sync").value_or(true) ? DType::F32 : policy.compute;
  policy.masterWeights = reader.flag("optimizer.master_weights").value_or(false);
  if (policy.masterWeights && policy.parameters == DType::F32)
    reader.error("optimizer.master_weights", "parameters are float32 already, master_weights is for 16-bit ones");
}

} // namespace espalier
