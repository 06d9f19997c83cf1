// The plan's key holds everything that the plan depends on: the model, the options, and this command.
#include "tools/run/folder_model.h"

#include "tools/checkpoint/folder_run.h"
#include "tools/run/choose_device.h"
#include "tools/run/own_command.h"
#include "tools/run/plan_cache.h"

#include "compiler/import/run/import_run.h"
#include "tools/command_line/exit_code.h"

#include "format/checksum.h"
#include "format/path_kind.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/convert/convert.h"
#include "runtime/checkpoint/kept_files.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/device/cuda/devices.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int64_t fewestContext = 256;

/// The devices of this machine.
struct Machine {
  std::string target = "cpu";
  int devices = 1;
  uint64_t bytes = 0; ///< of a device
};

Machine hostMachine() {
  uint64_t bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  return {"cpu", 1, bytes >> 30 << 30}; // whole GB, so that the plan of one machine stays the same
}

/// Returns the GPUs. Throws PlanError if there are none.
Machine gpuMachine() {
  std::istringstream told(rt::cuda::inOtherProcess([] {
    rt::cuda::Driver driver;
    rt::cuda::Context context(driver, 0);
    return fmt::format("{} {}", rt::cuda::countDevices(driver), context.memory().total);
  }));
  Machine machine{"cuda", 1, 0};
  told >> machine.devices >> machine.bytes;
  return machine;
}

Machine chooseMachine(const std::string &device) {
  if (device == "cpu")
    return hostMachine();
  if (device == "emulated")
    return {"cuda", 1, uint64_t(1) << 32};
  try {
    return gpuMachine();
  } catch (const rt::PlanError &) {
    if (device == "cuda")
      throw;
    return hostMachine();
  }
}

/// Returns the cluster of the machine as YAML. Rates do not matter, because the plan on the fewest devices is taken.
std::string clusterOf(const Machine &machine) {
  return fmt::format("{{base: {}, hosts: 1, devices_per_host: {}, memory_bytes: {}}}",
                     machine.target == "cpu" ? "cpu_local" : "h100_dgx", machine.devices, machine.bytes);
}

/// Returns whether a parameter has a row for each position, so that the context cannot be shortened.
bool hasPositionTable(const ModelDescription &model) {
  return std::ranges::any_of(model.segments, [](const SegmentDescription &segment) {
    return std::ranges::any_of(segment.ops, [](const OpDescription &op) {
      return op.kind == "embed" && std::ranges::count(op.inputs, "positions") > 0;
    });
  });
}

/// A folder that is removed at the end.
struct Scratch {
  explicit Scratch(fs::path place) : path(std::move(place)) { fs::create_directories(path); }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Scratch(const Scratch &) = delete;
  const fs::path path;
};

/// Identifies this build of the command.
std::string commandKey() {
  fs::path self = fs::read_symlink("/proc/self/exe");
  return fmt::format("{} {} {}", self.string(), fs::last_write_time(self).time_since_epoch().count(),
                     fs::file_size(self));
}

std::string digestOf(const std::string &text) { return rt::checksumText(std::as_bytes(std::span(text))); }

/// Compiles the plans of one folder.
class FolderCompiler {
public:
  FolderCompiler(const fs::path &weights, const FolderWish &wish)
      : weights(weights), wish(wish), machine(chooseMachine(wish.device)),
        cache(planCache("XDG_CACHE_HOME names another folder for the plan")), name(nameOf(weights)),
        scratch(cache / fmt::format(".{}.{}", name, ::getpid())), files(writeFolderRun(weights, scratch.path)) {
    ImportedRun run = importRun(files.run);
    if (!run.ok()) {
      fmt::print(stderr, "{}", run.diagnostics.render());
      throw rt::ReportedElsewhere(UserError);
    }
    int64_t whole = run.config.model.dims.at("seq");
    isFixed = hasPositionTable(run.config.model);
    if (wish.context && (*wish.context > whole || (isFixed && *wish.context < whole)))
      throw rt::PlanError(fmt::format("{}: --context {}: the model has {} {} positions", weights.string(),
                                      *wish.context, isFixed ? "a table of" : "at most", whole));
    context = wish.context.value_or(isFixed ? whole : std::min(whole, FolderWish::mostContext));
    texts = wish.texts;
  }

