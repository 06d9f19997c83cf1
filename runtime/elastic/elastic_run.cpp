// The supervisor blocks its signals and waits for them and for its child in one place. The child has its own process
// group, because a terminal signals a whole group, and a second signal would end the ranks at once.
#include "runtime/elastic/elastic_run.h"

#include "messages/counted.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/unfinished.h"
#include "runtime/elastic/attempt.h"
#include "runtime/elastic/members.h"
#include "runtime/files/atomic_file.h"
#include "runtime/processes/child_process.h"
#include "runtime/status.h"

#include "messages/error_line.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

/// Number of signals to forward: the second one ends ranks at once. Later ones kill the attempt.
constexpr int passedOn = 2;
constexpr std::chrono::milliseconds pollEvery{50};
/// The time within which the processes of an ended attempt must have released the folder of the checkpoints.
constexpr std::chrono::milliseconds unlockTime{10000};
/// Number of the latest restarts that are told to attempts; an environment variable has limited size.
constexpr size_t mostRestartsTold = 100;

/// The exit status of a run that failed, which may go on; user errors and others would occur again.
constexpr int failed = 1;

/// Files in the folder of the checkpoints, which all hosts of the run see.
constexpr const char *hiddenReport = ".elastic-failure.json", *hiddenHosts = ".elastic-hosts";

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string contentOf(const fs::path &file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// Returns the signals that the supervisor waits for, without those that this process ignores.
sigset_t signalsToAwait() {
  sigset_t awaited = awaitedSignals({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGTSTP});
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGTSTP}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) // nohup ignores SIGHUP
      sigdelset(&awaited, signal);
  }
  return awaited;
}

class ElasticRun {
public:
  explicit ElasticRun(const ElasticJob &job);
  ~ElasticRun();
  int run();

private:
  std::optional<std::vector<HostSlots>> choose(const Members &all, ElasticPlan &chosen) const;
  bool chooseNext();
  int runAttempt();
  std::optional<int> startAttempt();
  void showSlots() const;
  void handle(int signal);
  void growIfSaved();
  bool isFailure(int status);
  void loseMembers();
  void completeSave() const;
  void tell(const RestartRecord &record) const;
  std::string shortage() const;
  bool hasNewCheckpoint() const { return contentOf(latest) != latestAtStart; }

  const ElasticJob &job;
  const std::vector<std::string> command;
  const fs::path latest, report, hostsFile;
  const std::string latestAtStart; ///< content of `latest` before the run
  Members members;
  ElasticPlan plan;
  std::vector<HostSlots> places;
  std::vector<RestartRecord> restarts;
  int64_t failures = 0;
  pid_t child = -1; ///< 0 in the child
  int signalsSeen = 0, firstSignal = 0;
  std::string latestSeen; ///< content of `latest` when it was last examined
  bool isGrowing = false; ///< the attempt was asked to end, because more ranks can go on
  std::string cause;      ///< of the last failure
  sigset_t awaited, before{};
};

std::vector<std::string> ownWords() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(word);
  return words;
}

ElasticRun::ElasticRun(const ElasticJob &job)
    : job(job), command(ownWords()), latest(job.checkpoint / "latest"),
      report(job.report.empty() ? job.checkpoint / hiddenReport : job.report), hostsFile(job.checkpoint / hiddenHosts),
      latestAtStart(contentOf(latest)), members(job.hosts), awaited(signalsToAwait()) {
  fs::create_directories(job.checkpoint);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  std::signal(SIGPIPE, SIG_IGN); // the run goes on if nobody reads
}

