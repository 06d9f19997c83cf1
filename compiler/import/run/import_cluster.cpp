// Imports the cluster that the plan is made for: from --cluster, from the file's `cluster` section, or inferred.
#include "compiler/import/run/cluster_file.h"
#include "compiler/import/run/cluster_shares.h"
#include "compiler/import/run/run_reader.h"
#include "compiler/import/yaml/config_files.h"
#include "format/host_machine.h"
#include "format/path_kind.h"
#include "messages/counted.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>

namespace espalier {
namespace {

constexpr const char *hereName = "this_machine";
constexpr double inferredLargeMemory = 0x1p35; // 32 GB: with a larger limit, the device cannot be the small one

/// Locations of a cluster's keys, such as "cluster.link.bandwidth".
using Places = std::map<std::string, SourceLocation>;

/// Overwrites the constants that a map gives and checks their values. The caller checks the keys.
class ConstantReader {
public:
  ConstantReader(ClusterConfig &cluster, DataSheet &sheet, Places &places, Diagnostics &diagnostics)
      : cluster(cluster), sheet(sheet), places(places), diagnostics(diagnostics) {}

  void read(const YamlNode &map, DType compute) {
    places["cluster"] = map.where;
    if (const YamlNode *name = map.find("name"))
      cluster.name = name->text;
    if (const YamlNode *device = map.find("device"))
      cluster.device = device->text;
    if (const YamlNode *measured = map.find("measured_on"))
      cluster.measuredOn = measured->text;
    count(map, "hosts", cluster.hosts);
    count(map, "devices_per_host", cluster.devicesPerHost);
    count(map, "cores", cluster.coresPerHost);
    number(map, "memory_bytes", cluster.memoryBytes, /*isBytes=*/true);
    number(map, "reserved_bytes", cluster.reservedBytes, /*isBytes=*/true);
    share(map, "memory_margin", cluster.memoryMargin, "a device's memory");
    if (const YamlNode *peak = child(map, "peak_flops")) {
      const char *key = compute == DType::F32 ? "f32" : compute == DType::BF16 ? "bf16" : "f16";
      number(*peak, key, cluster.peakFlops);
    }
    rate(map, "peak_memory_bandwidth", sheet.memory, "memory_bandwidth", cluster.memoryBytesPerSecond);
    share(map, "matmul_efficiency", cluster.matmulEfficiency, "the peak");
    share(map, "attention_efficiency", cluster.attentionEfficiency, "the peak");
    count(map, "multiprocessors", cluster.multiprocessors);
    number(map, "launch_seconds", cluster.launchSeconds);
    if (const YamlNode *link = child(map, "link")) {
      rate(*link, "peak_bandwidth", sheet.link, "bandwidth", cluster.link.bytesPerSecond);
      number(*link, "latency", cluster.link.latencySeconds);
    }
    if (const YamlNode *network = child(map, "network")) {
      rate(*network, "peak_bandwidth", sheet.network, "bandwidth", cluster.network.bytesPerSecond);
      number(*network, "send_bandwidth", cluster.sendBytesPerSecond);
      if (const YamlNode *fabric = child(*network, "fabric"))
        sheet.fabric = fabric->text;
      number(*network, "ring_slope", cluster.ringSlope);
      if (network->find("ring_slope"))
        sheet.fabric.clear();
      number(*network, "latency", cluster.network.latencySeconds);
    }
    if (const YamlNode *host = child(map, "host")) {
      number(*host, "memory_bytes", cluster.host.bytes, /*isBytes=*/true);
      rate(*host, "peak_bandwidth", sheet.host, "bandwidth", cluster.host.bytesPerSecond);
      count(*host, "devices_per_link", cluster.host.devicesPerLink);
    }
    if (const YamlNode *measured = child(map, "matmul_algorithms"))
      algorithms(*measured, cluster.matmulAlgorithms);
  }

private:
  const YamlNode *child(const YamlNode &map, const char *key) {
    const YamlNode *node = map.find(key);
    if (node)
      places[std::string("cluster.") + key] = node->where;
    return node;
  }

  void number(const YamlNode &map, const char *key, double &target, bool isBytes = false) {
    const YamlNode *node = child(map, key);
    if (!node)
      return;
    std::optional<double> value = isBytes ? yamlBytes(*node) : yamlNumber(*node);
    if (value && *value >= 0) {
      target = *value;
      return;
    }
    diagnostics.error(node->where, fmt::format("{} must be a {}, got {}", key,
                                               isBytes ? "size such as 80GB, at most 1048576TB" : "positive number",
                                               flowText(*node)));
    target = std::max(target, 1.0); // already reported; prevents a second report that it is missing
  }

