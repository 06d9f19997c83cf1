// What a plan says once and by number: values, groups, queues. Found by what they are, made when they are new.
#pragma once

#include "runtime/plan.pb.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier {

class PlanTables {
public:
  /// Continues what `plan` has.
  explicit PlanTables(rt::pb::Plan &plan);

  /// The value of that name, which is added if it is new.
  uint32_t value(const rt::pb::Value &value);
  /// The number of a value that is there; -1 when it is not.
  int64_t findValue(const std::string &name) const;
  /// Ranks that differ only in `axes`; of `stages` only where these are given.
  uint32_t group(uint32_t axes, const std::vector<uint32_t> &stages = {});
  /// The queue of that name; the plan lists those that occur before anything asks for one.
  uint32_t queue(const std::string &name) const;
  /// The location that says the same, which is added if it is new.
  uint32_t location(const rt::pb::Location &location);
  /// The dimension of that name, size and split, which is added if it is new.
  uint32_t dim(const std::string &name, uint64_t size, uint32_t split);
  /// Adds a transfer and returns its number.
  uint32_t transfer(rt::pb::Transfer transfer);

private:
  rt::pb::Plan &plan;
  std::map<std::string, uint32_t> values, queues, locations;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, uint32_t> groups;
  std::map<std::tuple<std::string, uint64_t, uint32_t>, uint32_t> dims;
};

} // namespace espalier
