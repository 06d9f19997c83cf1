#include "tools/report/plan_sections.h"

#include "compiler/report/page.h"
#include "format/mesh.h"
#include "runtime/files/atomic_file.h"
#include "runtime/program.h"
#include "tools/report/drift.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr double mebibyte = 0x1p20, gibibyte = 0x1p30;
constexpr size_t mostPoints = 2000, mostEvents = 20000; ///< drawn in one chart

std::string axesText(uint32_t axes) {
  std::string text;
  for (auto [axis, name] :
       {std::pair(rt::PP, "pp"), std::pair(rt::DP_REPLICATE, replicateAxis), std::pair(rt::DP, "dp"),
        std::pair(rt::CP, "cp"), std::pair(rt::EP, "ep"), std::pair(rt::TP, "tp")})
    if (axes & axis)
      text += (text.empty() ? "" : " x ") + std::string(name);
  return text.empty() ? "none" : text;
}

Json planSummary(const std::string &file, const rt::pb::Plan &plan) {
  rt::Mesh mesh(plan.mesh());
  const rt::pb::Settings &settings = plan.settings();
  uint32_t group = plan.mesh().zero_group();
  Json facts = {
      {"Model", fmt::format("{}, {} parameters", plan.model(), plan.parameter_count())},
      {"Plan", file},
      {"Ranks",
       fmt::format("{} = dp {} x tp {} x pp {} x cp {} x ep {}", mesh.ranks(), mesh.count(rt::DP | rt::DP_REPLICATE),
                   mesh.count(rt::TP), mesh.count(rt::PP), mesh.count(rt::CP), mesh.count(rt::EP))},
      {"Batch",
       fmt::format("{} = micro-batch {} x {} micro-batches x {} replicas, sequence {}", settings.global_batch(),
                   settings.micro_batch_size(), settings.micro_batches(), rt::dataReplicas(mesh), settings.sequence())},
      {"Technique", fmt::format("schedule {}, ZeRO {}{}, sequence parallel {}, recompute {}", settings.schedule(),
                                settings.zero(), group > 0 ? fmt::format(" in groups of {}", group) : "",
                                settings.sequence_parallel() ? "yes" : "no", settings.recompute())},
      {"Compiled for", plan.target()}};
  return {{"type", "facts"}, {"title", "Plan"}, {"facts", facts}};
}

Json memoryOf(const rt::pb::Plan &plan) {
  std::vector<std::string> names;
  uint64_t most = 0;
  for (const rt::pb::Stage &stage : plan.stages()) {
    most = std::max<uint64_t>(most, stage.arena_bytes(rt::pb::DEVICE));
    for (const rt::pb::MemoryClass &part : stage.memory())
      if (std::ranges::find(names, part.name()) == names.end())
        names.push_back(part.name());
  }
  bool isSmall = most < 0.1 * gibibyte;
  double unit = isSmall ? mebibyte : gibibyte;
  Json rows = Json::array(), parts = Json::array();
  for (int i = 0; i < plan.stages_size(); ++i)
    rows.push_back(fmt::format("stage {}", i));
  for (const std::string &name : names) {
    Json values = Json::array();
    for (const rt::pb::Stage &stage : plan.stages()) {
      double bytes = 0;
      for (const rt::pb::MemoryClass &part : stage.memory())
        if (part.name() == name)
          bytes += static_cast<double>(part.bytes());
      values.push_back(bytes / unit);
    }
    parts.push_back({{"name", name}, {"values", values}});
  }
  Json section = {{"type", "stacked"},
                  {"title", "Memory by stage"},
                  {"unit", isSmall ? "MB of device memory per rank" : "GB of device memory per rank"},
                  {"rows", rows},
                  {"parts", parts}};
  double limit = static_cast<double>(plan.memory_limit_bytes()) / unit;
  bool isNear = limit < 20 * static_cast<double>(most) / unit; // else the bars would be invisible beside it
  if (limit > 0 && isNear)
    section["limit"] = limit;
  else if (limit > 0)
    section["text"] = fmt::format("The limit is {:.0f} {}.", limit, isSmall ? "MB" : "GB");
  return section;
}