  /// Reads the rate of a data sheet and the achieved rate. Those of `map` replace both of a base cluster.
  void rate(const YamlNode &map, const char *peakKey, double &peak, const char *key, double &achieved) {
    number(map, peakKey, peak);
    if (map.find(peakKey))
      achieved = 0;
    number(map, key, achieved);
  }

  void algorithms(const YamlNode &map, MatmulAlgorithms &target) {
    const YamlNode *library = map.find("library"), *products = map.find("products");
    if (!library || !products || !products->isSequence()) {
      diagnostics.error(map.where, "matmul_algorithms needs a library and a list of products, as `espalier calibrate "
                                   "--target cuda --plan` writes them");
      return;
    }
    target.library = library->text;
    for (const YamlPtr &row : products->items) {
      const YamlNode *product = row->find("product"), *algorithm = row->find("algorithm");
      bool isRow = product && algorithm && row->entries.size() == 2;
      bool isHex = isRow && !algorithm->text.empty() && algorithm->text.size() % 2 == 0 &&
                   algorithm->text.find_first_not_of("0123456789abcdef") == std::string::npos;
      if (!isHex)
        diagnostics.error(row->where,
                          fmt::format("a product needs `product` and `algorithm`, bytes in pairs of the digits "
                                      "0 to f, got {}",
                                      flowText(*row)));
      else if (!target.products.emplace(product->text, algorithm->text).second)
        diagnostics.error(row->where, fmt::format("the product '{}' has an algorithm already", product->text));
    }
  }

  void share(const YamlNode &map, const char *key, double &target, const char *whole) {
    number(map, key, target);
    if (target > 1)
      diagnostics.error(map.find(key)->where,
                        fmt::format("{} is a share of {}, at most 1, got {}", key, whole, target));
    target = std::min(target, 1.0);
  }

  void count(const YamlNode &map, const char *key, int &target) {
    const YamlNode *node = child(map, key);
    if (!node)
      return;
    std::optional<int64_t> value = yamlInteger(*node);
    if (!value || *value < 1 || *value > 1000000)
      diagnostics.error(node->where, fmt::format("{} must be between 1 and 1000000, got {}", key, flowText(*node)));
    else
      target = static_cast<int>(*value);
  }

  ClusterConfig &cluster;
  DataSheet &sheet;
  Places &places;
  Diagnostics &diagnostics;
};

/// An unknown key of a cluster map, with the path of the key that was probably intended. Names are those of the run
/// file's `cluster` section.
struct UnknownKey {
  const YamlEntry *entry;
  std::vector<std::string> known; ///< known keys of the same map
  std::string meant; ///< for example "cluster.link.bandwidth"; the path of the map itself if no name is similar
};

void findUnknownKeys(const YamlNode &map, const std::string &prefix, std::vector<UnknownKey> &found) {
  std::vector<std::string> known;
  for (const KeyRule &rule : runKeys())
    if (rule.path.starts_with(prefix)) {
      std::string key = rule.path.substr(prefix.size());
      known.push_back(key.substr(0, key.find('.')));
    }
  for (const YamlEntry &entry : map.entries) {
    if (std::find(known.begin(), known.end(), entry.key) == known.end())
      found.push_back({&entry, known, prefix + nearestName(entry.key, known)});
    else if (entry.value->isMap())
      findUnknownKeys(*entry.value, prefix + entry.key + ".", found);
  }
}

/// Returns the error text for a name that is not a cluster. A name with a colon gets the form NAME:HOSTSxDEVICES as an
/// answer.
std::string whyNoCluster(const std::string &name, const std::vector<std::string> &folders) {
  size_t colon = name.rfind(':');
  if (colon == std::string::npos || findConfig("cluster", name.substr(0, colon), folders).empty())
    return noConfig("cluster", name, folders);
  std::string plain = name.substr(0, colon), devices = name.substr(colon + 1);
  bool isCount =
      !devices.empty() && devices.size() <= 6 && devices.find_first_not_of("0123456789") == std::string::npos;
  return fmt::format("'{}' is neither NAME nor NAME:HOSTSxDEVICES{}", name,
                     isCount ? fmt::format(", did you mean '{}:1x{}'?", plain, devices) : "");
}

/// Returns what a file is that is no cluster file, and which command takes it; empty for clusters and other names.
std::string wayOfOther(const std::string &name) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name, ignored) || rt::pathKind(name) == rt::PathKind::ClusterFile)
    return "";
  std::string way = rt::wayOf(name);
  return way.empty() ? "" : fmt::format("{} {}", name, way);
}

