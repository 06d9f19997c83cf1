// MPI starts once per process, with as many ranks as mpirun started. Each call therefore reruns this program with only
// the current test. In the rerun every other call does nothing. Each rank writes a report to a folder.
#include "runtime/comm/mpi.h"
#include "test/runtime/comm_back_ends.h"
#include "test/sanitizer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

constexpr const char *callVariable = "ESPALIER_TEST_MPI_CALL", *folderVariable = "ESPALIER_TEST_MPI_FOLDER";

std::string nameOfTest() {
  const testing::TestInfo *test = testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test->test_suite_name()) + "." + test->name();
}

/// Returns the number of calls that the current test has made before.
int countCall() {
  static std::string test;
  static int calls;
  if (test != nameOfTest()) {
    test = nameOfTest();
    calls = 0;
  }
  return calls++;
}

std::string textOf(const fs::path &file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// Writes whether all expectations held in the first line. Then writes the failure, if any, with its message last.
void report(const fs::path &file, const std::optional<Failure> &failure) {
  std::ofstream out(file);
  out << (testing::Test::HasFailure() ? "bad\n" : "good\n");
  if (failure)
    out << failure->rank << '\n'
        << failure->stage << '\n'
        << failure->step << '\n'
        << failure->action << '\n'
        << failure->subprogram << '\n'
        << failure->op << '\n'
        << failure->message;
}

std::optional<Failure> readReport(const fs::path &file) {
  std::ifstream in(file);
  std::string word;
  std::getline(in, word);
  EXPECT_EQ(word, "good") << file.filename();
  Failure failure;
  if (!(in >> failure.rank >> failure.stage >> failure.step))
    return std::nullopt;
  in.ignore();
  for (std::string *text : {&failure.action, &failure.subprogram, &failure.op})
    std::getline(in, *text);
  std::getline(in, failure.message, '\0');
  return failure;
}

/// Runs one rank of one call in a process under mpirun.
[[noreturn]] void live(const Rank &rank) {
  try {
    MpiWorld world;
    std::unique_ptr<Communicator> comm = world.communicator();
    rank(*comm);
    report(fs::path(std::getenv(folderVariable)) / std::to_string(world.rank()), world.failure());
  } catch (const std::exception &error) {
    std::cerr << error.what() << std::endl;
  }
  std::fflush(nullptr);
  _exit(0); // the reports carry the result
}

/// Runs mpirun and returns its output. Kills it after a minute, so that a hanging rank is a failure.
std::string runAnew(int ranks, int call, const fs::path &folder) {
  fs::path log = folder / "log";
  std::string filter = "--gtest_filter=" + nameOfTest(), count = std::to_string(ranks);
  std::string limit = std::to_string(60 * slowdown);
  pid_t child = fork();
  if (child == 0) {
    setenv(callVariable, std::to_string(call).c_str(), 1);
    setenv(folderVariable, folder.c_str(), 1);
    for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 1);
    std::freopen(log.c_str(), "w", stdout);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    execlp("timeout", "timeout", "-k", "5", limit.c_str(), "mpirun", "-quiet", "--oversubscribe", "--bind-to", "none",
           "-np", count.c_str(), fs::read_symlink("/proc/self/exe").c_str(), filter.c_str(), nullptr);
    _exit(127);
  }
  waitpid(child, nullptr, 0);
  return textOf(log);
}

constexpr BackEnd mpi[] = {{"mpi", mpiLacks, runMpi}};

} // namespace

std::span<const BackEnd> backEnds() { return mpi; }

std::string mpiLacks() {
  if (std::getenv(callVariable))
    return "";
  return std::system("command -v mpirun >/dev/null") == 0 ? "" : "mpirun is not installed";
}

std::optional<Failure> runMpi(int ranks, const Rank &rank) {
  int call = countCall();
  if (const char *wanted = std::getenv(callVariable)) {
    if (call == std::atoi(wanted))
      live(rank);
    return std::nullopt;
  }
  std::string pattern = (fs::temp_directory_path() / "espalier_comm_XXXXXX").string();
  fs::path folder = mkdtemp(pattern.data());
  std::string printed = runAnew(ranks, call, folder);
  std::optional<Failure> failure;
  for (int i = ranks - 1; i >= 0; --i)
    failure = readReport(folder / std::to_string(i));
  if (testing::Test::HasFailure())
    std::cerr << printed;
  fs::remove_all(folder);
  return failure;
}

} // namespace espalier::rt
