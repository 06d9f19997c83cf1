// A single dataset is one epoch in shuffled order, whatever the number of steps. So a longer run reads the same samples
// first as a shorter run.
#include "runtime/train/open_data.h"

#include "runtime/dataset/content_digest.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// Returns the plan's data settings, overridden by the command line.
pb::Data merged(const pb::Data &plan, const DataOptions &options) {
  pb::Data data = plan;
  if (!options.words.empty())
    data.mutable_path()->Assign(options.words.begin(), options.words.end());
  if (!options.split.empty())
    data.set_split(options.split);
  if (options.eodToken >= 0)
    data.set_eod_token(options.eodToken);
  else if (!plan.has_eod_token())
    data.set_eod_token(-1);
  data.set_eod_mask_loss(plan.eod_mask_loss() || options.eodMaskLoss);
  data.set_reset_position_ids(plan.reset_position_ids() || options.resetPositionIds);
  return data;
}

/// Returns whether attention ends at the borders of documents: the plan then reads the first visible tokens.
bool limitsAttention(const pb::Plan &plan) { return hasInput(plan, "visible_from"); }

void check(const pb::Plan &plan, const pb::Data &data) {
  if (data.path().empty())
    throw PlanError("no data to read; give --data PATH, or data_path in the run file");
  bool findsBorders = !data.pack_balanced() && (data.reset_position_ids() || limitsAttention(plan));
  if ((data.eod_mask_loss() || findsBorders) && data.eod_token() < 0)
    throw PlanError("what happens at the end of a document needs its token; give --eod-token ID");
  if (data.eod_token() >= static_cast<int64_t>(plan.settings().vocabulary()))
    throw PlanError(fmt::format("the end of a document is token {}, the model's vocabulary has {}; give --eod-token ID",
                                data.eod_token(), plan.settings().vocabulary()));
  if (data.eod_mask_loss() && !hasInput(plan, "loss_weights"))
    throw PlanError("the model has no input loss_weights, so the end of a document cannot be left out of the loss");
  std::vector<BlendPart> parts = parseBlend({data.path().begin(), data.path().end()});
  if (data.pack_balanced() && parts.size() > 1)
    throw PlanError(fmt::format("`pack: balanced` packs one dataset, and the data are a blend of {}; join them with "
                                "`espalier data merge`, or compile with `pack: concatenated`",
                                parts.size()));
  if (data.pack_balanced() && (!hasInput(plan, "loss_weights") || !limitsAttention(plan)))
    throw PlanError("`pack: balanced` needs the model's inputs loss_weights, for padding, and visible_from, for the "
                    "borders of documents; compile with `pack: concatenated`");
  for (const BlendPart &part : parts)
    if (std::string mask = findLossMask(part.path); !mask.empty() && !hasInput(plan, "loss_weights"))
      throw PlanError(fmt::format("{}: the model has no input loss_weights, so a loss mask has no effect; give it to "
                                  "cross_entropy in the model file, or remove the mask to train on all tokens",
                                  mask));
  if (data.reset_position_ids() && !hasInput(plan, "positions"))
    throw PlanError("the model has no input positions, so they cannot restart behind the end of a document");
}

} // namespace

bool hasInput(const pb::Plan &plan, const std::string &name) {
  return std::ranges::any_of(plan.stages(), [&name](const pb::Stage &stage) {
    return std::ranges::any_of(stage.exchanges(),
                               [&name](const pb::Exchange &exchange) { return exchange.name() == name; });
  });
}

std::vector<std::string> dataPaths(const pb::Plan &plan, const DataOptions &options) {
  pb::Data data = merged(plan.settings().data(), options);
  std::vector<std::string> paths;
  if (!data.path().empty())
    for (const BlendPart &part : parseBlend({data.path().begin(), data.path().end()}))
      paths.push_back(part.path);
  return paths;
}

std::unique_ptr<Dataset> openRunData(const pb::Plan &plan, const DataOptions &options, Split split, int64_t samples) {
  const pb::Settings &settings = plan.settings();
  pb::Data data = merged(settings.data(), options);
  check(plan, data);
  DatasetOptions wanted;
  wanted.seqLength = static_cast<int64_t>(settings.sequence());
  wanted.split = split;
  if (!data.split().empty())
    wanted.splitWeights = data.split();
  wanted.seed = static_cast<uint32_t>(data.has_seed() ? data.seed() : settings.seed());
  wanted.vocabSize = static_cast<int64_t>(settings.vocabulary());
  wanted.eodToken = static_cast<int32_t>(data.eod_token());
  wanted.eodMaskLoss = data.eod_mask_loss();
  wanted.resetPositionIds = data.reset_position_ids();
  wanted.resetAttentionMask = limitsAttention(plan);
  if (data.pack_balanced()) // an evaluation reads every sample, in any order
    wanted.balancedBatch = split == Split::train ? static_cast<int64_t>(settings.global_batch()) : 1;
  std::vector<BlendPart> parts = parseBlend({data.path().begin(), data.path().end()});
  if (parts.size() == 1)
    return openDataset(parts[0].path, wanted);
  wanted.samples = samples;
  return openBlend(parts, wanted);
}

std::string describeTrainingData(const pb::Plan &plan, const DataOptions &options, SampleOrder order) {
  pb::Data data = merged(plan.settings().data(), options);
  check(plan, data);
  std::string words, split = data.split().empty() ? "969,30,1" : data.split();
  std::erase(split, ' ');
  std::vector<BlendPart> parts = parseBlend({data.path().begin(), data.path().end()});
  double sum = 0;
  for (const BlendPart &part : parts)
    sum += part.weight;
  for (const BlendPart &part : parts) {
    if (parts.size() > 1)
      words += isWeighted(parts) ? fmt::format("{:.6g} of ", part.weight / sum) : "the samples of ";
    words += contentDigest(part.path);
    if (std::string mask = findLossMask(part.path); !mask.empty())
      words += " with a loss mask of " + contentDigest(mask);
    words += ", ";
  }
  words += fmt::format("split {}, seed {}, {} order", split, data.has_seed() ? data.seed() : plan.settings().seed(),
                       order == SampleOrder::single ? "single" : "cyclic");
  if (data.eod_token() >= 0)
    words += fmt::format(", documents end with {}{}{}{}", data.eod_token(), data.eod_mask_loss() ? " without loss" : "",
                         data.reset_position_ids() ? ", positions restart" : "",
                         limitsAttention(plan) ? ", attention within documents" : "");
  if (data.pack_balanced())
    words += fmt::format(", packed for steps of {}", plan.settings().global_batch());
  return words;
}

std::string describeIndexes(const pb::Plan &plan, const DataOptions &options) {
  pb::Data data = merged(plan.settings().data(), options);
  std::string words;
  for (const BlendPart &part : parseBlend({data.path().begin(), data.path().end()}))
    if (std::string digest = indexDigest(part.path); !digest.empty())
      words += ", index " + digest;
  return words;
}

} // namespace espalier::rt
