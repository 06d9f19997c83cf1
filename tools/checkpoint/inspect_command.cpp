// `espalier inspect`: prints a path according to its kind. Plans and checkpoints can be printed as JSON, whose keys
// tests depend on.
#include "tools/commands.h"

#include "tools/checkpoint/inspect_checkpoint.h"
#include "tools/data/data_command.h"
#include "tools/report/plan_sections.h"

#include "format/mesh.h"
#include "messages/error_line.h"
#include "runtime/parameter_block.h"
#include "runtime/plan_signature.h"
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"

#include <algorithm>
#include <compare>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace espalier {
namespace {

/// The range of repeated layers of a chunk, without the model's first and last call.
struct ChunkLayers {
  int32_t first = 0, count = 0;
  auto operator<=>(const ChunkLayers &) const = default;
};

/// Returns the layers of each chunk of a stage. The last list is skipped, because it belongs to the step.
std::vector<ChunkLayers> chunksOf(const rt::pb::Plan &plan, const rt::pb::Stage &stage) {
  int32_t last = 0;
  for (const rt::pb::Stage &other : plan.stages())
    for (const rt::pb::Call &call : other.calls())
      last = std::max(last, call.layer());
  std::vector<ChunkLayers> chunks;
  for (int i = 0; i + 1 < stage.chunks_size(); ++i) {
    const rt::pb::Chunk &chunk = stage.chunks(i);
    int32_t begin = stage.calls(static_cast<int>(chunk.first_call())).layer(), end = begin + int32_t(chunk.calls());
    chunks.push_back({std::max(0, begin - 1), std::min(end, last) - std::max(begin, 1)});
  }
  return chunks;
}

/// Formats layer ranges: "layers 0 to 1, 4 to 5".
std::string layersText(const rt::pb::Plan &plan, const rt::pb::Stage &stage) {
  std::vector<std::string> ranges;
  for (const ChunkLayers &chunk : chunksOf(plan, stage))
    if (chunk.count > 0)
      ranges.push_back(fmt::format("{} to {}", chunk.first, chunk.first + chunk.count - 1));
  return ranges.empty() ? "no layers" : fmt::format("layers {}", fmt::join(ranges, ", "));
}

/// Describes all chunks in model order.
nlohmann::ordered_json describeChunks(const rt::pb::Plan &plan) {
  std::vector<ChunkLayers> chunks;
  for (const rt::pb::Stage &stage : plan.stages())
    for (const ChunkLayers &chunk : chunksOf(plan, stage))
      chunks.push_back(chunk);
  std::ranges::sort(chunks);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChunkLayers &chunk : chunks)
    list.push_back({{"first_layer", chunk.first}, {"layers", chunk.count}});
  return list;
}

/// Returns the number of parameters that the plan trains, if others are frozen.
std::optional<int64_t> trainedParameters(const rt::pb::Plan &plan) {
  int64_t trained = 0;
  bool isAll = true;
  for (const rt::NamedParameter &named : rt::parametersOf(plan)) {
    isAll &= !named.bucket->frozen();
    trained += named.bucket->frozen() ? 0 : named.elements();
  }
  return isAll ? std::nullopt : std::optional(trained);
}

nlohmann::ordered_json describe(const rt::pb::Plan &plan) {
  rt::Mesh mesh(plan.mesh());
  const rt::pb::Settings &settings = plan.settings();
  nlohmann::ordered_json arenas = nlohmann::ordered_json::array(), host = arenas, memory = arenas;
  for (const rt::pb::Stage &stage : plan.stages()) {
    arenas.push_back(stage.arena_bytes(rt::pb::DEVICE));
    host.push_back(stage.arena_bytes(rt::pb::HOST));
    nlohmann::ordered_json classes = nlohmann::ordered_json::object();
    for (const rt::pb::MemoryClass &part : stage.memory())
      classes[part.name()] = part.bytes();
    memory.push_back(classes);
  }
  nlohmann::ordered_json split = {{"dp", mesh.count(rt::DP | rt::DP_REPLICATE)},
                                  {"tp", mesh.count(rt::TP)},
                                  {"pp", mesh.count(rt::PP)},
                                  {"cp", mesh.count(rt::CP)},
                                  {"ep", mesh.count(rt::EP)},
                                  {"micro_batch_size", settings.micro_batch_size()},
                                  {"micro_batches", settings.micro_batches()},
                                  {"zero", settings.zero()},
                                  {"sequence_parallel", settings.sequence_parallel()},
                                  {"recompute", settings.recompute()},
                                  {"schedule", settings.schedule()},
                                  {"stages", describeChunks(plan)}};
  if (plan.mesh().zero_group() > 0)
    split["zero_group"] = plan.mesh().zero_group();
  if (settings.has_slices_kept_inputs())
    split["slices_kept_inputs"] = settings.slices_kept_inputs();
  nlohmann::ordered_json all = {{"schema", 1},
                                {"model", plan.model()},
                                {"ranks", mesh.ranks()},
                                {"stages", plan.stages_size()},
                                {"parameters", plan.parameter_count()},
                                {"arena_bytes", arenas},
                                {"host_bytes", host},
                                {"memory", memory},
                                {"plan", split},
                                {"global_batch", settings.global_batch()},
                                {"sequence", settings.sequence()},
                                {"target", plan.target()},
                                {"programs", plan.stages_size()},
                                {"subprograms", plan.subprograms_size()},
                                {"kernels", plan.kernels_size()},
                                {"memory_limit_bytes", plan.memory_limit_bytes()},
                                {"predicted_step_seconds", plan.predicted_step_seconds()},
                                {"compiler", plan.compiler()}};
  if (std::optional<int64_t> trained = trainedParameters(plan))
    all["trained_parameters"] = *trained;
  return all;
}

