// Injects failures of every kind at random points of random plans on every back end. Each must end all ranks with
// status 1 and a report that names the first failure. Runs that are only late, or suspended as a whole, must succeed.
// Runs mostly wait, so several execute concurrently. ESPALIER_SOAK is the number of runs, ESPALIER_SOAK_SEED the first
// seed, and ESPALIER_SOAK_ONLY a single seed to repeat. Each run prints its seed.
#include "runtime/crash_report.h"
#include "runtime/run/run.h"
#include "test/runtime/sample_plan.h"
#include "test/sanitizer.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <random>
#include <set>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr const char *caseVariable = "ESPALIER_SOAK_CASE", *folderVariable = "ESPALIER_SOAK_FOLDER";
/// Time after which a run counts as hanging. Under mpirun, a run took a minute on a busy machine.
constexpr std::chrono::seconds hangs{300 * slowdown};
/// Duration of a suspension: longer than the watchers' timeout.
constexpr std::chrono::milliseconds suspension{3500};
/// Concurrent runs per core.
constexpr int runsPerCore = 4;

/// The event of a run. The memory limit is real. The full disk is a small mounted disk if mounting is possible, and a
/// file-size limit.
enum Event { Throws, Crashes, Killed, Stopped, NoMemory, MemoryLimit, DiskFull, Late, Suspended, events };
constexpr const char *eventNames[] = {"exception",    "crash",     "killed", "stopped",  "no memory",
                                      "memory limit", "disk full", "late",   "suspended"};
constexpr size_t smallDisk = 8 << 20;
constexpr int runSteps = 6;

struct Case {
  uint64_t seed = 0;
  Comm comm = Comm::local;
  Event event = Throws;
  SampleOptions plan = {};
  int rank = 0;
  int64_t step = 0;
  uint32_t action = 0;

  int ranks() const { return plan.dp * plan.tp * plan.pp; }
  bool isFailure() const { return event < Late; }
  std::string kind() const {
    return fmt::format("{} over {}", eventNames[event],
                       comm == Comm::local ? "threads"
                       : comm == Comm::shm ? "processes"
                                           : "mpirun");
  }
  std::string text() const {
    return fmt::format("ESPALIER_SOAK_ONLY={}: {}, pp {} dp {} tp {}, rank {}, step {}, action {}", seed, kind(),
                       plan.pp, plan.dp, plan.tp, rank, step + 1, action);
  }
};

bool hasMpirun() {
  static const bool has = std::system("command -v mpirun >/dev/null") == 0;
  return has;
}

/// Returns the number of actions of the stage with the fewest actions in a step.
uint32_t actionsOf(const pb::Plan &plan) {
  uint32_t least = UINT32_MAX;
  for (const pb::Stage &stage : plan.stages()) {
    uint32_t count = 0;
    for (const pb::Block &block : stage.entries(0).blocks())
      count += std::max(1u, block.rounds()) * block.actions_size();
    least = std::min(least, count);
  }
  return least;
}

/// Returns the case of a seed. Every process computes the same case.
Case caseOf(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](uint64_t count) { return static_cast<int>(random() % count); };
  Case chosen{.seed = seed};
  int place = below(10);
  chosen.comm = place < 3 ? Comm::local : place < 9 || !hasMpirun() ? Comm::shm : Comm::mpi;
  // A signal kills or stops all threads of a process, which is not a failure of one rank.
  do
    chosen.event = static_cast<Event>(below(events));
  while ((chosen.comm == Comm::local && (chosen.event == Killed || chosen.event == Stopped)) ||
         (isSanitized && chosen.event == MemoryLimit));
  struct Split {
    int pp, dp, tp;
  };
  constexpr Split splits[] = {{1, 2, 1}, {2, 1, 1}, {1, 1, 2}, {2, 2, 1}, {2, 2, 2}, {4, 1, 1}};
  const Split &split = splits[below(std::size(splits))];
  chosen.plan.pp = split.pp;
  chosen.plan.dp = split.dp;
  chosen.plan.tp = split.tp;
  chosen.plan.zero = below(2) == 1;
  chosen.rank = below(chosen.ranks());
  chosen.step = below(4);
  if (chosen.event == DiskFull)
    chosen.plan.features = 1200;
  chosen.action = below(actionsOf(samplePlan(chosen.plan)));
  return chosen;
}