ElasticRun::~ElasticRun() {
  if (child == 0)
    return;
  std::error_code ignored;
  for (const char *hidden : {hiddenReport, hiddenHosts})
    fs::remove(job.checkpoint / hidden, ignored);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

/// Returns the slots for the plan with the most ranks that fits, and sets `chosen` to that plan.
std::optional<std::vector<HostSlots>> ElasticRun::choose(const Members &all, ElasticPlan &chosen) const {
  for (const ElasticPlan &each : job.plans) {
    if (each.ranks < job.limits.minRanks)
      continue;
    if (std::optional<std::vector<HostSlots>> fitting = all.slotsFor(each.ranks)) {
      chosen = each;
      return fitting;
    }
  }
  return std::nullopt;
}

bool ElasticRun::chooseNext() {
  std::optional<std::vector<HostSlots>> next = choose(members, plan);
  if (next)
    places = *next;
  return next.has_value();
}

/// Returns why no plan fits the slots that are left.
std::string ElasticRun::shortage() const {
  std::string left = fmt::format("{} of {} are left", members.left(), counted(members.all(), "rank"));
  if (members.left() < job.limits.minRanks)
    return fmt::format("{}, fewer than --min-ranks {}", left, job.limits.minRanks);
  const ElasticPlan *smallest = nullptr;
  for (const ElasticPlan &each : job.plans)
    if (each.ranks >= job.limits.minRanks)
      smallest = &each;
  return fmt::format("{}, and no compiled plan fits them (each host takes equally many): the smallest is {} for {}{}; "
                     "compile further ones with --elastic-hosts or --elastic-devices",
                     left, smallest ? smallest->file : "none", counted(smallest ? smallest->ranks : 0, "rank"),
                     job.limits.minRanks > 1 ? fmt::format(" (--min-ranks {})", job.limits.minRanks) : "");
}

/// Shows the ranks of an attempt on one host only the devices of its slots.
void ElasticRun::showSlots() const {
  constexpr const char *variable = "CUDA_VISIBLE_DEVICES";
  if (!job.isCuda || job.answering)
    return;
  std::vector<std::string> visible, shown;
  const char *given = std::getenv(variable);
  std::istringstream list(given ? given : "");
  for (std::string device; std::getline(list, device, ',');)
    visible.push_back(device);
  for (int slot : places.front().slots)
    shown.push_back(static_cast<size_t>(slot) < visible.size() ? visible[slot] : std::to_string(slot));
  bool isPart = places.front().slots.back() + 1 != static_cast<int>(places.front().slots.size());
  if (isPart) // else the first devices are used anyway
    setenv(variable, fmt::format("{}", fmt::join(shown, ",")).c_str(), /*overwrite=*/1);
}

/// Returns the exit code in a child that has run the attempt; nothing in this process.
std::optional<int> ElasticRun::startAttempt() {
  if (fs::is_regular_file(report))
    fs::remove(report);
  Attempt attempt{plan.file, "", report.string(), job.resume || hasNewCheckpoint(), restarts};
  if (attempt.restarts.size() > mostRestartsTold)
    attempt.restarts.erase(attempt.restarts.begin(), attempt.restarts.end() - mostRestartsTold);
  if (job.answering) {
    std::string lines;
    for (const HostSlots &place : places)
      lines += fmt::format("{} slots={}\n", place.address, place.slots.size());
    writeWhole(hostsFile, lines);
    attempt.hosts = fs::absolute(hostsFile).string();
  }
  latestSeen = contentOf(latest);
  isGrowing = false;
  std::fflush(nullptr);
  std::vector<std::string> words = command;
  pid_t parent = getpid();
  child = fork();
  if (child < 0)
    throw MemoryError(fmt::format("the system refuses a process: {}", std::strerror(errno)));
  if (child > 0)
    return std::nullopt;
  std::signal(SIGPIPE, SIG_DFL);
  separateChild(job.deathSignal, before);
  if (getppid() != parent)
    _exit(1);
  showSlots();
  if (job.runAttempt)
    return job.runAttempt(attempt);
  setenv(attemptVariable, printAttempt(attempt).c_str(), /*overwrite=*/1);
  std::vector<char *> pointers = argumentsOf(words);
  execv("/proc/self/exe", pointers.data());
  _exit(127);
}

void ElasticRun::handle(int signal) {
  if (signal == SIGTSTP) {
    kill(-child, SIGSTOP);
    raise(SIGSTOP);
    kill(-child, SIGCONT);
    return;
  }
  if (signalsSeen++ == 0)
    firstSignal = signal;
  // An attempt that ends to grow has already received a signal, and another one would end it at once.
  if (isGrowing && signalsSeen == 1)
    return;
  if (signalsSeen <= passedOn)
    kill(child, signal);
  else
    kill(-child, SIGKILL);
}

/// After a save of the attempt: asks it to end if lost slots and hosts that answer again allow more ranks.
void ElasticRun::growIfSaved() {
  std::string content = contentOf(latest);
  if (content == latestSeen)
    return;
  latestSeen = content;
  if (isGrowing || signalsSeen > 0)
    return;
  members.noteSave();
  Members grown = members;
  if (job.answering)
    if (std::vector<std::string> lost = members.hosts(/*areLost=*/true); !lost.empty())
      for (const std::string &address : job.answering(lost))
        grown.takeHost(address);
  grown.takeSlots();
  ElasticPlan larger;
  if (!choose(grown, larger) || larger.ranks <= plan.ranks)
    return;
  members = grown;
  isGrowing = true;
  kill(child, SIGTERM);
}

/// Runs the chosen plan to the end of the attempt, and returns the wait status. In a child that has run the attempt,
/// returns the exit code.
int ElasticRun::runAttempt() {
  if (std::optional<int> code = startAttempt())
    return *code;
  return superviseChild(child, awaited, [this](int signal) { handle(signal); }, pollEvery, [this] { growIfSaved(); });
}

/// Returns whether the attempt has lost a rank or a host, and sets the cause. Errors that would occur again, such as
/// user errors or divergence, are no failures in this sense.
bool ElasticRun::isFailure(int status) {
  if (WIFSIGNALED(status)) {
    cause = fmt::format("the process that started the ranks was killed by signal {} ({})", WTERMSIG(status),
                        strsignal(WTERMSIG(status)));
    return WTERMSIG(status) != SIGPIPE;
  }
  if (WEXITSTATUS(status) != failed)
    return false;
  if (fs::exists(report)) {
    nlohmann::json json = nlohmann::json::parse(contentOf(report), nullptr, /*allow_exceptions=*/false);
    return !json.is_object() || !json.value("final", false);
  }
  cause = "hosts do not answer";
  return job.answering &&
         job.answering(members.hosts(/*areLost=*/false)).size() < members.hosts(/*areLost=*/false).size();
}

/// Removes the hosts that do not answer. If all answer, removes the slot of the rank that failed.
void ElasticRun::loseMembers() {
  if (contentOf(latest) != latestSeen) // growIfSaved() has not seen the last save
    members.noteSave();
  if (job.answering) {
    std::vector<std::string> left = members.hosts(/*areLost=*/false), alive = job.answering(left), lost;
    for (const std::string &address : left)
      if (std::ranges::find(alive, address) == alive.end())
        lost.push_back(address);
    for (const std::string &address : lost)
      members.loseHost(address);
    if (!lost.empty()) {
      cause = fmt::format("{} {} not answer", fmt::join(lost, ", "), lost.size() == 1 ? "does" : "do");
      return;
    }
  }
  nlohmann::json json = nlohmann::json::parse(contentOf(report), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("rank") || !json["rank"].is_number_integer())
    return;
  int rank = json["rank"];
  cause = fmt::format("rank {}: {}", rank, json.value("cause", "it failed"));
  // A host cannot leave out a single device, because each host has the ranks of its first devices.
  members.loseRank(places, rank, /*isAllSlots=*/job.isCuda && job.answering);
}

/// Waits until the processes of the attempt have ended, which hold the lock of the checkpoints. Then completes the save
/// that was in flight, if the lost process had written its part.
void ElasticRun::completeSave() const {
  int lock = open((job.checkpoint / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  auto end = std::chrono::steady_clock::now() + unlockTime;
  while (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < end)
    usleep(10000);
  if (lock < 0)
    return;
  if (flock(lock, LOCK_EX | LOCK_NB) == 0)
    rt::completeSave(job.checkpoint);
  close(lock);
}

void ElasticRun::tell(const RestartRecord &record) const {
  std::string checkpoint = hasNewCheckpoint() || job.resume ? latestCheckpoint(job.checkpoint) : "";
  std::string from = checkpoint.empty() ? std::string("the beginning, because no checkpoint is finished") : checkpoint;
  std::string what = record.kind == RestartRecord::grow
                         ? std::string("lost ranks are back")
                         : fmt::format("restart {} of at most {}: {}", record.number, record.most, record.reason);
  fmt::print("elastic: {}; {} of {} are left; {} goes on with {} from {}\n", what, members.left(),
             counted(members.all(), "rank"), record.plan, counted(record.ranks, "rank"), from);
  std::fflush(stdout);
}

int ElasticRun::run() {
  if (!chooseNext())
    throw PlanError("--elastic: " + shortage());
  for (;;) {
    int status = runAttempt();
    if (child == 0)
      return status;
    int code = exitStatusOf(status);
    RestartRecord record;
    record.ranksBefore = plan.ranks;
    record.most = job.limits.maxRestarts;
    record.endedAt = secondsNow();
    bool hasGrown = isGrowing && code == 128 + SIGTERM;
    // A failed attempt is not a failed run: a run that is asked to end meanwhile ends by the signal.
    if (signalsSeen > 0)
      return hasGrown || isFailure(status) ? 128 + firstSignal : code;
    if (!hasGrown && !isFailure(status))
      return code;
    if (!hasGrown) {
      loseMembers();
      if (failures == job.limits.maxRestarts) {
        printError("espalier", fmt::format("the run has failed after {} (--max-restarts); --resume continues it",
                                           counted(failures, "restart")));
        return failed;
      }
      ++failures;
      record.reason = cause;
    }
    if (!chooseNext()) {
      printError("espalier", fmt::format("the run cannot go on: {}; --resume continues it", shortage()));
      return failed;
    }
    record.kind = hasGrown                           ? RestartRecord::grow
                  : plan.ranks == record.ranksBefore ? RestartRecord::same
                                                     : RestartRecord::shrink;
    record.ranks = plan.ranks;
    record.plan = plan.file;
    record.number = failures;
    restarts.push_back(record);
    completeSave();
    tell(record);
  }
}

} // namespace

int runElastic(const ElasticJob &job) { return ElasticRun(job).run(); }

} // namespace espalier::rt
