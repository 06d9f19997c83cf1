// `espalier demo`: shows in a few minutes what the command does, with files that are installed beside it.
#include "tools/commands.h"

#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/config_files.h"
#include "runtime/status.h"
#include "tools/run/own_command.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

struct DemoArguments {
  std::string folder; ///< where the files go; empty: a folder that is removed at the end
  int comparedSteps = 60;
  std::optional<int> steps; ///< of the last training; unset: those of its run file
};

/// Returns the folder with models, clusters and demo/.
fs::path demoConfigs() {
  for (const std::string &folder : configFolders("demo.yaml", {}))
    if (fs::exists(fs::path(folder) / "demo" / "alice.txt"))
      return folder;
  throw rt::PlanError("the files of the demo (configs/demo) are not installed beside this command");
}

/// A folder that is removed with this object, unless the user named it.
class Workspace {
public:
  explicit Workspace(const std::string &named) : isKept(!named.empty()) {
    if (isKept) {
      folder = named;
      fs::create_directories(folder);
      return;
    }
    std::string pattern = fs::temp_directory_path() / "espalier-demo-XXXXXX";
    if (!mkdtemp(pattern.data()))
      throw rt::PlanError(fmt::format("{}: no folder can be made there; --folder DIR names another place", pattern));
    folder = pattern;
  }
  ~Workspace() {
    std::error_code ignored;
    if (!isKept)
      fs::remove_all(folder, ignored);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;

  std::string file(const char *name) const { return folder / name; }

private:
  fs::path folder;
  bool isKept;
};

void heading(const std::string &text) {
  bool hasColors = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
  fmt::print("\n{}{}{}\n", hasColors ? "\x1b[1m" : "", text, hasColors ? "\x1b[0m" : "");
}

/// A command that was shown.
struct Shown {
  double seconds = 0;
  std::string output; ///< if it was captured
};

/// Prints a command as a user would type it and runs it. Throws if it fails.
Shown show(const std::vector<std::string> &words, ChildOutput output = ChildOutput::Inherited) {
  std::string line = "$ espalier";
  for (const std::string &word : words)
    line += word.find_first_of(" *'\"") == std::string::npos ? " " + word : fmt::format(" \"{}\"", word);
  fmt::print("\n{}\n", line);
  std::fflush(stdout);
  auto begin = std::chrono::steady_clock::now();
  ChildResult result = runOwnCommand(words, output);
  if (result.exitCode != 0)
    throw rt::ReportedElsewhere(result.exitCode);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), std::move(result.output)};
}

std::string contentOf(const std::string &file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Returns the words of a text in lower case, without punctuation.
std::vector<std::string> wordsOf(const std::string &text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    bool isLetter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (isLetter)
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty())
    words.pop_back();
  return words;
}

/// Returns the losses of a metrics file.
std::vector<double> lossesOf(const std::string &file) {
  std::vector<double> losses;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    losses.push_back(nlohmann::json::parse(line).value("loss", std::nan("")));
  return losses;
}

/// Prints the losses of two runs side by side. Throws if an early one differs: rounding errors grow with the steps.
void compareLosses(const std::vector<double> &split, const std::vector<double> &whole) {
  constexpr size_t early = 10;
  constexpr double limit = 1e-5;
  double largest = 0;
  fmt::print("\n  step  eight ranks     one rank  relative difference\n");
  for (size_t i = 0; i < std::min(split.size(), whole.size()); ++i) {
    double difference = std::abs(split[i] - whole[i]) / whole[i];
    if (i < early && !(difference <= limit))
      throw rt::PlanError(fmt::format("step {}: the split model has loss {}, the unsplit one {}; please report this",
                                      i + 1, split[i], whole[i]));
    largest = std::max(largest, difference);
    if (i == 0 || (i + 1) % 10 == 0)
      fmt::print("{:6}  {:11.6f}  {:11.6f}  {:19.1e}\n", i + 1, split[i], whole[i], difference);
  }
  fmt::print("the largest relative difference of the losses is {:.1e}: both train the same model\n", largest);
}

/// Trains a small model split over eight ranks and unsplit, and compares the losses.
void showSplits(const DemoArguments &arguments, const fs::path &configs, const Workspace &work,
                const std::string &text) {
  std::string run = configs / "tiny_gpt.yaml", steps = std::to_string(arguments.comparedSteps);
  std::vector<std::vector<double>> losses;
  for (bool isSplit : {true, false}) {
    std::string name = isSplit ? "split" : "unsplit", plan = work.file((name + ".plan").c_str());
    heading(isSplit ? "   split over eight ranks: dp 2, tp 2, pp 2, four micro-batches, ZeRO 1"
                    : "   the same model on one rank, eight micro-batches");
    std::vector<std::string> compile = {"compile", run, "-o", plan};
    if (!isSplit)
      for (const char *word : {"--cluster", "cpu_local:1x1", "--set", "parallel_config.data_parallel=1", "--set",
                               "parallel_config.model_parallel=1", "--set", "parallel_config.pipeline_stage=1", "--set",
                               "runner_config.gradient_accumulation_steps=8"})
        compile.push_back(word);
    show(compile);
    std::string metrics = work.file((name + ".jsonl").c_str());
    show({"run", plan, "--data", text, "--steps", steps, "--log-every", "20", "--metrics", metrics});
    losses.push_back(lossesOf(metrics));
  }
  compareLosses(losses[0], losses[1]);
}

