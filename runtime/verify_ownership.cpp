// Rules about who holds what: layers on stages, blocks of parameters, optimizer shares, sums of
// gradients, the norm.
#include "runtime/comm/comm.h"
#include "runtime/program.h"
#include "runtime/verify_rules.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

namespace espalier::rt {
namespace {

/// A parameter as one stage holds it, in bytes of the stage's arena.
struct Holding {
  const pb::Parameter *parameter = nullptr;
  ByteRange values, gradient;
  int64_t elements = 0, held = 0; ///< local elements; those whose state the rank holds
  int updates = 0;                ///< calls that hold state for it
};

int64_t overlapBytes(const ByteRange &a, const ByteRange &b) {
  return std::max<int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

/// Gradients that are squared for the norm, and what each square counts.
struct Norm {
  const pb::BufferRef *squared;
  double weight;
};

class Ownership {
public:
  Ownership(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors)
      : plan(plan), mesh(mesh), errors(errors), holdings(plan.stages_size()) {
    std::vector<std::string> axes = zeroAxes();
    replicas = plan.settings().zero() > 0 ? mesh.product(axes) : 1;
    ranksPerStage = mesh.ranks() / std::max(1, plan.stages_size());
  }

  void check();

private:
  void checkLayers();
  void checkSplit(const pb::Parameter &parameter);
  void collect(int stage);
  void addSlot(int stage, const pb::Call &call, const pb::ParameterSlot &slot);
  void checkHolders();
  void checkDisjoint(int stage);
  void checkSums(int stage);
  void checkGathers(int stage);
  void checkNorm();
  std::vector<Norm> normsOf(const pb::Subprogram &subprogram) const;
  int64_t splits(const pb::Parameter &parameter) const;

  /// Calls visit(call, collective) for every collective of one kind of subprogram.
  template <typename Visit> void forEachCollective(int stage, uint32_t (pb::Call::*kind)() const, Visit visit) const;

  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
  std::vector<std::map<uint32_t, Holding>> holdings; ///< by stage and parameter
  int64_t replicas = 1;                              ///< ranks that share an optimizer state
  int64_t ranksPerStage = 1;
};

void Ownership::check() {
  checkLayers();
  for (const pb::Parameter &parameter : plan.parameters())
    checkSplit(parameter);
  if (!errors.empty())
    return;
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    collect(stage);
  checkHolders();
  if (!errors.empty())
    return;
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    checkDisjoint(stage);
    checkSums(stage);
    checkGathers(stage);
  }
  checkNorm();
}

void Ownership::checkLayers() {
  std::map<uint32_t, int> stageOf;
  uint64_t next = 0;
  uint32_t calls = 0;
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    const pb::Stage &holder = plan.stages(stage);
    if (holder.first_layer() != next)
      add("stage {} begins with layer {}, layer {} comes next", stage, holder.first_layer(), next);
    next = uint64_t(holder.first_layer()) + holder.layers();
    for (const pb::Call &call : holder.calls()) {
      ++calls;
      auto [entry, isNew] = stageOf.emplace(call.layer(), stage);
      if (!isNew)
        add("layer {} is called on stage {} and on stage {}", call.layer(), entry->second, stage);
    }
  }
  if (!stageOf.empty() && stageOf.rbegin()->first + 1 != stageOf.size())
    add("the stages call {} layers of {}", stageOf.size(), uint64_t(stageOf.rbegin()->first) + 1);
  if (calls < next)
    add("the stages hold {} repeated layers and call {}", next, calls);
}

void Ownership::checkSplit(const pb::Parameter &parameter) {
  std::set<std::string> used;
  for (int i = 0; i < parameter.dims_size(); ++i) {
    std::vector<std::string> axes(parameter.dims(i).axes().begin(), parameter.dims(i).axes().end());
    for (const std::string &axis : axes)
      if (!used.insert(axis).second)
        add("parameter '{}' is split twice over '{}'", parameter.name(), axis);
    int64_t parts = mesh.product(axes);
    if (parameter.padded_shape(i) % parts != 0)
      add("parameter '{}': dimension {} of padded size {} does not split over {} ranks", parameter.name(), i,
          parameter.padded_shape(i), parts);
  }
  std::set<uint32_t> stages(parameter.stages().begin(), parameter.stages().end());
  if (stages.size() != static_cast<size_t>(parameter.stages_size()))
    add("parameter '{}' lists a stage twice", parameter.name());
  for (const std::string &axis : parameter.partial_axes())
    if (used.count(axis))
      add("parameter '{}' is split and partial over '{}'", parameter.name(), axis);
}

int64_t Ownership::splits(const pb::Parameter &parameter) const {
  int64_t parts = 1;
  for (const pb::ShardedDim &dim : parameter.dims())
    parts *= mesh.product(std::vector<std::string>(dim.axes().begin(), dim.axes().end()));
  return parts;
}

void Ownership::collect(int stage) {
  for (const pb::Call &call : plan.stages(stage).calls())
    for (const pb::ParameterSlot &slot : call.parameters())
      addSlot(stage, call, slot);
}

void Ownership::addSlot(int stage, const pb::Call &call, const pb::ParameterSlot &slot) {
  const pb::Parameter &parameter = plan.parameters(slot.parameter());
  std::string name = fmt::format("stage {}, layer {}, parameter '{}'", stage, call.layer(), parameter.name());
  int64_t padded = 1;
  for (uint64_t size : parameter.padded_shape())
    padded *= size;
  int64_t elements = padded / splits(parameter);
  if (static_cast<int64_t>(slot.local_elements()) != elements)
    return add("{}: holds {} elements, its split gives {}", name, slot.local_elements(), elements);
  int64_t share = (elements + replicas - 1) / replicas;
  if (slot.state_elements() != 0 && static_cast<int64_t>(slot.state_elements()) != share)
    add("{}: optimizer state for {} elements, its share is {}", name, slot.state_elements(), share);
  auto place = [&](pb::Region region, uint64_t offset, uint64_t bytes) -> ByteRange {
    const pb::Binding *binding = bindingOf(plan.stages(stage), call, region);
    uint64_t bound = binding ? binding->bytes() : 0;
    if (offset + bytes > bound)
      add("{}: bytes {} to {} of {}, the call binds {}", name, offset, offset + bytes, pb::Region_Name(region), bound);
    int64_t begin = (binding ? binding->base() : 0) + offset;
    return {begin, begin + static_cast<int64_t>(bytes)};
  };
  Holding holding;
  holding.parameter = &parameter;
  holding.elements = elements;
  holding.values = place(pb::PARAMETERS, slot.parameter_offset(), elements * elementBytes(parameter.type()));
  holding.gradient = place(pb::GRADIENTS, slot.gradient_offset(), elements * 4);
  place(pb::STATE, slot.state_offset(), slot.state_elements() * 4 * (slot.master() ? 3 : 2));
  auto [entry, isNew] = holdings[stage].try_emplace(slot.parameter(), holding);
  Holding &kept = entry->second;
  if (kept.values.begin != holding.values.begin || kept.gradient.begin != holding.gradient.begin)
    add("{}: lies in two places of the stage", name);
  kept.held = share;
  kept.updates += slot.state_elements() > 0;
}

void Ownership::checkHolders() {
  for (int i = 0; i < plan.parameters_size(); ++i) {
    const pb::Parameter &parameter = plan.parameters(i);
    for (int stage = 0; stage < plan.stages_size(); ++stage) {
      auto holding = holdings[stage].find(i);
      bool isHeld = holding != holdings[stage].end();
      bool isListed = std::ranges::count(parameter.stages(), static_cast<uint32_t>(stage)) > 0;
      if (isHeld != isListed)
        add("parameter '{}' is {} stage {} but the stage {} it", parameter.name(),
            isListed ? "listed on" : "not listed on", stage, isHeld ? "holds" : "does not hold");
      if (isHeld && holding->second.updates != 1)
        add("stage {}: {} calls hold optimizer state for parameter '{}', needs 1", stage, holding->second.updates,
            parameter.name());
    }
  }
}

void Ownership::checkDisjoint(int stage) {
  std::vector<std::pair<ByteRange, const pb::Parameter *>> ranges;
  for (const auto &[number, holding] : holdings[stage]) {
    ranges.emplace_back(holding.values, holding.parameter);
    ranges.emplace_back(holding.gradient, holding.parameter);
  }
  std::ranges::sort(ranges, {}, [](const auto &entry) { return entry.first.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i - 1].first.overlaps(ranges[i].first))
      add("stage {}: parameters '{}' and '{}' share memory", stage, ranges[i - 1].second->name(),
          ranges[i].second->name());
}

template <typename Visit>
void Ownership::forEachCollective(int stage, uint32_t (pb::Call::*kind)() const, Visit visit) const {
  for (const pb::Call &call : plan.stages(stage).calls())
    if (uint32_t number = (call.*kind)())
      for (const pb::Instruction &instruction : plan.subprograms(number - 1).instructions())
        if (instruction.has_start())
          visit(call, instruction.start());
}

/// Every axis over which a gradient is partial sums each of its bytes once, under ZeRO-1 at least
/// the rank's share, and no other axis does.
void Ownership::checkSums(int stage) {
  std::map<std::pair<const pb::Parameter *, std::string>, int64_t> summed; // bytes, by axis
  forEachCollective(stage, &pb::Call::reduce_gradients, [&](const pb::Call &call, const pb::Collective &collective) {
    bool isSum = collective.reduction() == pb::Collective::SUM && (collective.kind() == pb::Collective::ALL_REDUCE ||
                                                                   collective.kind() == pb::Collective::REDUCE_SCATTER);
    std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
    if (!collective.stages().empty())
      axes = {"pp"};
    const pb::Binding *binding = bindingOf(plan.stages(stage), call, pb::GRADIENTS);
    for (const pb::BufferRef &buffer : collective.from()) {
      if (!isSum || buffer.region() != pb::GRADIENTS || !binding)
        continue;
      int64_t begin = binding->base() + buffer.offset();
      ByteRange range = {begin, begin + static_cast<int64_t>(buffer.bytes())};
      for (const auto &[number, holding] : holdings[stage])
        for (const std::string &axis : axes)
          summed[{holding.parameter, axis}] += overlapBytes(range, holding.gradient);
    }
  });
  for (const auto &[number, holding] : holdings[stage]) {
    const pb::Parameter &parameter = *holding.parameter;
    std::set<std::string> partial(parameter.partial_axes().begin(), parameter.partial_axes().end());
    if (parameter.stages_size() > 1)
      partial.insert("pp");
    for (const char *axis : {"pp", "dp", "cp", "ep", "tp"}) {
      int64_t bytes = summed[{&parameter, axis}];
      bool isPartial = partial.count(axis) && mesh.axisSize(axis) > 1;
      int64_t least = holding.elements * 4;
      if (replicas > 1 && std::ranges::count(zeroAxes(), axis) == 0)
        least = std::min(least, holding.held * 4);
      if (isPartial && (bytes < least || bytes > holding.elements * 4))
        add("stage {}: {} of {} gradient bytes of parameter '{}' are summed over '{}'", stage, bytes,
            holding.elements * 4, parameter.name(), axis);
      if (!isPartial && bytes > 0 && mesh.axisSize(axis) > 1)
        add("stage {}: the gradient of parameter '{}' is summed over '{}', over which it is not "
            "partial",
            stage, parameter.name(), axis);
    }
  }
}

/// Under ZeRO-1 each rank updates a share, and the shares come together in the parameter once.
void Ownership::checkGathers(int stage) {
  if (replicas <= 1)
    return;
  std::map<const pb::Parameter *, int64_t> gathered;
  forEachCollective(stage, &pb::Call::optimizer, [&](const pb::Call &call, const pb::Collective &collective) {
    std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
    const pb::Binding *binding = bindingOf(plan.stages(stage), call, pb::PARAMETERS);
    for (const pb::BufferRef &buffer : collective.to()) {
      if (collective.kind() != pb::Collective::ALL_GATHER || mesh.product(axes) != replicas ||
          buffer.region() != pb::PARAMETERS || !binding)
        continue;
      int64_t begin = binding->base() + buffer.offset();
      ByteRange range = {begin, begin + static_cast<int64_t>(buffer.bytes())};
      for (const auto &[number, holding] : holdings[stage])
        gathered[holding.parameter] += overlapBytes(range, holding.values);
    }
  });
  for (const auto &[number, holding] : holdings[stage])
    if (gathered[holding.parameter] != holding.values.end - holding.values.begin)
      add("stage {}: {} of {} bytes of parameter '{}' are gathered after the update", stage,
          gathered[holding.parameter], holding.values.end - holding.values.begin, holding.parameter->name());
}

/// Over all ranks, each element of each gradient counts once in the norm.
/// The gradients that a subprogram squares, each with what it counts: one call, or the squares by a kernel and then their
/// weighted sum.
std::vector<Norm> Ownership::normsOf(const pb::Subprogram &subprogram) const {
  std::vector<Norm> norms;
  const pb::BufferRef *squared = nullptr;
  auto add = [&](const pb::BufferRef &buffer, double weight) {
    if (buffer.region() == pb::GRADIENTS)
      norms.push_back({&buffer, weight});
  };
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    const pb::LibraryCall &call = instruction.call();
    if (call.function() == pb::LibraryCall::SQUARED_NORM && !call.buffers().empty() && !call.floats().empty())
      add(call.buffers(0), call.floats(0));
    if (!instruction.has_launch() || instruction.launch().buffers().empty())
      continue;
    const pb::Kernel &kernel = plan.kernels(instruction.launch().kernel());
    if (kernel.shape() == "square_blocks")
      squared = &instruction.launch().buffers(0);
    else if (kernel.shape() == "add_squares" && squared)
      add(*std::exchange(squared, nullptr), kernel.norm_weight());
  }
  return norms;
}