/// Mounts a small disk at the checkpoint folder, before other processes start. Does nothing if the system forbids it.
void mountSmallDisk(const fs::path &checkpoints) {
  fs::create_directories(checkpoints);
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
    mount("none", checkpoints.c_str(), "tmpfs", 0, fmt::format("size={}", smallDisk).c_str());
}

/// Fills the small disk, if there is one. Then limits the file size to more than a report and less than a checkpoint,
/// because a save that is removed may leave as much room as the last save needs.
void fillDisk(const fs::path &checkpoints, int rank) {
  struct statvfs disk = {};
  if (statvfs(checkpoints.c_str(), &disk) == 0 && disk.f_blocks * disk.f_frsize <= smallDisk) {
    std::ofstream filler(checkpoints / fmt::format("filler-{}", rank), std::ios::binary);
    for (std::string block(1 << 16, 'x'); filler.write(block.data(), static_cast<std::streamsize>(block.size()));)
      filler.flush();
  }
  rlimit small{8192, 8192};
  setrlimit(RLIMIT_FSIZE, &small);
}

/// Sets the memory limit to the current size and allocates more.
void exhaustMemory() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlim_t size = pages * sysconf(_SC_PAGESIZE);
  rlimit taken{size, size};
  setrlimit(RLIMIT_AS, &taken);
  std::vector<std::unique_ptr<char[]>> all;
  for (;;)
    all.push_back(std::make_unique<char[]>(1 << 26));
}

RunOptions optionsOf(const Case &chosen, const fs::path &folder) {
  constexpr Fault::Kind kinds[] = {Fault::Exception, Fault::Crash,     Fault::Kill,      Fault::Stop,
                                   Fault::Memory,    Fault::Exception, Fault::Exception, Fault::Sleep};
  RunOptions run;
  run.comm = chosen.comm;
  run.dataset = sampleData(chosen.plan.features, 64);
  run.steps = runSteps;
  run.threads = 1;
  run.failureReport = folder / "report.json";
  run.failureSeconds = 3;
  if (chosen.event < MemoryLimit || chosen.event == Late)
    run.fault = Fault{chosen.rank, chosen.step, chosen.action, /*instruction=*/0, kinds[chosen.event]};
  if (chosen.event == DiskFull) {
    run.checkpoint = folder / "checkpoints";
    run.saveEvery = 1;
    run.inspect = [step = chosen.step, folder = run.checkpoint](const Executor &executor) {
      if (executor.step == step)
        fillDisk(folder, executor.rankProgram().rank);
    };
  }
  if (chosen.event == MemoryLimit)
    run.inspect = [&chosen](const Executor &executor) {
      if (executor.step == chosen.step && executor.rankProgram().rank == chosen.rank)
        exhaustMemory();
    };
  if (chosen.event == Suspended) // reports that the run has started, and makes it long enough to be suspended
    run.inspect = [step = chosen.step, folder](const Executor &executor) {
      if (executor.step == step)
        std::ofstream(folder / "working").flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
  return run;
}

/// Runs the plan in the child process, or in each process of mpirun, and exits as `espalier run` does.
[[noreturn]] void live(const Case &chosen, const fs::path &folder) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  try {
    reportCrashes();
    runPlan(Program(samplePlan(chosen.plan), 1), optionsOf(chosen, folder));
    _exit(0);
  } catch (const ReportedElsewhere &error) {
    _exit(error.status);
  } catch (const std::exception &error) {
    fmt::print(stderr, "{}\n", error.what());
    std::fflush(nullptr);
    _exit(1);
  }
}

