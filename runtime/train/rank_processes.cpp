#include "runtime/train/rank_processes.h"

#include "runtime/checksum.h"
#include "runtime/plan_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

namespace espalier::rt {

DevicePlace deviceOf(const RunOptions &options, int rank) {
  DevicePlace place = {rank, options.sharesDevices};
  if (!options.topology)
    return place;
  const std::vector<int> &ranks = options.topology->ranks, &devices = options.topology->devices;
  auto found = std::ranges::find(ranks, rank);
  if (size_t index = found - ranks.begin(); index < devices.size())
    place.ordinal = devices[index];
  return place;
}

void requireDevices(const Program &program, const RunOptions &options, std::span<const int> ranks) {
  std::vector<DeviceDemand> demands;
  for (int rank : ranks)
    demands.push_back({rank, deviceOf(options, rank)});
  std::string devices = program.backend().requireDevices(demands);
  if (options.log)
    fmt::print("{}", devices);
}

void requireRecordsOnly(const RunOptions &options) {
  if (options.keepGradients || options.keepParameters)
    throw PlanError("--dump-gradients and --dump-parameters gather in one process; leave out --processes, or give "
                    "--comm local");
}

launch::Member describeProcess(const std::vector<int> &ranks) {
  char name[256] = {};
  return {.ranks = ranks, .host = gethostname(name, sizeof name - 1) == 0 ? name : "", .pid = getpid()};
}

launch::Member memberOf(const Program &program, const std::vector<int> &ranks) {
  std::string bytes = planFileBytes(program.plan());
  launch::Member own = describeProcess(ranks);
  own.planHash = checksumText(std::as_bytes(std::span(bytes)));
  own.version = program.plan().compiler();
  return own;
}

} // namespace espalier::rt