  /// Returns the plan, compiled if needed. If it does not fit, takes fewer texts, and then a shorter context.
  fs::path plan() {
    for (;;) {
      if (fs::path kept = cache / (fileStem() + ".plan"); isFresh(kept))
        return kept;
      ChildResult made = compile();
      if (made.exitCode == Success)
        return keep();
      bool canShrink = !isFixed && !wish.context && context > fewestContext;
      if (made.exitCode != DoesNotFit || (texts == 1 && !canShrink)) {
        fmt::print(stderr, "{}", made.output);
        throw rt::ReportedElsewhere(made.exitCode);
      }
      if (texts > 1)
        texts /= 2;
      else
        context = std::max(fewestContext, context / 2);
    }
  }
  /// Returns the folder of the tokenizer. That of a GGUF file is written into the cache.
  fs::path side() const {
    if (fs::is_directory(weights))
      return weights;
    fs::path folder = cache / (name + ".tokenizer");
    rt::writeTokenizerFolder(folder, rt::tokenizerOfWeights(weights));
    return folder;
  }
  std::string device() const { return wish.device == "emulated" ? wish.device : machine.target; }

private:
  /// Returns the last part of the path with a digest of the whole path.
  static std::string nameOf(const fs::path &weights) {
    fs::path whole = fs::absolute(weights / "").lexically_normal().parent_path();
    return fmt::format("{}-{}", whole.filename().string(), digestOf(whole.string()));
  }
  std::string fileStem() const { return fmt::format("{}-{}-{}x{}", name, device(), texts, context); }
  std::vector<std::string> words() const {
    std::vector<std::string> all = {"--target", machine.target,
                                    "--set",    "cluster=" + clusterOf(machine),
                                    "--set",    "run_mode=predict",
                                    "--set",    fmt::format("runner_config.batch_size={}", texts),
                                    "--set",    fmt::format("model.model_config.seq_length={}", context)};
    if (!fs::is_directory(weights)) // the plan then has llama.cpp's names
      all.insert(all.end(),
                 {"--set", fmt::format("load_checkpoint={}", nlohmann::json(fs::absolute(weights).string()).dump())});
    return all;
  }
  std::string key() const {
    std::string all = files.texts + commandKey();
    for (const std::string &word : words())
      all += '\0' + word;
    return digestOf(all) + "\n";
  }
  bool isFresh(const fs::path &plan) const {
    fs::path file = plan.string() + ".key";
    return fs::exists(plan) && fs::exists(file) && rt::readText(file, 1024) == key();
  }
  ChildResult compile() const {
    std::vector<std::string> all = {"compile", files.run, "-o", (scratch.path / "x.plan").string()};
    std::ranges::copy(words(), std::back_inserter(all));
    return runOwnCommand(all, ChildOutput::AllCaptured);
  }
  /// Moves the compiled plan into the cache.
  fs::path keep() const {
    fs::path kept = cache / (fileStem() + ".plan");
    fs::remove(kept.string() + ".key");
    fs::rename(scratch.path / "x.plan", kept);
    std::error_code isUnsigned;
    fs::rename(scratch.path / "x.plan.sig", kept.string() + ".sig", isUnsigned);
    rt::writeWhole(kept.string() + ".key", key());
    fmt::print(stderr, "espalier: note: {}: the plan for this machine ({}, {} of {} tokens at a time) is kept in {}\n",
               weights.string(), device(), texts == 1 ? "one text" : fmt::format("{} texts", texts), context,
               kept.string());
    return kept;
  }

  const fs::path weights;
  const FolderWish &wish;
  const Machine machine;
  const fs::path cache;
  const std::string name;
  const Scratch scratch;
  const FolderRun files;
  bool isFixed = false; ///< whether the context is the model's
  int64_t context = 0, texts = 1;
};

/// Returns the weights of a folder whose model is known. Throws PlanError for others, with the way to use them.
fs::path weightsOf(const fs::path &folder) {
  fs::path weights = snapshotOf(folder);
  std::string name = folder.string();
  switch (rt::systemAt(weights)) {
  case rt::WeightSystem::Gguf:
    return weights;
  case rt::WeightSystem::Hf:
    if (!fs::exists(weights / "config.json"))
      throw rt::PlanError(fmt::format("{}: has weights and no config.json, which says their model", name));
    return weights;
  case rt::WeightSystem::Megatron:
  case rt::WeightSystem::Dcp:
    throw rt::PlanError(fmt::format("{0}: weights of Megatron do not say their model: espalier convert {0} FOLDER --to "
                                    "espalier --model RUN.yaml makes a folder that does",
                                    name));
  case rt::WeightSystem::Peft:
    throw rt::PlanError(fmt::format("{0}: holds an adapter (LoRA) without the weights beside which it lies; join them: "
                                    "espalier convert {0} FOLDER --to espalier --base WEIGHTS --model RUN.yaml",
                                    name));
  case rt::WeightSystem::Espalier:
    break;
  }
  if (!keepsRun(weights))
    throw rt::PlanError(fmt::format("{0}: keeps no run file, because an earlier version wrote it: espalier compile "
                                    "RUN.yaml -o X.plan --set run_mode=predict makes a plan, and --checkpoint {0} "
                                    "names these weights",
                                    name));
  return rt::checkpointAt(weights);
}

} // namespace

fs::path snapshotOf(const fs::path &folder) {
  fs::path snapshots = folder / "snapshots", main = folder / "refs" / "main";
  if (!fs::is_directory(snapshots))
    return folder;
  if (fs::exists(main)) {
    std::string hash = rt::readText(main, 256);
    hash.erase(hash.find_last_not_of(" \n") + 1);
    if (!hash.empty() && hash.find('/') == std::string::npos && fs::is_directory(snapshots / hash))
      return snapshots / hash;
  }
  std::vector<fs::path> all;
  for (const auto &entry : fs::directory_iterator(snapshots))
    if (entry.is_directory())
      all.push_back(entry.path());
  if (all.size() != 1)
    throw rt::PlanError(fmt::format("{}: refs/main names none of its {} snapshots; give the folder of one",
                                    folder.string(), all.size()));
  return all.front();
}

FolderModel folderModel(const fs::path &folder, const FolderWish &wish) {
  FolderModel model;
  model.weights = weightsOf(folder);
  if (wish.device == "emulated")
    loadEmulatedDevice(1);
  FolderCompiler compiler(model.weights, wish);
  model.plan = compiler.plan();
  model.device = compiler.device();
  model.side = compiler.side();
  model.tokenizer = rt::tokenizerIn(model.side);
  return model;
}

} // namespace espalier
