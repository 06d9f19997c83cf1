// The child process returns its result through a pipe: a letter that gives the kind, then the text.
#include "runtime/device/cuda/devices.h"

#include "runtime/device/cuda/matmul.h"
#include "runtime/processes/child_process.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt::cuda {
namespace {

/// The timeout for a driver that hangs.
constexpr unsigned secondsToAnswer = 120;

enum Word : char { Answer = 'a', Refusal = 'r', LackOfMemory = 'm' };

std::string wordOf(const std::function<std::string()> &work) {
  try {
    return char(Answer) + work();
  } catch (const MemoryError &error) {
    return char(LackOfMemory) + std::string(error.what());
  } catch (const std::exception &error) {
    return char(Refusal) + std::string(error.what());
  }
}

void writeAll(int file, const std::string &text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR)
      return;
    done += std::max<ssize_t>(written, 0);
  }
}

/// Returns 80 for "sm_80", 0 for any other text.
int capabilityOf(const std::string &level) {
  int number = 0;
  if (level.starts_with("sm_"))
    std::from_chars(level.data() + 3, level.data() + level.size(), number);
  return number;
}

double gibibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

} // namespace

std::string inOtherProcess(const std::function<std::string()> &work) {
  int ends[2];
  std::fflush(nullptr); // otherwise both processes would write the buffered output
  pid_t process = pipe(ends) == 0 ? fork() : -1;
  if (process < 0)
    throw MemoryError(fmt::format("the system refuses a process that queries the devices: {}", strerror(errno)));
  if (process == 0) {
    alarm(secondsToAnswer);
    writeAll(ends[1], wordOf(work));
    _exit(0);
  }
  close(ends[1]);
  std::string word = readAll(ends[0]);
  close(ends[0]);
  int status = waitFor(process);
  if (word.empty())
    throw PlanError(fmt::format("the process that queried the CUDA devices was ended by {}: nvidia-smi may know more",
                                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the driver"));
  std::string text = word.substr(1);
  if (word[0] == LackOfMemory)
    throw MemoryError(text);
  if (word[0] == Refusal)
    throw PlanError(text);
  return text;
}

const pb::Object *chooseObject(const pb::Plan &plan, const DeviceFacts &device) {
  const pb::Object *best = nullptr;
  std::string levels;
  for (const pb::Object &object : plan.objects()) {
    int capability = capabilityOf(object.level());
    levels += (levels.empty() ? "" : ", ") + object.level();
    if (capability > 0 && capability <= device.capability() && (!best || capability > capabilityOf(best->level())))
      best = &object;
  }
  if (!best && !plan.kernels().empty())
    throw PlanError(fmt::format("the plan's kernels are for [{}], CUDA device {} is {}", levels, device.ordinal,
                                device.describe()));
  if (best && best->geometry_size() != plan.kernels_size())
    throw PlanError(fmt::format("the plan lists {} launch grids for {}, but has {} kernels", best->geometry_size(),
                                best->level(), plan.kernels_size()));
  return best;
}

int ordinalOf(const DevicePlace &place, int count) {
  bool isOnlyOne = place.isLauncherCount && count == 1;
  return (place.isShared && count > 0) || isOnlyOne ? place.ordinal % count : place.ordinal;
}

std::string describeDevices(const Driver &driver, int ncclVersion, const pb::Plan &plan, const Mesh &mesh,
                            std::span<const DeviceDemand> demands) {
  struct Use {
    std::vector<int> ranks;
    uint64_t arenaBytes = 0, workspaceBytes = 0;
  };
  std::map<int, Use> uses; // keyed by device ordinal
  int count = countDevices(driver);
  for (const DeviceDemand &demand : demands) {
    Use &use = uses[ordinalOf(demand.device, count)];
    use.ranks.push_back(demand.rank);
    use.arenaBytes += plan.stages(mesh.stage(demand.rank)).arena_bytes(pb::DEVICE);
    use.workspaceBytes += Matmuls::workspaceBytes;
  }
  int fewest = uses.empty() ? 0 : uses.rbegin()->first + 1;
  if (count > 0 && fewest > count && demands.size() <= static_cast<size_t>(count))
    throw PlanError(fmt::format("rank {} is to run on CUDA device {}, this machine shows {}{}, counted from 0; give it "
                                "another in the rank table",
                                uses.rbegin()->second.ranks.front(), fewest - 1, count, visibleDevices()));
  if (count > 0 && fewest > count)
    throw PlanError(fmt::format("the plan has {} ranks here, a CUDA device for each, this machine shows {}{}; give "
                                "--share-devices to let ranks share one, or compile it for fewer",
                                demands.size(), count, visibleDevices()));
  std::string text;
  for (const auto &[ordinal, use] : uses) {
    Context context(driver, ordinal);
    chooseObject(plan, context);
    if (use.ranks.size() > 1 && ncclVersion > 0 && ncclVersion < oldestSharingNccl)
      throw PlanError(fmt::format(
          "ranks {} would share CUDA device {}, which NCCL {} refuses; take NCCL {} or newer, or "
          "a device for each",
          fmt::join(use.ranks, " and "), ordinal, versionText(ncclVersion), versionText(oldestSharingNccl)));
    context.requireFree(use.arenaBytes, use.workspaceBytes);
    text += fmt::format("CUDA device {} ({}): rank{} {}, {:.2f} of {:.2f} GiB\n", ordinal, context.describe(),
                        use.ranks.size() > 1 ? "s" : "", fmt::join(use.ranks, ", "),
                        gibibytes(use.arenaBytes + use.workspaceBytes), gibibytes(context.memory().total));
  }
  return text;
}

} // namespace espalier::rt::cuda
