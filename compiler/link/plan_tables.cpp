#include "compiler/link/plan_tables.h"

namespace espalier {

PlanTables::PlanTables(rt::pb::Plan &plan) : plan(plan) {
  for (const rt::pb::Value &value : plan.values())
    values.emplace(value.name(), values.size());
  for (const rt::pb::Queue &queue : plan.queues())
    queues.emplace(queue.name(), queues.size());
  for (const rt::pb::Group &group : plan.groups())
    groups.emplace(std::pair(group.axes(), std::vector<uint32_t>(group.stages().begin(), group.stages().end())),
                   groups.size());
  for (const rt::pb::Location &location : plan.locations())
    locations.emplace(location.SerializeAsString(), locations.size());
  for (const rt::pb::Dim &dim : plan.dims())
    dims.emplace(std::tuple(dim.name(), dim.size(), dim.split()), dims.size());
}

uint32_t PlanTables::value(const rt::pb::Value &value) {
  auto [entry, isNew] = values.try_emplace(value.name(), plan.values_size());
  if (isNew)
    *plan.add_values() = value;
  return entry->second;
}

int64_t PlanTables::findValue(const std::string &name) const {
  auto found = values.find(name);
  return found == values.end() ? -1 : int64_t{found->second};
}

uint32_t PlanTables::group(uint32_t axes, const std::vector<uint32_t> &stages) {
  auto [entry, isNew] = groups.try_emplace({axes, stages}, plan.groups_size());
  if (isNew) {
    rt::pb::Group &group = *plan.add_groups();
    group.set_axes(axes);
    group.mutable_stages()->Assign(stages.begin(), stages.end());
  }
  return entry->second;
}

uint32_t PlanTables::queue(const std::string &name) const { return queues.at(name); }

uint32_t PlanTables::location(const rt::pb::Location &location) {
  auto [entry, isNew] = locations.try_emplace(location.SerializeAsString(), plan.locations_size());
  if (isNew)
    *plan.add_locations() = location;
  return entry->second;
}

uint32_t PlanTables::dim(const std::string &name, uint64_t size, uint32_t split) {
  auto [entry, isNew] = dims.try_emplace({name, size, split}, plan.dims_size());
  if (isNew) {
    rt::pb::Dim &dim = *plan.add_dims();
    dim.set_name(name);
    dim.set_size(size);
    dim.set_split(split);
  }
  return entry->second;
}

uint32_t PlanTables::transfer(rt::pb::Transfer transfer) {
  *plan.add_transfers() = std::move(transfer);
  return plan.transfers_size() - 1;
}

} // namespace espalier
