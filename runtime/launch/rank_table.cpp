#include "runtime/launch/rank_table.h"

#include "format/path_kind.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

namespace espalier::rt::launch {
namespace {

using Json = nlohmann::ordered_json;

/// Enough for 2^20 ranks of about a hundred bytes each.
constexpr uintmax_t mostBytes = 128 << 20;
constexpr int mostRanks = 1 << 20;

std::string readText(const std::filesystem::path &file) {
  std::error_code error;
  bool isFile = std::filesystem::is_regular_file(file, error);
  if (!isFile && !error)
    throw TableError(fmt::format("{}: error: is no file", file.string()));
  uintmax_t bytes = isFile ? std::filesystem::file_size(file, error) : 0;
  std::ifstream stream(file);
  if (error || !stream)
    throw TableError(
        fmt::format("{}: error: cannot read it: {}", file.string(), error ? error.message() : std::strerror(errno)));
  if (bytes > mostBytes)
    throw TableError(fmt::format("{}: error: has {} bytes, a rank table at most {}", file.string(), bytes, mostBytes));
  std::stringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

/// Returns why nobody can have an address, such as the "10.*.*.*" of published tables; empty if it may be one. An
/// address that begins with "-" could give ssh an option that runs a command on this machine.
std::string whyNoAddress(const std::string &address) {
  if (address.starts_with('-'))
    return fmt::format("is \"{}\", which ssh and mpirun take for an option; write the address of a host", address);
  constexpr std::string_view others = ".-_:%[]"; // of host names and of IPv6
  auto isOfAddress = [&](unsigned char c) { return std::isalnum(c) || others.find(c) != std::string_view::npos; };
  return std::ranges::all_of(address, isOfAddress)
             ? ""
             : fmt::format("is \"{}\", a placeholder; write the address in its place", address);
}

/// Parses a decimal number from 0 to 2^20 without sign or spaces.
std::optional<int> numberIn(std::string_view text) {
  int number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  bool isWhole = error == std::errc() && end == text.data() + text.size() && number >= 0 && number <= mostRanks;
  return isWhole ? std::optional(number) : std::nullopt;
}

/// Reads one file. Collects all errors, so that they can be reported together.
class TableReader {
public:
  TableReader(std::string file, bool needsAddresses) : file(std::move(file)), needsAddresses(needsAddresses) {}

  RankTable read(const std::string &text) {
    Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      fault("", "is no JSON object; a rank table begins {\"version\": \"1.0\", \"server_count\": ...}");
      finish();
    }
    if (auto version = textAt(json, "", "version"); version && *version != "1.0")
      fault("version", fmt::format("is \"{}\", known is \"1.0\"", *version));
    if (auto status = textAt(json, "", "status"); status && *status != "completed")
      fault("status", fmt::format("is \"{}\", wanted \"completed\": the table was not written to its end", *status));
    std::optional<int> count = numberAt(json, "", "server_count");
    RankTable table;
    if (!json.contains("server_list") || !json["server_list"].is_array() || json["server_list"].empty()) {
      fault("server_list", "is missing, empty or no list");
      finish();
    }
    const Json &servers = json["server_list"];
    if (count && static_cast<size_t>(*count) != servers.size())
      fault("server_count", fmt::format("is {}, server_list has {}", *count, servers.size()));
    for (size_t i = 0; i < servers.size(); ++i)
      table.servers.push_back(readServer(servers[i], fmt::format("server_list[{}]", i)));
    checkRanks();
    finish();
    return table;
  }

private:
  void fault(const std::string &where, const std::string &what) {
    constexpr size_t mostFaults = 64;
    if (faults.size() < mostFaults)
      faults.push_back(fmt::format("{}: error: {}{}{}", file, where, where.empty() ? "" : ": ", what));
  }

  void finish() const {
    if (!faults.empty())
      throw TableError(fmt::format("{}", fmt::join(faults, "\n")));
  }

  std::optional<std::string> textAt(const Json &object, const std::string &where, const char *name) {
    std::string path = where.empty() ? name : where + "." + name;
    if (!object.is_object() || !object.contains(name)) {
      fault(path, "is missing");
      return std::nullopt;
    }
    const Json &value = object[name];
    if (value.is_string())
      return value.get<std::string>();
    fault(path, value.is_number() ? fmt::format("is the number {0}, wanted a string: \"{0}\"", value.dump())
                                  : std::string("is no string"));
    return std::nullopt;
  }

  void checkAddress(const std::string &where, const std::string &address) {
    if (std::string why = whyNoAddress(address); needsAddresses && !why.empty())
      fault(where, why);
  }

  std::optional<int> numberAt(const Json &object, const std::string &where, const char *name) {
    std::optional<std::string> text = textAt(object, where, name);
    if (!text)
      return std::nullopt;
    std::optional<int> number = numberIn(*text);
    if (!number)
      fault(where.empty() ? name : where + "." + name,
            fmt::format("is \"{}\", wanted a number from 0 to {}", *text, mostRanks));
    return number;
  }

  TableServer readServer(const Json &json, const std::string &where) {
    TableServer server;
    std::optional<std::string> id = textAt(json, where, "server_id");
    server.id = id.value_or("");
    if (id && id->empty())
      fault(where + ".server_id", "is \"\", wanted the server's address");
    else if (id && !serverIds.insert(server.id).second)
      fault(where + ".server_id", fmt::format("{} has an entry before", server.id));
    checkAddress(where + ".server_id", server.id);
    if (!json.is_object() || !json.contains("device") || !json["device"].is_array() || json["device"].empty()) {
      fault(where + ".device", "is missing, empty or no list");
      areRanksKnown = false;
      return server;
    }
    std::set<int> devices;
    for (size_t i = 0; i < json["device"].size(); ++i) {
      const Json &entry = json["device"][i];
      std::string at = fmt::format("{}.device[{}]", where, i);
      std::optional<int> device = numberAt(entry, at, "device_id"), rank = numberAt(entry, at, "rank_id");
      std::string ip = entry.is_object() && entry.contains("device_ip") ? textAt(entry, at, "device_ip").value_or("")
                                                                        : std::string();
      if (device && !devices.insert(*device).second)
        fault(at + ".device_id", fmt::format("{} has an entry before on this server", *device));
      if (!ip.empty() && !ips.insert(ip).second)
        fault(at + ".device_ip", fmt::format("{} has an entry before", ip));
      checkAddress(at + ".device_ip", ip);
      areRanksKnown &= rank.has_value();
      ranks.push_back({rank.value_or(0), at + ".rank_id"});
      server.devices.push_back({device.value_or(0), ip, rank.value_or(0)});
    }
    return server;
  }

  /// Checks that ranks are in order, from 0, without gaps. Skipped if any rank has an error already.
  void checkRanks() {
    for (size_t i = 0; areRanksKnown && i < ranks.size(); ++i) {
      if (ranks[i].first == static_cast<int>(i))
        continue;
      bool isDouble = std::any_of(ranks.begin(), ranks.begin() + i, [&](auto &r) { return r.first == ranks[i].first; });
      fault(ranks[i].second, fmt::format("is {}, wanted {}: {}", ranks[i].first, i,
                                         isDouble ? "this rank has an entry before"
                                                  : "ranks count from 0 through the servers in order"));
      return; // all later ranks differ as well
    }
  }

  std::string file;
  bool needsAddresses;
  std::vector<std::string> faults;
  std::set<std::string> serverIds, ips;
  bool areRanksKnown = true;                      ///< for all devices
  std::vector<std::pair<int, std::string>> ranks; ///< with their paths in the file
};

} // namespace

int RankTable::ranks() const {
  int count = 0;
  for (const TableServer &server : servers)
    count += static_cast<int>(server.devices.size());
  return count;
}

RankTable readRankTable(const std::filesystem::path &file, bool needsAddresses) {
  if (PathKind kind = pathKind(file); kind != PathKind::Unknown && kind != PathKind::RankTable)
    refuseOther(file, "is no rank table");
  return TableReader(file.string(), needsAddresses).read(readText(file));
}

std::string printRankTable(const RankTable &table) {
  Json servers = Json::array();
  for (const TableServer &server : table.servers) {
    Json devices = Json::array();
    for (const TableDevice &device : server.devices) {
      Json entry = {{"device_id", std::to_string(device.device)}};
      if (!device.ip.empty())
        entry["device_ip"] = device.ip;
      entry["rank_id"] = std::to_string(device.rank);
      devices.push_back(std::move(entry));
    }
    servers.push_back({{"server_id", server.id}, {"device", devices}, {"host_nic_ip", "reserve"}});
  }
  return Json({{"version", "1.0"},
               {"server_count", std::to_string(table.servers.size())},
               {"server_list", servers},
               {"status", "completed"}})
             .dump(4) +
         "\n";
}

RankTable mergeRankTables(std::span<const RankTable> tables) {
  RankTable merged;
  std::set<std::string> ids, ips;
  int rank = 0;
  for (const RankTable &table : tables)
    for (const TableServer &server : table.servers) {
      if (!ids.insert(server.id).second)
        throw PlanError(fmt::format("server {} is in more than one table; give each server once", server.id));
      merged.servers.push_back(server);
      for (TableDevice &device : merged.servers.back().devices) {
        device.rank = rank++;
        if (!device.ip.empty() && !ips.insert(device.ip).second)
          throw PlanError(fmt::format("device_ip {} of server {} is in another table, too; give each device its own",
                                      device.ip, server.id));
      }
    }
  return merged;
}

namespace {

/// Parses one word of a line, such as "slots=8". `seen` holds the names of earlier words. Returns the error, or an
/// empty string.
std::string readHostWord(const std::string &word, Host &host, std::set<std::string> &seen) {
  size_t equals = word.find('=');
  std::string name = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (!seen.insert(name).second)
    return fmt::format("{} is given twice; give it once", name);
  if (name == "slots") {
    std::optional<int> slots = numberIn(value);
    if (!slots || *slots == 0)
      return fmt::format("slots is \"{}\", wanted a number of devices or processes from 1 to {}", value, mostRanks);
    host.slots = *slots;
    return "";
  }
  if (name != "device_ips")
    return fmt::format("\"{}\" is unknown; a line is ADDRESS slots=N device_ips=A,B", word);
  std::stringstream list(value);
  for (std::string ip; std::getline(list, ip, ',');)
    host.deviceIps.push_back(ip);
  return "";
}

/// Converts the servers of a table to hosts.
std::vector<Host> hostsOf(const RankTable &table, const std::filesystem::path &file) {
  std::vector<Host> hosts;
  for (const TableServer &server : table.servers) {
    Host host{server.id, static_cast<int>(server.devices.size()), {}};
    for (int slot = 0; slot < host.slots; ++slot) {
      if (server.devices[slot].device != slot)
        throw TableError(
            fmt::format("{}: error: server {} has device {} in place {}, and a launch starts ranks on devices "
                        "0, 1, ...; start espalier run --rank-table {} on each host",
                        file.string(), server.id, server.devices[slot].device, slot, file.string()));
      if (!server.devices[slot].ip.empty())
        host.deviceIps.push_back(server.devices[slot].ip);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

} // namespace

std::vector<Host> readHosts(const std::filesystem::path &file) {
  std::stringstream text(readText(file));
  if ((text >> std::ws).peek() == '{')
    return hostsOf(readRankTable(file), file);
  text.clear();
  text.seekg(0);
  std::vector<Host> hosts;
  std::vector<std::string> faults;
  std::set<std::string> addresses, ips;
  int number = 0, slots = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    std::stringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.address))
      continue;
    std::string what = whyNoAddress(host.address);
    std::set<std::string> seen;
    for (std::string word; what.empty() && words >> word;)
      what = readHostWord(word, host, seen);
    if (what.empty() && !addresses.insert(host.address).second)
      what = fmt::format("{} has a line before", host.address);
    if (what.empty() && !host.deviceIps.empty() && host.deviceIps.size() != static_cast<size_t>(host.slots))
      what = fmt::format("{} device_ips for {} slots", host.deviceIps.size(), host.slots);
    for (const std::string &ip : host.deviceIps)
      if (what.empty() && !ips.insert(ip).second)
        what = fmt::format("device_ip {} is given twice; give each device its own", ip);
    if (what.empty() && (slots += host.slots) > mostRanks)
      what = fmt::format("more than {} slots in all", mostRanks);
    if (!what.empty())
      faults.push_back(fmt::format("{}:{}: error: {}", file.string(), number, what));
    hosts.push_back(std::move(host));
    if (slots > mostRanks)
      break;
  }
  if (hosts.empty())
    faults.push_back(fmt::format("{}: error: has no host; a line is ADDRESS slots=N", file.string()));
  if (!faults.empty())
    throw TableError(fmt::format("{}", fmt::join(faults, "\n")));
  return hosts;
}

RankTable tableOf(std::span<const Host> hosts) {
  RankTable table;
  int rank = 0;
  for (const Host &host : hosts) {
    TableServer server{host.address, {}};
    for (int slot = 0; slot < host.slots; ++slot)
      server.devices.push_back({slot, host.deviceIps.empty() ? "" : host.deviceIps[slot], rank++});
    table.servers.push_back(std::move(server));
  }
  return table;
}

} // namespace espalier::rt::launch