class ClusterImporter {
public:
  ClusterImporter(const RunReader &reader, const std::vector<std::string> &folders)
      : reader(reader), folders(folders) {}

  /// Reads NAME, NAME:HOSTSxDEVICES or a file. `where` is the location of the name. Returns whether the file exists.
  bool readNamed(std::string name, const SourceLocation &where) {
    int hosts = 0, devices = 0, consumed = 0;
    size_t colon = name.rfind(':');
    bool hasShape = colon != std::string::npos &&
                    std::sscanf(name.c_str() + colon, ":%6dx%6d%n", &hosts, &devices, &consumed) == 2 &&
                    colon + consumed == name.size();
    if (hasShape)
      name.resize(colon);
    std::string file = findConfig("cluster", name, folders), other = wayOfOther(name);
    if (file.empty() && name == hereName)
      return readHere(where) && takeHere(hasShape ? devices : defaultHere(), hasShape ? hosts : 1, where);
    if (file.empty() || !other.empty()) {
      reader.diagnostics().error(where, other.empty() ? whyNoCluster(name, folders) : other);
      return false;
    }
    YamlPtr root = loadYamlMap(file, "a cluster file is a map of constants", reader.diagnostics());
    if (!root)
      return false;
    cluster().name = name;
    for (const UnknownKey &key : readConstants(*root))
      reader.diagnostics().error(key.entry->keyWhere, fmt::format("unknown key '{}' in a cluster{}", key.entry->key,
                                                                  didYouMean(key.entry->key, key.known)));
    if (hasShape && (hosts < 1 || devices < 1))
      reader.diagnostics().error(
          where, fmt::format("a cluster needs at least one host and one device per host, got {}x{}", hosts, devices));
    else if (hasShape)
      setShape(hosts, devices);
    return true;
  }

  /// Finds the cluster of a file that names none. The number of devices follows from the axes that the file fixes.
  void infer(const ImportOptions &options) {
    bool isAscend = reader.text("context.device_target").value_or("") == "Ascend" && !options.isHere;
    if (!isAscend && options.needsCluster)
      return reader.error("cluster", fmt::format("no cluster is given; --cluster NAME:HOSTSxDEVICES or `cluster` in "
                                                 "the run file names one of {}, {}, or a file that `espalier "
                                                 "calibrate -o FILE` writes",
                                                 hereName, fmt::join(configNames("cluster", folders), ", ")));
    bool isLarge = reader.bytes("context.max_device_memory").value_or(0) > inferredLargeMemory &&
                   reader.has("context.max_device_memory");
    int64_t devices = 1;
    for (const char *axis : {"data_parallel", "model_parallel", "pipeline_stage", "context_parallel"})
      devices *= std::clamp<int64_t>(reader.integer(std::string("parallel_config.") + axis).value_or(1), 1, 100000);
    bool isSingle = !reader.flag("use_parallel").value_or(reader.has("parallel_config"));
    if (isSingle)
      devices = 1;
    if (devices > 100000) {
      reader.error("parallel_config", fmt::format("parallel_config asks for {} devices, at most 100000 "
                                                  "are supported",
                                                  devices));
      return;
    }
    std::string mode = reader.text("parallel.parallel_mode").value_or("");
    bool isFree = !isSingle && mode != "0" && mode != "1";
    if (!isAscend)
      return inferHere(isFree ? std::max<int64_t>(devices, defaultHere()) : devices);
    if (isFree)
      devices = std::max<int64_t>(devices, 8);
    std::string name = isLarge ? "ascend_910b_64g" : "ascend_910_32g";
    readNamed(name, {reader.config().file, 0, 0});
    int perHost = devices % 8 == 0 ? 8 : devices < 8 ? static_cast<int>(devices) : 1;
    setShape(static_cast<int>(devices / perHost), perHost);
    reader.derive("cluster", fmt::format("{}:{}x{}", name, cluster().hosts, cluster().devicesPerHost),
                  "no cluster is given: as many devices as the plan of the file asks for");
    if (isFree)
      reader.warning("parallel", fmt::format("no cluster is given, planning for {} devices of {}; "
                                             "choose with --cluster",
                                             devices, name));
  }