/// Formats the ring slots of all live ranges except the resident one: "inputs 3, saved 2, in 2".
std::string slotsText(const rt::pb::Stage &stage) {
  std::vector<std::string> texts;
  for (int i = 1; i < stage.lifetimes_size(); ++i)
    texts.push_back(fmt::format("{} {}", stage.lifetimes(i).name(), stage.lifetimes(i).slots()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

void printForPeople(const rt::pb::Plan &plan) {
  rt::Mesh mesh(plan.mesh());
  const rt::pb::Settings &settings = plan.settings();
  std::optional<int64_t> trained = trainedParameters(plan);
  fmt::print("{}: {} parameters{}, compiled for {}\n", plan.model(), plan.parameter_count(),
             trained ? fmt::format(", {} of them trained", *trained) : "", plan.target());
  fmt::print("ranks       {} = dp {} x tp {} x pp {} x cp {} x ep {}\n", mesh.ranks(),
             mesh.count(rt::DP | rt::DP_REPLICATE), mesh.count(rt::TP), mesh.count(rt::PP), mesh.count(rt::CP),
             mesh.count(rt::EP));
  int parts = mesh.count(rt::CP);
  fmt::print("batch       {} = micro-batch {} x {} micro-batches x {} replicas, sequence {}{}\n",
             settings.global_batch(), settings.micro_batch_size(), settings.micro_batches(), rt::dataReplicas(mesh),
             settings.sequence(),
             parts > 1 ? fmt::format(" in {} parts of {}", parts, settings.sequence() / parts) : "");
  uint32_t group = plan.mesh().zero_group();
  fmt::print("technique   zero {}{}, sequence parallel {}, recompute {}{}, schedule {}\n", settings.zero(),
             group > 0 ? fmt::format(" in groups of {}", group) : "", settings.sequence_parallel() ? "yes" : "no",
             settings.recompute(), settings.slices_kept_inputs() ? " with inputs sliced over tp" : "",
             settings.schedule());
  for (int i = 0; i < plan.stages_size(); ++i) {
    const rt::pb::Stage &stage = plan.stages(i);
    fmt::print("stage {:<5} {}, arena {}, on the host {}\n", i, layersText(plan, stage),
               mebibytes(stage.arena_bytes(rt::pb::DEVICE)), mebibytes(stage.arena_bytes(rt::pb::HOST)));
    fmt::print("            slots: {}\n", slotsText(stage));
    for (const rt::pb::MemoryClass &part : stage.memory())
      fmt::print("            {:<16} {:>12}\n", part.name(), mebibytes(part.bytes()));
  }
  fmt::print("code        {} subprograms, {} kernels", plan.subprograms_size(), plan.kernels_size());
  for (const rt::pb::Object &object : plan.objects())
    fmt::print(", {} ({} KiB)", object.level(), object.code().size() / 1024);
  fmt::print("\n");
  for (const std::string &library : plan.libraries())
    fmt::print("algorithms  of {}, which runs them alone\n", library);
  for (const rt::pb::Input &input : plan.inputs())
    fmt::print("made from   {}{}{}\n", input.name(), input.sha256().empty() ? "" : " ", input.sha256());
}

ExitCode inspectPlan(const std::string &file, bool isJson, const std::string &report) {
  std::string bytes = rt::readPlanBytes(file);
  rt::pb::Plan plan = rt::parsePlan(bytes, file);
  std::vector<std::string> errors = rt::verifyPlan(plan);
  for (const std::string &error : errors)
    printError(file, error);
  if (!errors.empty())
    return UserError;
  if (!report.empty())
    writeReport(report, fmt::format("A plan of {}", plan.model()), file, planSections(file, plan));
  if (isJson) {
    fmt::print("{}\n", describe(plan).dump(2));
    return Success;
  }
  printForPeople(plan);
  rt::PlanSigner signer = rt::signerOf(file, bytes);
  fmt::print("compiled by {}\n", signer.isKnown ? signer.name : "nobody known here: " + signer.fault);
  return Success;
}

struct InspectArguments {
  std::string path;
  DatasetView view;
  std::string report; ///< file for a report of a plan
};

ExitCode inspectPath(const InspectArguments &arguments) {
  bool isJson = arguments.view.json;
  if (!arguments.report.empty() && (std::filesystem::is_directory(arguments.path) || isIndexedDataset(arguments.path)))
    throw rt::PlanError(fmt::format("--report is for plans, and {} is none", arguments.path));
  if (std::filesystem::is_directory(arguments.path))
    return inspectCheckpoint(arguments.path, isJson) ? Success : UserError;
  if (!isIndexedDataset(arguments.path))
    return inspectPlan(arguments.path, isJson, arguments.report);
  inspectDataset(arguments.path, arguments.view);
  return Success;
}

} // namespace

void addInspectCommand(const Verb &app) {
  Verb inspect = app.verb("inspect", "Show what a plan, a checkpoint folder or a dataset holds");
  auto arguments = std::make_shared<InspectArguments>();
  inspect
      .option("path", arguments->path,
              "a .plan file, a folder of checkpoints or one of them, or PREFIX of PREFIX.bin and .idx")
      .required();
  inspect.flag("--json", arguments->view.json, "print JSON");
  inspect.option("--report", arguments->report, "plans: write a report here as HTML");
  addDatasetView(inspect, arguments->view);
  inspect.action([arguments] { return inspectPath(*arguments); });
}

} // namespace espalier