/// Starts the run in its own process group, with its output in a file.
pid_t start(const Case &chosen, const fs::path &folder) {
  pid_t child = fork();
  if (child != 0)
    return child;
  setpgid(0, 0);
  std::freopen((folder / "log").c_str(), "w", stdout);
  dup2(STDOUT_FILENO, STDERR_FILENO);
  if (chosen.event == DiskFull)
    mountSmallDisk(folder / "checkpoints");
  if (chosen.comm != Comm::mpi)
    live(chosen, folder);
  setenv(caseVariable, std::to_string(chosen.seed).c_str(), 1);
  setenv(folderVariable, folder.c_str(), 1);
  for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  execlp("mpirun", "mpirun", "-quiet", "--oversubscribe", "--bind-to", "none", "-np",
         std::to_string(chosen.ranks()).c_str(), fs::read_symlink("/proc/self/exe").c_str(), nullptr);
  _exit(127);
}

/// Returns the descendants of process `parent`.
std::vector<pid_t> descendantsOf(pid_t parent) {
  std::map<pid_t, pid_t> parents;
  for (const fs::directory_entry &entry : fs::directory_iterator("/proc")) {
    pid_t id = std::atoi(entry.path().filename().c_str()), up = 0;
    if (id <= 0)
      continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text); // empty if the process has exited meanwhile
    if (text.find(')') != std::string::npos && std::sscanf(text.c_str() + text.rfind(')') + 1, " %*c %d", &up) == 1)
      parents[id] = up;
  }
  std::vector<pid_t> found;
  for (auto [id, up] : parents)
    for (pid_t at = id; at > 1; at = parents.contains(at) ? parents.at(at) : 0)
      if (at == parent) {
        found.push_back(id);
        break;
      }
  return found;
}

/// Stops all processes of the run, as Ctrl-Z does, including those that are being started. Returns their ids.
std::set<pid_t> stopAll(pid_t run) {
  std::set<pid_t> stopped;
  for (size_t before = 1; stopped.size() != std::exchange(before, stopped.size());)
    for (pid_t process : descendantsOf(run))
      if (stopped.insert(process).second)
        kill(process, SIGSTOP);
  return stopped;
}

std::string textOf(const fs::path &file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns what is wrong with the report of a case, or an empty string.
std::string wrongIn(const Case &chosen, const Json &report) {
  constexpr const char *causes[] = {"injected fault",
                                    "its process was killed by signal 11",
                                    "its process was killed by signal 9",
                                    "it was stopped",
                                    "the system refuses more memory",
                                    "the system refuses more memory",
                                    ""};
  std::string cause = report.at("cause");
  bool isCrash = chosen.event == Crashes && cause.starts_with("bad address 0x40");
  if (!isCrash && cause.find(causes[chosen.event]) == std::string::npos)
    return "another cause";
  if (report.at("waiting").size() != static_cast<size_t>(chosen.ranks() - 1))
    return "not all others wait";
  bool isDisk =
      cause.find("No space left on device") != std::string::npos || cause.find("File too large") != std::string::npos;
  bool isLimit = cause.find("--max-unsaved") != std::string::npos;
  if (chosen.event == DiskFull && isDisk && report.at("step") != runSteps && !isLimit)
    return "another step"; // a save that fails ends the run if it is the last one or reaches --max-unsaved
  if (chosen.event == DiskFull || chosen.event == MemoryLimit)
    return chosen.event == MemoryLimit || isDisk ? "" : "another cause";
  std::string action = report.at("action").is_null() ? "" : report.at("action");
  if (report.at("rank") != chosen.rank || report.at("step") != chosen.step + 1 ||
      !action.starts_with(fmt::format("action {} of train_step", chosen.action)))
    return "another place";
  return "";
}

/// Returns what is wrong with the end of a run, or an empty string.
std::string judge(const Case &chosen, const std::optional<int> &status, const fs::path &folder) {
  if (!status)
    return "it hangs";
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != (chosen.isFailure() ? 1 : 0))
    return fmt::format("it ended with {:#x}", *status);
  if (!chosen.isFailure())
    return "";
  Json report = Json::parse(textOf(folder / "report.json"), nullptr, /*allow_exceptions=*/false);
  return report.is_discarded() ? "there is no report" : wrongIn(chosen, report);
}