  /// Takes this machine for `devices` devices.
  void inferHere(int64_t devices) {
    if (!readHere({reader.config().file, 0, 0}) ||
        !takeHere(static_cast<int>(devices), 1, {reader.config().file, 0, 0}))
      return;
    std::string rates = cluster().measuredOn.empty() ? "at default rates, `espalier calibrate` measures them"
                                                     : "at the rates that `espalier calibrate` has measured";
    std::string text = fmt::format("no cluster is given: priced for this machine, {} of its {} {}",
                                   rt::counted(devices, "rank"), rt::counted(rt::machineCores(), "core"), rates);
    reader.derive("cluster", fmt::format("{}:1x{}", hereName, devices), text);
    reader.warning("parallel", text + "; --cluster names another");
  }

  /// Reads the rates of a core of this machine: those that `espalier calibrate` has measured here, or those of
  /// cpu_local. Returns whether they are known.
  bool readHere(const SourceLocation &where) {
    if (!readNamed("cpu_local", where))
      return false;
    Diagnostics unread; // a file that cannot be read counts as none
    YamlPtr measured = loadYamlMap(rt::measuredMachineFile().string(), "a cluster file is a map of constants", unread);
    const YamlNode *machine = measured ? measured->find("measured_on") : nullptr;
    if (machine && machine->text == rt::machineName())
      readConstants(*measured);
    cluster().name = hereName;
    return true;
  }

  /// Divides the cores and the memory of this machine among its devices, which are ranks of threads.
  bool takeHere(int devices, int hosts, const SourceLocation &where) {
    if (hosts != 1 || devices < 1) {
      reader.diagnostics().error(
          where, fmt::format("{} is one host with at least one device, got {}x{}", hereName, hosts, devices));
      return false;
    }
    int cores = rt::machineCores(), each = std::max(1, cores / devices);
    cluster().coresPerHost = devices > cores ? cores : 0;
    cluster().peakFlops *= each;
    cluster().memoryBytesPerSecond *= each;
    cluster().memoryBytes = rt::machineMemory() / devices;
    setShape(1, devices);
    return true;
  }

  /// Returns the number of devices of this machine if nothing asks for another: a power of two divides most batches.
  static int defaultHere() {
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(8, rt::machineCores()))));
  }

  /// Returns the unknown keys. Those of the run file are reported together with all of its keys.
  std::vector<UnknownKey> readConstants(const YamlNode &map) {
    std::vector<UnknownKey> unknown;
    findUnknownKeys(map, "cluster.", unknown);
    for (const UnknownKey &key : unknown)
      misspelt.insert(key.meant);
    ConstantReader(cluster(), sheet, reader.config().places, reader.diagnostics())
        .read(map, reader.config().dtypes.compute);
    return unknown;
  }

  /// Completes the rates that no file states.
  void complete() { applyShares(cluster(), sheet, folders, reader.diagnostics()); }

  /// Changes the number of devices: --devices keeps the size of hosts, and --lose-node removes whole hosts.
  void change(const ImportOptions &options) {
    int64_t hosts = cluster().hosts, perHost = cluster().devicesPerHost;
    std::string which = "cluster " + cluster().name + " has";
    if (options.devices) {
      int64_t devices = *options.devices;
      perHost = std::clamp<int64_t>(devices, 1, perHost);
      if (devices < 1)
        reader.diagnostics().error({"--devices", 0, 0}, fmt::format("must be at least 1, got {}", devices));
      else if (devices % perHost != 0)
        reader.diagnostics().error({"--devices", 0, 0},
                                   fmt::format("{} devices do not fill hosts of {}; take {} or {}", devices, perHost,
                                               devices / perHost * perHost, (devices / perHost + 1) * perHost));
      hosts = std::max<int64_t>(1, devices / perHost);
      which = fmt::format("--devices {} fills", devices);
    }
    if (options.loseNodes < 0 || options.loseNodes >= hosts)
      reader.diagnostics().error({"--lose-node", 0, 0},
                                 fmt::format("{} {} host{}, at most {} can be lost, got {}", which, hosts,
                                             hosts == 1 ? "" : "s", hosts - 1, options.loseNodes));
    else
      hosts -= options.loseNodes;
    setShape(static_cast<int>(hosts), static_cast<int>(perHost));
  }

  void setShape(int hosts, int devicesPerHost) {
    cluster().hosts = hosts;
    cluster().devicesPerHost = devicesPerHost;
  }
  ClusterConfig &cluster() { return reader.config().cluster; }

  /// Returns whether an unknown key was probably intended as this constant or a part of it. That has already been
  /// reported.
  bool isMisspelt(const std::string &key) const {
    return std::ranges::any_of(misspelt, [&](const std::string &path) { return path.starts_with(key); });
  }

