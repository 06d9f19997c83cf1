// Rank tables of Ascend's format 1.0: which host has which devices, and which rank runs on each. All values are strings
// there; ranks count from 0 through the servers in order.
#pragma once

#include "runtime/status.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::launch {

/// A table or hosts file that does not hold; the text has a line "FILE: error: ..." for every fault.
class TableError : public PlanError {
public:
  using PlanError::PlanError;
};

struct TableDevice {
  int device = 0; ///< on its host
  std::string ip; ///< of the device's own port; may be empty
  int rank = 0;
  bool operator==(const TableDevice &) const = default;
};

struct TableServer {
  std::string id; ///< usually the host's address
  std::vector<TableDevice> devices;
  bool operator==(const TableServer &) const = default;
};

struct RankTable {
  std::vector<TableServer> servers;
  int ranks() const;
  bool operator==(const RankTable &) const = default;
};

/// Reads and checks a table. Throws TableError with a line "FILE: error: server_list[1].device[0].rank_id: ..." for
/// every fault: missing members, numbers that are no strings, counts, gaps, doubled servers, addresses, devices or
/// ranks.
RankTable readRankTable(const std::filesystem::path &file);

/// The table as JSON text, as hccl_tools writes it.
std::string printRankTable(const RankTable &table);

/// The servers of all tables in order, with ranks counted anew from 0. Throws PlanError if a server occurs twice.
RankTable mergeRankTables(std::span<const RankTable> tables);

/// One host of a hosts file: "10.0.0.1 slots=8 device_ips=192.1.27.6,192.2.27.6".
struct Host {
  std::string address;
  int slots = 1;
  std::vector<std::string> deviceIps; ///< none, or one per slot
};

/// Reads a hosts file: a host a line, blank lines and # comments apart. A rank table is read, too, if the devices of
/// each server are 0, 1, ..., as slots are. Throws TableError with "FILE:LINE: error: ..." for every fault.
std::vector<Host> readHosts(const std::filesystem::path &file);

/// The table of these hosts: their slots are devices 0, 1, ...
RankTable tableOf(std::span<const Host> hosts);

} // namespace espalier::rt::launch