uint64_t numberOf(const char *variable, uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Tally {
  int runs = 0;
  double seconds = 0, longest = 0;
};

/// A run in progress.
class Running {
public:
  explicit Running(const Case &chosen) : chosen(chosen) {
    std::string pattern = (fs::temp_directory_path() / "espalier_soak_XXXXXX").string();
    folder = mkdtemp(pattern.data());
    process = start(chosen, folder);
    handle = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  }

  pollfd ending() const { return {handle, POLLIN, 0}; }

  /// Suspends and continues a run if its case requires it. Kills a hanging run. Returns whether the run has ended.
  bool turn() {
    auto age = Clock::now() - begin;
    if (chosen.event == Suspended && stopped.empty() && isToBeSuspended(age)) {
      stopped = stopAll(process);
      resumes = Clock::now() + suspension;
    } else if (resumes && Clock::now() > *resumes) {
      resumes.reset();
      for (pid_t one : stopped)
        kill(one, SIGCONT);
    }
    pollfd end = ending();
    if (poll(&end, 1, 0) == 1)
      return hasEnded = true;
    if (age < hangs)
      return false;
    for (pid_t one : descendantsOf(process))
      kill(one, SIGKILL);
    return true;
  }

  /// Reports the errors of the ended run.
  void finish(Tally &tally) {
    int status = 0;
    waitpid(process, &status, 0);
    close(handle);
    std::string wrong = judge(chosen, hasEnded ? std::optional(status) : std::nullopt, folder);
    EXPECT_EQ(wrong, "") << chosen.text() << "\n" << textOf(folder / "report.json") << textOf(folder / "log");
    fs::remove_all(folder);
    std::chrono::duration<double> seconds = Clock::now() - begin;
    ++tally.runs;
    tally.seconds += seconds.count();
    tally.longest = std::max(tally.longest, seconds.count());
  }

  const Case chosen;

private:
  /// Some runs are suspended during start-up, others during a step.
  bool isToBeSuspended(Clock::duration age) const {
    bool atBegin = chosen.step == 0 && chosen.action % 2 == 0;
    return atBegin ? age > std::chrono::milliseconds(200) : fs::exists(folder / "working");
  }

  fs::path folder;
  Clock::time_point begin = Clock::now();
  pid_t process = -1;
  int handle = -1;
  bool hasEnded = false;
  std::set<pid_t> stopped;
  std::optional<Clock::time_point> resumes;
};

/// Waits until one of the runs has ended or a short time has passed.
void await(const std::list<Running> &runs) {
  std::vector<pollfd> ends;
  for (const Running &run : runs)
    ends.push_back(run.ending());
  poll(ends.data(), ends.size(), /*milliseconds=*/20);
}

TEST(Soak, EveryFailureEndsAllAndNothingElseDoes) {
  if (const char *own = std::getenv(caseVariable))
    live(caseOf(std::strtoull(own, nullptr, 10)), std::getenv(folderVariable));
  uint64_t first = numberOf("ESPALIER_SOAK_SEED", 1), count = numberOf("ESPALIER_SOAK", 40);
  if (std::getenv("ESPALIER_SOAK_ONLY"))
    first = numberOf("ESPALIER_SOAK_ONLY", 1), count = 1;
  size_t atOnce = runsPerCore * std::max(1u, std::thread::hardware_concurrency());
  std::map<std::string, Tally> tallies;
  std::list<Running> runs;
  for (uint64_t seed = first; seed < first + count || !runs.empty();) {
    if (seed < first + count && runs.size() < atOnce) {
      Case chosen = caseOf(seed++);
      if (std::getenv("ESPALIER_SOAK_SHOW"))
        fmt::print("{}\n", chosen.text());
      std::fflush(nullptr); // otherwise the child would write buffered output again
      runs.emplace_back(chosen);
      continue;
    }
    await(runs);
    for (auto run = runs.begin(); run != runs.end();)
      if (run->turn()) {
        run->finish(tallies[run->chosen.kind()]);
        run = runs.erase(run);
      } else
        ++run;
  }
  for (const auto &[name, tally] : tallies)
    fmt::print("{:27} {:6} runs, mean {:.2f} s, longest {:.2f} s\n", name, tally.runs, tally.seconds / tally.runs,
               tally.longest);
}

} // namespace
} // namespace espalier::rt
