// Rank tables in Ascend's format 1.0: the devices of each host, and the rank of each device. All values are strings.
// Ranks count from 0 through the servers in order.
#pragma once

#include "runtime/status.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::launch {

/// An invalid rank table or hosts file. The text has a line "FILE: error: ..." for every error.
class TableError : public PlanError {
public:
  using PlanError::PlanError;
};

/// A device of a server, with its rank.
struct TableDevice {
  int device = 0; ///< index on its host
  std::string ip; ///< address of the device's own port; may be empty
  int rank = 0;
  bool operator==(const TableDevice &) const = default;
};

/// A server with its devices.
struct TableServer {
  std::string id; ///< usually the host's address
  std::vector<TableDevice> devices;
  bool operator==(const TableServer &) const = default;
};

/// The servers of a run.
struct RankTable {
  std::vector<TableServer> servers;
  /// Returns the number of ranks.
  int ranks() const;
  bool operator==(const RankTable &) const = default;
};

/// Reads and checks a table. Throws TableError with a line "FILE: error: server_list[1].device[0].rank_id: ..." for
/// every error. Errors are missing members, numbers that are not strings, wrong counts, gaps, and duplicate servers,
/// addresses, devices or ranks, and placeholders in the place of addresses unless `needsAddresses` is false.
RankTable readRankTable(const std::filesystem::path &file, bool needsAddresses = true);

/// Returns the table as JSON text in the format of hccl_tools.
std::string printRankTable(const RankTable &table);

/// Returns the servers of all tables in order, with ranks renumbered from 0. Throws PlanError if a server occurs twice.
RankTable mergeRankTables(std::span<const RankTable> tables);

/// One host of a hosts file, for example "10.0.0.1 slots=8 device_ips=192.1.27.6,192.2.27.6".
struct Host {
  std::string address;
  int slots = 1;
  std::vector<std::string> deviceIps; ///< empty, or one per slot
};

/// Reads a hosts file with one host per line; blank lines and # comments are ignored. Also reads a rank table if the
/// devices of each server are 0, 1, ..., because slots are. Throws TableError with "FILE:LINE: error: ..." for every
/// error.
std::vector<Host> readHosts(const std::filesystem::path &file);

/// Returns the rank table of these hosts. Slots become devices 0, 1, ...
RankTable tableOf(std::span<const Host> hosts);

} // namespace espalier::rt::launch