private:
  const RunReader &reader;
  const std::vector<std::string> &folders;
  DataSheet sheet;
  std::set<std::string> misspelt; ///< paths of keys that unknown keys were probably intended as
};

void checkConstants(const RunReader &reader, const ClusterImporter &importer) {
  const ClusterConfig &cluster = reader.config().cluster;
  const std::pair<const char *, double> needed[] = {
      {"memory_bytes beyond the reserved ones and the margin",
       cluster.memoryBytes * (1 - cluster.memoryMargin) - cluster.reservedBytes},
      {"peak_flops of the compute dtype", cluster.peakFlops},
      {"memory_bandwidth", cluster.memoryBytesPerSecond},
      {"matmul_efficiency", cluster.matmulEfficiency},
      {"link.bandwidth", cluster.devicesPerHost > 1 ? cluster.link.bytesPerSecond : 1},
      {"network.bandwidth", cluster.hosts > 1 ? cluster.network.bytesPerSecond : 1},
      {"host.bandwidth", cluster.host.bytes > 0 ? cluster.host.bytesPerSecond : 1},
      {"host.memory_bytes", cluster.host.bytesPerSecond > 0 ? cluster.host.bytes : 1}};
  const Places &places = reader.config().places;
  for (auto [name, value] : needed) {
    std::string key = std::string("cluster.") + name;
    key.resize(std::min(key.find(' '), key.size()));
    if (value > 0 || importer.isMisspelt(key))
      continue;
    // for "cluster.link.bandwidth": the location of the link, else that of the cluster
    auto place = places.find(key.substr(0, key.find('.', std::string_view("cluster.").size())));
    if (place == places.end())
      place = places.find("cluster");
    reader.diagnostics().error(place == places.end() ? reader.where("cluster") : place->second,
                               missingConstant(cluster, name));
  }
}

constexpr double kLeastMemory = 4096; ///< a smaller limit is a number without its unit

/// Sets the device memory that a plan may use. A limit in the run file is used without a margin.
void limitMemory(const RunReader &reader) {
  ClusterConfig &cluster = reader.config().cluster;
  const char *key = "context.max_device_memory";
  double whole = cluster.memoryBytes;
  cluster.memoryBytes -= cluster.reservedBytes;
  std::optional<double> limit = reader.bytes(key);
  if (limit && *limit < kLeastMemory)
    reader.error(key, fmt::format("{} is {:g} bytes, in which no plan has room; write {:g}GB", key, *limit, *limit));
  if (!limit) {
    cluster.marginBytes = cluster.memoryMargin * whole;
    cluster.memoryBytes -= cluster.marginBytes;
  } else if (*limit < cluster.memoryBytes) {
    cluster.memoryBytes = *limit;
  } else {
    reader.report(key, KeyAction::Used,
                  fmt::format("above the {:.0f} bytes that a device of {} has, which stay the limit",
                              cluster.memoryBytes, cluster.name));
  }
}

/// Returns the entries of a map that --set has given.
YamlNode entriesOfSet(const YamlNode &map) {
  YamlNode given = map;
  given.entries.clear();
  for (YamlEntry entry : map.entries) {
    if (entry.value->isMap())
      entry.value = std::make_shared<YamlNode>(entriesOfSet(*entry.value));
    if (entry.value->isMap() ? !entry.value->entries.empty() : entry.value->where.file == kSetSource)
      given.entries.push_back(std::move(entry));
  }
  return given;
}

/// Changes the cluster of --cluster by the values of --set.
void changeNamed(const RunReader &reader, const YamlNode &section, ClusterImporter &importer) {
  YamlNode changes = entriesOfSet(section);
  if (changes.find("base") || (section.isScalar() && section.where.file == kSetSource))
    return reader.error("cluster", "--cluster and --set cluster name two clusters: leave one of them out");
  importer.readConstants(changes);
  for (const YamlEntry &entry : changes.entries)
    reader.report("cluster." + entry.key, KeyAction::Used, "changes the cluster of --cluster");
}

} // namespace