void Ownership::checkNorm() {
  std::map<const pb::Parameter *, double> counted;
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (const pb::Call &call : plan.stages(stage).calls()) {
      const pb::Binding *binding = bindingOf(plan.stages(stage), call, pb::GRADIENTS);
      if (call.squared_norm() == 0 || !binding)
        continue;
      for (const Norm &norm : normsOf(plan.subprograms(call.squared_norm() - 1))) {
        int64_t begin = binding->base() + norm.squared->offset();
        ByteRange range = {begin, begin + static_cast<int64_t>(norm.squared->bytes())};
        for (const auto &[number, holding] : holdings[stage]) {
          // Under ZeRO-1 the place depends on the coordinate; its size says how much counts.
          double bytes = overlapBytes(range, holding.gradient);
          double ranksWithIt = double(ranksPerStage) / splits(*holding.parameter) / replicas;
          counted[holding.parameter] += norm.weight * ranksWithIt * std::min(1.0, bytes / (holding.held * 4.0));
        }
      }
    }
  for (const pb::Parameter &parameter : plan.parameters())
    if (std::abs(counted[&parameter] - 1) > 1e-6)
      add("parameter '{}' counts {:.6g} times in the gradient's norm", parameter.name(), counted[&parameter]);
}

} // namespace

void verifyOwnership(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Ownership(plan, mesh, errors).check();
}

} // namespace espalier::rt
