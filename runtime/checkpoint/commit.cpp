// File names are chosen so that two runs, or a killed run and its successor, never write the same file.
#include "runtime/checkpoint/commit.h"

#include "format/checksum.h"
#include "format/path_kind.h"
#include "messages/write_fault.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/files/atomic_file.h"
#include "runtime/host_name.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr const char *latestName = "latest";
constexpr uint64_t maxLatestBytes = 1024;

bool isCheckpointName(const std::string &name) { return name.starts_with("step-") && Path(name).filename() == name; }

/// The two lines of `latest`. The second line is missing if a user wrote the file.
struct Latest {
  std::string name, manifestChecksum;
};

Latest readLatest(const Path &folder) {
  std::string text = readText(folder / latestName, maxLatestBytes);
  size_t end = text.find('\n');
  Latest latest{text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)};
  if (!isCheckpointName(latest.name))
    throw PlanError(fmt::format("{}: names no checkpoint", (folder / latestName).string()));
  return latest;
}

/// Returns an unused folder name, so that a run resumed from an older checkpoint does not overwrite a newer one.
std::string freeName(const Path &folder, int64_t step) {
  std::string name = fmt::format("step-{:08}", step);
  for (int again = 2; std::filesystem::exists(folder / name); ++again)
    name = fmt::format("step-{:08}-{}", step, again);
  return name;
}

/// Throws PlanError with the reason of a failed system call.
[[noreturn]] void refuse(const Path &folder, int reason) {
  throw PlanError(fmt::format("{}: cannot hold checkpoints: {}", folder.string(), whyNotWritten(folder, reason)));
}

/// Returns the locked file. The kernel closes it when the process ends for any reason.
int lockFolder(const Path &folder) {
  int lock = ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (lock < 0)
    refuse(folder, errno);
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) {
    std::string holder = fmt::format("process {}", ::getpid());
    if (::ftruncate(lock, 0) != 0 || ::pwrite(lock, holder.data(), holder.size(), 0) < 0)
      errno = 0; // writing the holder's name may fail, because it only serves messages
    return lock;
  }
  int reason = errno;
  char holder[64] = {};
  ssize_t length = ::pread(lock, holder, sizeof(holder) - 1, 0);
  ::close(lock);
  if (reason != EWOULDBLOCK)
    refuse(folder, reason);
  throw PlanError(fmt::format("{}: another run ({}) writes checkpoints there; wait for it or give another folder",
                              folder.string(), length > 0 ? holder : "unknown"));
}

/// Throws PlanError if the folder has been replaced since this run has locked it. -1: another process has locked it.
void requireLock(const Path &folder, int lock) {
  struct stat held = {}, there = {};
  if (lock >= 0 && (::fstat(lock, &held) != 0 || ::stat((folder / ".lock").c_str(), &there) != 0 ||
                    held.st_dev != there.st_dev || held.st_ino != there.st_ino))
    throw PlanError(
        fmt::format("{}: is not the folder that this run has locked: it was removed or replaced, and another "
                    "run may write there",
                    folder.string()));
}

/// Returns the mark of a run.
Path markOf(const Path &folder, const std::string &token) { return folder / fmt::format(".run-{}.part", token); }

} // namespace

void requireSharedFolder(const Path &folder, const std::string &token) {
  constexpr int polls = 20;
  constexpr std::chrono::milliseconds interval{100};
  if (token.empty() || token == noToken)
    return;
  std::error_code error;
  for (int poll = 0; !std::filesystem::exists(markOf(folder, token), error); ++poll) {
    if (poll == polls)
      throw PlanError(fmt::format("{}: {} has another folder there than the host of rank 0, which has written {} into "
                                  "its own; checkpoints need one folder that all hosts see: give --checkpoint a folder "
                                  "of a shared file system",
                                  folder.string(), hostName(), markOf(folder, token).filename().string()));
    std::this_thread::sleep_for(interval);
  }
}

std::string latestFault(const Path &folder) {
  try {
    Latest latest = readLatest(folder);
    std::string manifest = readText(folder / latest.name / manifestName, uint64_t(1) << 30, Links::Refused);
    bool fits = latest.manifestChecksum == checksumText(std::as_bytes(std::span(manifest))) + "\n";
    return fits || latest.manifestChecksum.empty() ? ""
                                                   : fmt::format("{}: damaged: its checksum is not that of {}",
                                                                 (folder / latestName).string(), latest.name);
  } catch (const PlanError &error) {
    return error.what();
  }
}