/// Returns the last evaluation of a metrics file; nothing if it has none.
std::optional<double> heldOutLoss(const std::string &file) {
  std::optional<double> loss;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (nlohmann::json json = nlohmann::json::parse(line); json.contains("evaluation_loss"))
      loss = json["evaluation_loss"];
  return loss;
}

/// Trains a model on plays and prints text that it generates.
void showText(const DemoArguments &arguments, const fs::path &configs, const Workspace &work) {
  std::string run = configs / "demo" / "demo.yaml", text = configs / "demo" / "plays.txt";
  std::string tokenizer = work.file("plays.json"), prefix = work.file("plays"), metrics = work.file("plays.jsonl");
  std::string checkpoint = work.file("checkpoints"), machine = work.file("machine.yaml");
  show({"data", "train-tokenizer", text, "--output", tokenizer, "--vocab-size", "2048"});
  show({"data", "tokenize", text, "--tokenizer", "hf", "--tokenizer-model", tokenizer, "--output-prefix", prefix,
        "--overwrite"});
  show({"calibrate", "--ranks", "2", "-o", machine}); // so that the predicted times are those of this machine
  std::vector<std::string> train = {"train",
                                    run,
                                    "--cluster",
                                    machine,
                                    "--data",
                                    prefix + "_text_document",
                                    "-o",
                                    work.file("demo.plan"),
                                    "--checkpoint",
                                    checkpoint,
                                    "--metrics",
                                    metrics,
                                    "--log-every",
                                    "50",
                                    "--eval-every",
                                    std::to_string(arguments.steps.value_or(200)),
                                    "--eval-batches",
                                    "8"};
  if (arguments.steps)
    train.insert(train.end(), {"--steps", std::to_string(*arguments.steps)});
  double seconds = show(train).seconds;
  fmt::print("trained in {:.0f} s\n", seconds);
  setenv("XDG_CACHE_HOME", work.file("cache").c_str(), /*overwrite=*/1); // for the plan of the checkpoint
  std::vector<std::string> generate = {"generate",      checkpoint, "--prompt", "ROSALIND.", "--max-tokens", "120",
                                       "--temperature", "0.7",      "--top-k",  "40",        "--seed",       "1"};
  std::string written = show(generate, ChildOutput::Captured).output;
  fmt::print("{}", written);
  std::vector<std::string> said = wordsOf(written), known = wordsOf(contentOf(text));
  std::set<std::string> plays(known.begin(), known.end());
  fmt::print("\n{} of {} words are words of the plays",
             std::ranges::count_if(said, [&](const std::string &word) { return plays.contains(word); }), said.size());
  std::vector<double> losses = lossesOf(metrics);
  std::erase_if(losses, [](double loss) { return std::isnan(loss); });
  if (std::optional<double> heldOut = heldOutLoss(metrics); heldOut && !losses.empty())
    fmt::print("; loss {:.2f} on text that the model learned, {:.2f} on text that was held out", losses.back(),
               *heldOut);
  fmt::print("\n");
}

/// Lets the user talk to the model.
void talk(const Workspace &work) {
  bool isTerminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  heading("4. Talk to it");
  fmt::print("The model continues each line in the manner of the plays{}\n",
             isTerminal ? "; Ctrl-D ends the demo" : "");
  std::vector<std::string> chat = {"chat", work.file("checkpoints"), "--max-tokens", "60"};
  if (!isTerminal)
    chat.insert(chat.end(), {"--prompt", "My lord, I have heard"});
  show(chat);
}

void demo(const DemoArguments &arguments) {
  fs::path configs = demoConfigs();
  std::string text = configs / "demo" / "alice.txt";
  Workspace work(arguments.folder);
  heading("1. A model of 13 billion parameters, planned and compiled for 32 devices");
  std::string large = work.file("gpt2_13b.plan");
  double seconds = show({"compile", configs / "gpt2_13b.yaml", "-o", large}).seconds;
  fmt::print("compiled in {:.1f} s into a plan of {:.2f} MB\n", seconds,
             static_cast<double>(fs::file_size(large)) / 1e6);
  show({"inspect", large});
  heading("2. A small GPT, split and unsplit: the same training run?");
  fmt::print("{} bytes of text, {} steps of 32 samples of 64 bytes\n", fs::file_size(text), arguments.comparedSteps);
  showSplits(arguments, configs, work, text);
  heading("3. A model learns to write: twelve comedies of Shakespeare, about four minutes");
  showText(arguments, configs, work);
  talk(work);
  fmt::print("\n{}\n", arguments.folder.empty()
                           ? "`espalier demo --folder DIR` keeps the plans, the tokenizer and the checkpoint"
                           : fmt::format("the plans, the tokenizer and the checkpoint are in {0}; `espalier chat "
                                         "{0}/checkpoints` goes on",
                                         arguments.folder));
}

} // namespace

void addDemoCommand(const Verb &app) {
  Verb command = app.verb("demo", "Show on this machine what all this does, in about six minutes");
  auto arguments = std::make_shared<DemoArguments>();
  command.option("--folder", arguments->folder, "keep the files that the demo makes here");
  command.option("--steps", arguments->steps, "steps of the last training; default: as its run file says")
      .range(1, 1000000);
  command.option("--compared-steps", arguments->comparedSteps, "steps of the split and the unsplit run")
      .range(1, 1000000);
  command.action([arguments] { demo(*arguments); });
}

} // namespace espalier
