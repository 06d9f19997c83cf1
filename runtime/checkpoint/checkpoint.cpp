// A checkpoint is written beside its final name, renamed when all ranks are done, and only then
// named in `latest`.
#include "runtime/checkpoint/checkpoint.h"

#include "runtime/checkpoint/safetensors.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

std::string rankFile(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

/// The first data replica of a rank's blocks: it writes what all replicas hold alike.
int firstReplica(const Mesh &mesh, int rank) { return mesh.group(rank, zeroAxes()).front(); }

/// One tensor of a rank: its name in the file and its place on the device.
struct Block {
  std::string name;
  pb::DataType type;
  uint64_t place, bytes;
  bool isReplicated; ///< equal on all data replicas
};

std::vector<Block> blocksOf(const Program &program, const Executor &executor) {
  std::vector<Block> blocks;
  for (const ParameterPlace &place : parameterPlaces(program.plan(), executor.rankProgram().stage)) {
    const std::string &name = place.parameter->name();
    uint64_t elements = place.slot->local_elements(), held = place.slot->state_elements();
    pb::DataType type = place.parameter->type();
    blocks.push_back({"value/" + name, type, place.values, elements * elementBytes(type), true});
    uint64_t offset = place.state;
    for (const char *kind : {"master/", "moment1/", "moment2/"}) {
      if (kind == std::string("master/") && !place.slot->master())
        continue;
      blocks.push_back({kind + name, pb::F32, offset, held * 4, held == elements});
      offset += held * 4;
    }
  }
  return blocks;
}

/// Where the rank's blocks lie in the global parameters: {"NAME": {"shape", "padded", "begin",
/// "size", "share"}}.
std::string layoutOf(const Program &program, const Executor &executor) {
  nlohmann::ordered_json layout = nlohmann::ordered_json::object();
  const Mesh &mesh = program.mesh();
  int rank = executor.rankProgram().rank;
  for (const ParameterPlace &place : parameterPlaces(program.plan(), executor.rankProgram().stage)) {
    const pb::Parameter &parameter = *place.parameter;
    std::vector<int64_t> begin, size;
    for (int i = 0; i < parameter.padded_shape_size(); ++i) {
      std::vector<std::string> axes(parameter.dims(i).axes().begin(), parameter.dims(i).axes().end());
      size.push_back(parameter.padded_shape(i) / mesh.product(axes));
      begin.push_back(size.back() * mesh.index(rank, axes));
    }
    StateRange share = stateRange(*place.slot, mesh, rank);
    layout[parameter.name()] = {
        {"shape", std::vector<uint64_t>(parameter.shape().begin(), parameter.shape().end())},
        {"padded", std::vector<uint64_t>(parameter.padded_shape().begin(), parameter.padded_shape().end())},
        {"begin", begin},
        {"size", size},
        {"share", {share.begin, share.end}}};
  }
  return layout.dump();
}

void writeText(const Path &file, const std::string &text) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(text.data(), text.size()));
  writeDurably(file, {&bytes, 1});
}

void writeRank(const Path &folder, const Program &program, const Executor &executor) {
  int rank = executor.rankProgram().rank;
  bool isFirst = firstReplica(program.mesh(), rank) == rank;
  std::vector<TensorBytes> tensors;
  std::vector<std::vector<std::byte>> held;
  for (const Block &block : blocksOf(program, executor))
    if (isFirst || !block.isReplicated) {
      held.emplace_back(block.bytes);
      executor.device().copyOut(held.back().data(), block.place, block.bytes);
      tensors.push_back(
          {block.name, block.type, {static_cast<int64_t>(block.bytes / elementBytes(block.type))}, held.back()});
    }
  writeSafetensors(folder / rankFile(rank), tensors, {{"layout", layoutOf(program, executor)}});
}

std::string runText(const Program &program, const ScalarState &state) {
  nlohmann::ordered_json mesh = nlohmann::ordered_json::object();
  for (const pb::Axis &axis : program.plan().mesh())
    mesh[axis.name()] = axis.size();
  nlohmann::ordered_json run = {{"format", 1},
                                {"model", program.plan().model()},
                                {"mesh", mesh},
                                {"step", state.step},
                                {"updates", state.updates},
                                {"consumed_samples", state.consumed},
                                {"loss_scale", state.lossScale},
                                {"clean_steps", state.cleanSteps}};
  return run.dump(2) + "\n";
}

/// A folder name that no checkpoint has yet: a run that resumed before an old checkpoint must not
/// destroy it.
Path freeName(const Path &folder, int64_t step) {
  Path name = fmt::format("step-{:08}", step);
  for (int again = 2; std::filesystem::exists(folder / name); ++again)
    name = fmt::format("step-{:08}-{}", step, again);
  return name;
}

/// What run.json says.
struct SavedRun {
  ScalarState state;
  std::string model, split; ///< split: "dp 2 x tp 1", of the run that wrote it
};