std::vector<std::string> checkpointNames(const Path &folder) {
  std::vector<std::tuple<uint64_t, std::filesystem::file_time_type, std::string>> found;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!isCheckpointName(name) || !entry.is_directory(error))
      continue;
    std::error_code hasNone;
    auto time = std::filesystem::last_write_time(entry.path() / manifestName, hasNone);
    found.emplace_back(readSequence(entry.path()), hasNone ? std::filesystem::file_time_type::min() : time, name);
  }
  std::ranges::sort(found, std::greater());
  std::vector<std::string> names;
  for (const auto &[sequence, time, name] : found)
    names.push_back(name);
  if (latestFault(folder).empty() && !names.empty()) {
    auto latest = std::ranges::find(names, readLatest(folder).name);
    std::rotate(names.begin(), latest, latest == names.end() ? latest : latest + 1);
  }
  return names;
}

Path checkpointAt(const Path &path) {
  if (std::filesystem::exists(path / manifestName))
    return path;
  std::vector<std::string> names = checkpointNames(path);
  if (names.empty())
    refuseOther(path, "holds no checkpoint");
  if (std::string fault = latestFault(path); !fault.empty())
    throw PlanError(fmt::format("{}; name one of its steps, as {}", fault, (path / names.front()).string()));
  return path / names.front();
}

std::string latestCheckpoint(const Path &folder) {
  std::vector<std::string> names = checkpointNames(folder);
  return names.empty() ? "" : (folder / names.front()).string();
}

CheckpointFolder::CheckpointFolder(Path path, const std::string &token) : folder(std::move(path)), theToken(token) {
  if (!token.empty())
    return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error)
    refuse(folder, error.value());
  std::error_code hasNone;
  if (auto latest = std::filesystem::symlink_status(folder / latestName, hasNone);
      exists(latest) && !is_regular_file(latest) && !is_symlink(latest))
    throw PlanError(fmt::format("{}: cannot hold checkpoints: 'latest' is no file", folder.string()));
  lock = lockFolder(folder);
  theToken = fmt::format("{}-{:08x}", ::getpid(), std::random_device{}());
  sweep();
  int mark = ::open(markOf(folder, theToken).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, 0644);
  if (mark < 0) {
    int reason = errno;
    ::close(lock);
    refuse(folder, reason);
  }
  ::close(mark);
}

CheckpointFolder::~CheckpointFolder() {
  if (lock < 0)
    return;
  removeMark();
  ::close(lock);
}

void CheckpointFolder::removeMark() const noexcept { ::unlink(markOf(folder, theToken).c_str()); }

/// Removes unfinished files. They belong to dead runs, because this run holds the lock.
void CheckpointFolder::sweep() const {
  std::vector<Path> stale;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(".") && (name.ends_with(".partial") || name.ends_with(".part")))
      stale.push_back(entry.path());
  }
  for (const Path &path : stale)
    std::filesystem::remove_all(path, error);
}

uint64_t CheckpointFolder::nextSequence() const {
  uint64_t highest = 0;
  for (const std::string &name : checkpointNames(folder))
    highest = std::max(highest, readSequence(folder / name));
  return highest + 1;
}

uint64_t CheckpointFolder::freeBytes() const {
  struct statvfs status = {};
  if (::statvfs(folder.c_str(), &status) != 0)
    refuse(folder, errno);
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

Path CheckpointFolder::partial(int64_t step) const {
  return folder / fmt::format(".step-{:08}.{}.partial", step, theToken);
}

void CheckpointFolder::begin(int64_t step) const {
  requireLock(folder, lock);
  std::filesystem::create_directory(partial(step));
}

std::string CheckpointFolder::commit(int64_t step, const std::string &manifest) const {
  requireLock(folder, lock);
  Path written = partial(step);
  writeWhole(written / manifestName, manifest);
  syncFolder(written);
  std::string name = freeName(folder, step);
  std::filesystem::rename(written, folder / name);
  syncFolder(folder);
  try {
    writeWhole(folder / latestName, fmt::format("{}\n{}\n", name, checksumText(std::as_bytes(std::span(manifest)))));
    syncFolder(folder);
  } catch (const std::exception &error) {
    throw LatestFault(fmt::format("{}; {} is complete, and --resume continues from {}", error.what(),
                                  (folder / name).string(), (folder / checkpointNames(folder).front()).string()),
                      name);
  }
  return name;
}

void CheckpointFolder::discard(int64_t step) const noexcept {
  std::error_code error;
  std::filesystem::remove_all(partial(step), error);
}

void CheckpointFolder::prune(size_t keep, const std::set<std::string> &apart) const {
  size_t kept = 0;
  for (const std::string &name : checkpointNames(folder))
    if (!apart.contains(name) && ++kept > keep)
      remove(name);
}

/// The folder is hidden first, because a half-removed checkpoint must not look complete.
void CheckpointFolder::remove(const std::string &name) const {
  Path hidden = folder / fmt::format(".{}.{}.partial", name, theToken);
  std::filesystem::rename(folder / name, hidden);
  std::filesystem::remove_all(hidden);
}

} // namespace espalier::rt