std::optional<ClusterConfig> readClusterFile(const std::string &name, DType compute, Diagnostics &diagnostics) {
  std::vector<std::string> folders = configFolders("", {});
  std::string file = findConfig("cluster", name, folders);
  if (file.empty()) {
    diagnostics.error({"--cluster", 0, 0}, noConfig("cluster", name, folders));
    return std::nullopt;
  }
  YamlPtr root = loadYamlMap(file, "a cluster file is a map of constants", diagnostics);
  if (!root)
    return std::nullopt;
  ClusterConfig cluster;
  DataSheet sheet;
  Places places;
  ConstantReader(cluster, sheet, places, diagnostics).read(*root, compute);
  applyShares(cluster, sheet, folders, diagnostics);
  std::vector<UnknownKey> unknown;
  findUnknownKeys(*root, "cluster.", unknown);
  for (const UnknownKey &key : unknown)
    diagnostics.error(key.entry->keyWhere, fmt::format("unknown key '{}' in a cluster{}", key.entry->key,
                                                       didYouMean(key.entry->key, key.known)));
  for (auto [key, value] : {std::pair("peak_flops", cluster.peakFlops),
                            {"memory_bandwidth", cluster.memoryBytesPerSecond},
                            {"matmul_efficiency", cluster.matmulEfficiency}})
    if (value <= 0)
      diagnostics.error(root->where, missingConstant(cluster, key));
  return cluster;
}

std::string epilogueName(rt::pb::LibraryCall::Epilogue epilogue) {
  std::string name = rt::pb::LibraryCall::Epilogue_Name(epilogue);
  std::ranges::transform(name, name.begin(), [](char letter) { return std::tolower(letter); });
  return name;
}

std::string productName(const rt::pb::Plan &plan, const rt::pb::LibraryCall &call) {
  auto matrix = [&](int buffer, int64_t rows, int64_t columns, bool isTransposed) {
    const rt::pb::Value &value = plan.values(static_cast<int>(call.buffers(buffer).value()));
    if (isTransposed)
      std::swap(rows, columns);
    return fmt::format("{} [{}, {}]{}", rt::pb::DataType_Name(value.type()), rows, columns, isTransposed ? "'" : "");
  };
  int64_t m = call.sizes(0), n = call.sizes(1), k = call.sizes(2), batch = call.sizes(3);
  const rt::pb::Value &result = plan.values(static_cast<int>(call.buffers(2).value()));
  std::string epilogue = call.epilogue() == rt::pb::LibraryCall::NONE ? "" : ", " + epilogueName(call.epilogue());
  if (call.epilogue() == rt::pb::LibraryCall::BIAS_GELU && call.buffers_size() == 4)
    epilogue += " without its operand";
  return fmt::format("{}{} by {} to {}{}", batch == 1 ? "" : fmt::format("{} x ", batch),
                     matrix(0, m, k, call.transpose_a()), matrix(1, k, n, call.transpose_b()),
                     rt::pb::DataType_Name(result.type()), epilogue);
}

void importCluster(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders) {
  ClusterImporter importer(reader, folders);
  const YamlNode *section = reader.find("cluster");
  if (!options.cluster.empty()) {
    importer.readNamed(options.cluster, {"--cluster", 0, 0});
    reader.report("cluster", KeyAction::Accepted, "--cluster wins");
    if (section)
      changeNamed(reader, *section, importer);
  } else if (section && section->isMap()) {
    std::optional<std::string> base = reader.text("cluster.base");
    bool isWhole = !base || importer.readNamed(*base, reader.where("cluster.base"));
    importer.readConstants(*section);
    if (!isWhole)
      importer.cluster().name.clear();
    else if (importer.cluster().name.empty())
      importer.cluster().name = "of the run file";
  } else if (section) {
    importer.readNamed(section->text, section->where);
  } else {
    importer.infer(options);
  }
  ClusterConfig &cluster = importer.cluster();
  if (!cluster.name.empty()) { // else the cluster is unreadable, which has been reported
    if (options.devices || options.loseNodes != 0)
      importer.change(options);
    importer.complete();
    checkConstants(reader, importer);
  }
  if (static_cast<int64_t>(cluster.hosts) * cluster.devicesPerHost > 1000000) {
    reader.error("cluster", "a cluster has at most 1000000 devices");
    cluster = {}; // prevents overflow in later checks
  }
  limitMemory(reader);
}

} // namespace espalier