Json transfersOf(const rt::pb::Plan &plan) {
  constexpr const char *kinds[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                   "shift",      "send",       "receive",        "copy to or from the host"};
  struct Sum {
    int count = 0;
    uint64_t bytes = 0;
  };
  rt::Mesh mesh(plan.mesh());
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const rt::pb::Transfer &transfer : plan.transfers()) {
    bool hasGroup = transfer.kind() <= rt::pb::Transfer::SHIFT;
    std::string axes = hasGroup ? axesText(mesh.divided(plan.groups(static_cast<int>(transfer.group())).axes()))
                       : transfer.kind() == rt::pb::Transfer::COPY ? "none"
                                                                   : "pp";
    Sum &sum = sums[{axes, kinds[transfer.kind()]}];
    ++sum.count;
    for (const rt::pb::Buffer &buffer : transfer.from_size() > 0 ? transfer.from() : transfer.to())
      sum.bytes += buffer.bytes();
  }
  Json rows = Json::array();
  for (const auto &[key, sum] : sums)
    rows.push_back({key.first, key.second, sum.count, static_cast<double>(sum.bytes) / mebibyte});
  return {{"type", "table"},
          {"title", "Transfers by axis"},
          {"text", "Each transfer of the plan counts once, with the bytes that one rank hands over."},
          {"columns", {"axes", "kind", "transfers", "MB"}},
          {"rows", rows}};
}

/// Returns a line chart of one value of the steps; at most mostPoints of them.
template <typename Value>
Json linesOf(const char *title, const char *axis, const std::vector<rt::StepRecord> &steps, Value value) {
  Json points = Json::array();
  size_t every = std::max<size_t>(1, (steps.size() + mostPoints - 1) / mostPoints);
  for (size_t i = 0; i < steps.size(); i += every) {
    double y = value(steps[i]);
    points.push_back({steps[i].step, std::isfinite(y) ? Json(y) : Json(nullptr)});
  }
  return {{"type", "lines"},
          {"title", title},
          {"x", "step"},
          {"y", axis},
          {"series", Json::array({{{"name", axis}, {"points", points}}})}};
}

/// Returns the loads of the experts of each layer in one record.
Json expertTable(const rt::StepRecord &record) {
  Json rows = Json::array();
  for (const rt::ExpertLoad &layer : record.experts.layers) {
    double choices = static_cast<double>(std::max<int64_t>(1, layer.choices()));
    auto [least, most] = std::ranges::minmax_element(layer.chosen);
    auto overMean = [&](int64_t chosen) {
      return fmt::format("{:.2f}", static_cast<double>(chosen) * static_cast<double>(layer.chosen.size()) / choices);
    };
    rows.push_back({layer.layer, most - layer.chosen.begin(), overMean(*most), least - layer.chosen.begin(),
                    overMean(*least), fmt::format("{:.1f} %", 100 * static_cast<double>(layer.dropped) / choices)});
  }
  return {{"type", "table"},
          {"title", "Experts by layer"},
          {"text", fmt::format("Choices of all tokens of the {} steps up to step {}. A load of 1 is the mean.",
                               record.experts.steps, record.step)},
          {"columns", {"layer", "busiest expert", "its load", "idlest expert", "its load", "dropped"}},
          {"rows", rows}};
}

/// Adds the loads of experts, if the steps have them.
void addExperts(Json &sections, std::vector<rt::StepRecord> steps) {
  std::erase_if(steps, [](const auto &step) { return step.experts.isEmpty(); });
  if (steps.empty())
    return;
  sections.push_back(linesOf("Busiest expert of all layers", "load over the mean", steps,
                             [](const auto &step) { return step.experts.mostOverMean(); }));
  sections.push_back(linesOf("Dropped choices of experts", "percent of all choices", steps,
                             [](const auto &step) { return 100 * step.experts.droppedShare(); }));
  sections.push_back(expertTable(steps.back()));
}

