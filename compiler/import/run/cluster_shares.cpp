#include "compiler/import/run/cluster_shares.h"

#include "compiler/import/yaml/config_files.h"
#include "compiler/import/yaml/yaml.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {
namespace {

/// Reads entries of shares/achieved.yaml.
class ShareReader {
public:
  ShareReader(const YamlNode &root, Diagnostics &diagnostics) : root(root), diagnostics(diagnostics) {}

  /// Returns the share of `key` for a class, else that of `other`, else 0. It is at most `most`.
  double share(const std::string &key, const std::string &name, double most = 1) {
    const YamlNode *list = root.find(key);
    const YamlNode *entry = list ? list->find(name) : nullptr;
    if (!entry && list)
      entry = list->find("other");
    if (!entry)
      return 0;
    std::optional<double> value = yamlNumber(*entry);
    if (value && *value >= 0 && *value <= most)
      return *value;
    diagnostics.error(entry->where, fmt::format("a share of {} must be a number from 0 to {:g}, got {}", key, most,
                                                flowText(*entry)));
    return 1;
  }

  void checkKeys() {
    const std::vector<std::string> known = {"memory",  "link",      "network",    "host",
                                            "compute", "attention", "capability", "ring_slope"};
    for (const YamlEntry &entry : root.entries)
      if (std::ranges::find(known, entry.key) == known.end())
        diagnostics.error(entry.keyWhere, fmt::format("unknown share '{}'{}", entry.key, didYouMean(entry.key, known)));
  }

private:
  const YamlNode &root;
  Diagnostics &diagnostics;
};

} // namespace

void applyShares(ClusterConfig &cluster, const DataSheet &sheet, const std::vector<std::string> &folders,
                 Diagnostics &diagnostics) {
  std::string file = findConfig("share", "achieved", folders);
  YamlPtr root = file.empty() ? nullptr : loadYamlMap(file, "shares are a map of lists by device", diagnostics);
  if (!root)
    return; // a rate that is needed and missing is reported later
  ShareReader shares(*root, diagnostics);
  shares.checkKeys();
  auto complete = [&](double &rate, double whole, const char *key) {
    if (rate == 0 && whole > 0)
      rate = whole * shares.share(key, cluster.device);
  };
  complete(cluster.memoryBytesPerSecond, sheet.memory, "memory");
  complete(cluster.link.bytesPerSecond, sheet.link, "link");
  complete(cluster.network.bytesPerSecond, sheet.network, "network");
  complete(cluster.host.bytesPerSecond, sheet.host, "host");
  if (cluster.matmulEfficiency == 0) { // a measured rate of products goes with the measured rate of attention
    complete(cluster.attentionEfficiency, 1, "attention");
    complete(cluster.matmulEfficiency, 1, "compute");
  }
  constexpr double mostCapability = 100;
  cluster.capability = shares.share("capability", cluster.device, mostCapability);
  if (!sheet.fabric.empty())
    cluster.ringSlope = shares.share("ring_slope", sheet.fabric);
}

std::string missingConstant(const ClusterConfig &cluster, const std::string &key) {
  std::string text = fmt::format("cluster '{}' has no {}", cluster.name, key);
  if (key == "matmul_efficiency")
    return fmt::format("{}, and shares/achieved.yaml has no 'compute' for the device '{}'; give one of them", text,
                       cluster.device);
  if (key.ends_with("bandwidth")) {
    size_t last = key.rfind('.') + 1; // 0 without a dot
    return fmt::format("{}; give the achieved rate, or {}peak_{} of the data sheet", text, key.substr(0, last),
                       key.substr(last));
  }
  return text;
}

} // namespace espalier
