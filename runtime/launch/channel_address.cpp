#include "runtime/launch/channel_address.h"

#include <charconv>

namespace espalier::rt::launch {
namespace {

std::string textOf(const Environment &environment, const char *name) {
  auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

} // namespace

std::string channelHost(const Environment &environment, const std::string &hostName) {
  std::string here = textOf(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!here.empty() && here == textOf(environment, "OMPI_COMM_WORLD_SIZE"))
    return "127.0.0.1";
  // Example: "1702494208.0;tcp://192.0.2.2,10.1.0.2:38261;tcp6://...". The first address is the one that the daemons
  // use.
  std::string daemon = textOf(environment, "OMPI_MCA_orte_local_daemon_uri");
  constexpr std::string_view scheme = "tcp://";
  size_t begin = daemon.find(scheme);
  if (begin != std::string::npos) {
    begin += scheme.size();
    return daemon.substr(begin, daemon.find_first_of(",:;", begin) - begin);
  }
  std::string node = textOf(environment, "SLURMD_NODENAME");
  return node.empty() ? hostName : node;
}

int launchedRank(const Environment &environment) {
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    std::string text = textOf(environment, name);
    int rank = 0;
    if (!text.empty() && std::from_chars(text.data(), text.data() + text.size(), rank).ec == std::errc())
      return rank;
  }
  return 0;
}

} // namespace espalier::rt::launch