/// Returns the measured step of a trace file that the run wrote.
Json measuredStep(const std::string &file, const rt::pb::Plan &plan) {
  std::ifstream stream(file);
  Json trace = Json::parse(stream), events = Json::array(), rows = Json::array();
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (const char *track : {"", " transfers"})
      rows.push_back(fmt::format("stage {}{}", stage, track));
  constexpr int stepTrack = 1, waitTrack = 2;
  for (const Json &event : trace["traceEvents"]) {
    if (event["ph"] != "X" || events.size() >= mostEvents)
      continue;
    const Json &of = event["args"];
    int track = event["tid"];
    std::string action = of.value("action", "");
    bool isTransfer = of.contains("transfer");
    if (track == waitTrack || (track < waitTrack && track != stepTrack && action.empty()))
      continue; // nested calls, and waits, which the gaps show
    const char *kind = isTransfer      ? "communication"
                       : action == "F" ? "forward"
                       : action == "B" ? "backward"
                       : action == "W" ? "weight"
                                       : "step";
    events.push_back({2 * event["pid"].get<int>() + isTransfer, kind, event["name"], event["ts"].get<double>() / 1e6,
                      event["dur"].get<double>() / 1e6});
  }
  return {{"type", "timeline"}, {"title", "Measured step"}, {"rows", rows}, {"events", events}};
}

} // namespace

Json planSections(const std::string &file, const rt::pb::Plan &plan) {
  return {planSummary(file, plan), memoryOf(plan), transfersOf(plan)};
}

Json runSections(const std::string &trace, const rt::pb::Plan &plan, const rt::RunResult &result, bool isCalibrated) {
  Json sections = Json::array();
  const std::vector<rt::StepRecord> &steps = result.steps;
  double median = medianSeconds(steps), predicted = plan.predicted_step_seconds();
  Json facts = Json::object();
  if (!steps.empty()) {
    facts["Steps"] = fmt::format("{} to {}", steps.front().step, steps.back().step);
    facts["Loss"] = fmt::format("{:.5f} at the first step, {:.5f} at the last", steps.front().loss, steps.back().loss);
    facts["Step time"] = fmt::format("{:.4g} s, the median", median);
  }
  if (predicted > 0 && median > 0)
    facts["Predicted"] = isCalibrated
                             ? fmt::format("{:.4g} s; measured {:+.0f} %", predicted, 100 * (median / predicted - 1))
                             : fmt::format("{:.4g} s at rates that were not calibrated on this machine", predicted);
  if (!result.divergence.empty())
    facts["Ended"] = "diverged: " + result.divergence;
  sections.push_back({{"type", "facts"}, {"title", "Run"}, {"facts", facts}});
  if (!steps.empty()) {
    sections.push_back(linesOf("Loss", "loss", steps, [](const auto &step) { return step.loss; }));
    sections.push_back(
        linesOf("Gradient norm", "gradient norm", steps, [](const auto &step) { return step.gradNorm; }));
    sections.push_back(
        linesOf("Learning rate", "learning rate", steps, [](const auto &step) { return step.learningRate; }));
    sections.push_back(
        linesOf("Speed", "tokens per second", steps, [](const auto &step) { return step.tokensPerSecond; }));
    Json times = linesOf("Step time", "seconds", steps, [](const auto &step) { return step.seconds; });
    if (predicted > 0 && isCalibrated)
      times["reference"] = {{"name", "predicted"}, {"y", predicted}};
    sections.push_back(times);
    addExperts(sections, steps);
  }
  Json points = Json::array();
  for (const rt::EvaluationRecord &evaluation : result.evaluations)
    points.push_back({evaluation.step, std::isfinite(evaluation.loss) ? Json(evaluation.loss) : Json(nullptr)});
  if (!points.empty())
    sections.push_back({{"type", "lines"},
                        {"title", "Evaluations"},
                        {"x", "step"},
                        {"y", "loss"},
                        {"series", Json::array({{{"name", "loss"}, {"points", points}}})}});
  if (!trace.empty())
    sections.push_back(measuredStep(trace, plan));
  return sections;
}

void writeReport(const std::string &file, const std::string &title, const std::string &subtitle, const Json &sections) {
  rt::writeWhole(file, reportPage(title, subtitle, sections));
}

} // namespace espalier
