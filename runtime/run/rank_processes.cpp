#include "runtime/run/rank_processes.h"

#include "runtime/host_name.h"
#include "runtime/train/build_id.h"
#include "runtime/train/statement.h"

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
  place.isLauncherCount = options.topology->isProcessPerRank();
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

launch::Member describeProcess(const launch::Topology &topology) {
  launch::Member own;
  own.ranks = topology.ranks;
  own.host = hostName();
  own.pid = getpid();
  own.process = topology.process();
  own.processes = topology.processes();
  return own;
}

launch::Member memberOf(const Program &program, const launch::Topology &topology) {
  launch::Member own = describeProcess(topology);
  own.planHash = planDigest(program.plan());
  own.version = buildText();
  return own;
}

} // namespace espalier::rt
