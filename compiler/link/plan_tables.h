// Indexes the tables of a plan: values, groups, queues, locations and dimensions. Finds entries by content and adds new
// ones.
#pragma once

#include "format/plan.pb.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier {

/// Index of a plan's tables.
class PlanTables {
public:
  /// Indexes the entries that `plan` already has.
  explicit PlanTables(rt::pb::Plan &plan);

  /// Returns the value with this name, and adds it if it is new.
  uint32_t value(const rt::pb::Value &value);
  /// Returns the index of a value, or -1 if there is none with this name.
  int64_t findValue(const std::string &name) const;
  /// Returns the group of ranks that differ only in `axes`. If `stages` is not empty, the group has only ranks of these
  /// stages.
  uint32_t group(uint32_t axes, const std::vector<uint32_t> &stages = {});
  /// Returns the queue with this name. The plan must already list it.
  uint32_t queue(const std::string &name) const;
  /// Returns the location with this content, and adds it if it is new.
  uint32_t location(const rt::pb::Location &location);
  /// Returns the dimension with this name, size and split, and adds it if it is new.
  uint32_t dim(const std::string &name, uint64_t size, uint32_t split);
  /// Adds a transfer and returns its index.
  uint32_t transfer(rt::pb::Transfer transfer);

private:
  rt::pb::Plan &plan;
  std::map<std::string, uint32_t> values, queues, locations;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, uint32_t> groups;
  std::map<std::tuple<std::string, uint64_t, uint32_t>, uint32_t> dims;
};

} // namespace espalier