SavedRun readRun(const Path &file) {
  std::ifstream stream(file);
  SavedRun saved;
  ScalarState &state = saved.state;
  try {
    auto run = nlohmann::ordered_json::parse(stream);
    if (run.at("format") != 1)
      throw PlanError(fmt::format("{}: written by a newer Espalier", file.string()));
    state.step = run.at("step");
    state.updates = run.at("updates");
    state.consumed = run.at("consumed_samples");
    state.lossScale = run.at("loss_scale");
    state.cleanSteps = run.at("clean_steps");
    saved.model = run.at("model");
    for (const auto &[axis, size] : run.at("mesh").items())
      saved.split += fmt::format("{}{} {}", saved.split.empty() ? "" : " x ", axis, size.get<int64_t>());
  } catch (const nlohmann::json::exception &problem) {
    throw PlanError(fmt::format("{}: damaged: {}", file.string(), problem.what()));
  }
  return saved;
}

/// The newest complete checkpoint.
Path latestIn(const Path &folder) {
  std::ifstream stream(folder / "latest");
  std::string name;
  if (!std::getline(stream, name) || Path(name).filename() != name)
    throw PlanError(fmt::format("{}: holds no checkpoint", folder.string()));
  return folder / name;
}

} // namespace

void saveCheckpoint(const Path &folder, const Program &program, Executor &executor, const ScalarState &state) {
  Path temporary = folder / fmt::format(".step-{:08}.partial", state.step);
  bool isLeader = executor.rankProgram().rank == 0;
  std::error_code error;
  if (isLeader) {
    std::filesystem::remove_all(temporary, error); // of a run that was killed while saving
    std::filesystem::create_directories(temporary, error);
    if (error)
      throw PlanError(fmt::format("{}: {}", temporary.string(), error.message()));
  }
  executor.barrier();
  writeRank(temporary, program, executor);
  executor.barrier();
  if (isLeader) {
    writeText(temporary / "run.json", runText(program, state));
    syncFolder(temporary);
    Path name = freeName(folder, state.step);
    std::filesystem::rename(temporary, folder / name);
    syncFolder(folder);
    writeText(folder / ".latest.partial", name.string() + "\n");
    std::filesystem::rename(folder / ".latest.partial", folder / "latest");
    syncFolder(folder);
  }
  executor.barrier();
}

std::string latestCheckpoint(const Path &folder) {
  return std::filesystem::exists(folder / "latest") ? latestIn(folder).string() : "";
}

void requireCheckpoint(const Path &folder) { latestIn(folder); }

void makeCheckpointFolder(const Path &folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error)
    throw PlanError(fmt::format("{}: cannot hold checkpoints: {}", folder.string(), error.message()));
}

ScalarState loadCheckpoint(const Path &folder, const Program &program, Executor &executor) {
  Path checkpoint = latestIn(folder);
  ScalarState state = readRun(checkpoint / "run.json").state;
  int rank = executor.rankProgram().rank;
  int first = firstReplica(program.mesh(), rank);
  SafetensorsFile own(checkpoint / rankFile(rank));
  std::optional<SafetensorsFile> replica;
  if (first != rank)
    replica.emplace(checkpoint / rankFile(first));
  auto layout = own.metadata().find("layout");
  if (layout == own.metadata().end() || layout->second != layoutOf(program, executor) ||
      std::filesystem::exists(checkpoint / rankFile(program.mesh().ranks())))
    throw PlanError(fmt::format("{}: written under another split of the parameters; resume with "
                                "the plan that wrote it",
                                checkpoint.string()));
  for (const Block &block : blocksOf(program, executor)) {
    const SafetensorsFile &file = block.isReplicated && replica ? *replica : own;
    std::span<const std::byte> bytes = file.tensor(block.name, block.bytes);
    executor.device().copyIn(block.place, bytes.data(), bytes.size());
  }
  return state;
}

std::string describeCheckpoints(const Path &folder) {
  Path latest = latestIn(folder);
  SavedRun saved = readRun(latest / "run.json");
  uint64_t bytes = 0, files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(latest))
    if (entry.path().extension() == ".safetensors") {
      bytes += entry.file_size();
      ++files;
    }
  std::vector<std::string> older;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory() && entry.path() != latest && entry.path().filename().string().starts_with("step-"))
      older.push_back(entry.path().filename().string());
  std::ranges::sort(older);
  return fmt::format("{}: {} after {} steps ({} applied), {} samples read, loss scale {}\n"
                     "written by  {}\n"
                     "files       {} of ranks, {:.1f} MiB\n"
                     "older       {}\n",
                     latest.string(), saved.model, saved.state.step, saved.state.updates, saved.state.consumed,
                     saved.state.lossScale, saved.split, files, bytes / 1048576.0,
                     older.empty() ? "none" : fmt::format("{}", fmt::join(older, ", ")));
}

} // namespace espalier::rt
