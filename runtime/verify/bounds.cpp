// Rule B: each buffer lies inside the memory that its call binds, for every ring slot and mesh coordinate. Each
// allocation lies inside its arena.
#include "runtime/verify/rules.h"

#include <algorithm>
#include <map>
#include <set>

namespace espalier::rt::verify {
namespace {

class Bounds {
public:
  Bounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check();

private:
  void measure(const pb::Subprogram &subprogram);
  void checkParts();
  void checkPart(const std::string &name, const pb::Buffer &buffer);
  void checkGuards(const pb::Subprogram &subprogram, int64_t &workspace);
  void checkPlaces(int stage);
  void checkMemory(int stage);
  void checkCall(int stage, const pb::Call &call);
  void checkExchange(int stage, const pb::Exchange &exchange);
  void checkFlights(int stage);
  void checkTransfer(const std::string &name, const pb::Stage &stage, const pb::Call &call,
                     const pb::Transfer &transfer);
  void checkBuffer(const std::string &name, const pb::Stage &stage, const pb::Call &call, const pb::Buffer &buffer);
  void checkLifetime(const std::string &name, const pb::Stage &stage, const pb::Call &call, const pb::Place &place);
  int64_t boundBytes(const pb::Stage &stage, const pb::Call &call, uint32_t region) const;
  const pb::Place *placeOf(const pb::Stage &stage, const pb::Call &call, uint32_t region) const;
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
  std::vector<std::vector<int64_t>> reach; ///< by subprogram and region: the end of the accessed bytes
};

void Bounds::check() {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    measure(subprogram);
  checkParts();
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    checkPlaces(stage);
    checkMemory(stage);
    for (const pb::Call &call : plan.stages(stage).calls())
      checkCall(stage, call);
    for (const pb::Exchange &exchange : plan.stages(stage).exchanges())
      checkExchange(stage, exchange);
    checkFlights(stage);
  }
}

void Bounds::measure(const pb::Subprogram &subprogram) {
  std::vector<int64_t> &ends = reach.emplace_back(static_cast<size_t>(plan.regions_size()), 0);
  for (int i = 0; i < subprogram.instructions_size(); ++i)
    forEachBuffer(plan, subprogram.instructions(i), [&](const pb::Buffer &buffer) {
      Range bytes = bytesOf(buffer, plan, mesh);
      if (buffer.part())
        checkPart(instructionName(plan, subprogram, i), buffer);
      if (bytes.least < 0)
        add("{}: reads {} bytes before the beginning of {}", instructionName(plan, subprogram, i), -bytes.least,
            plan.regions(static_cast<int>(buffer.region())));
      ends[buffer.region()] = std::max(ends[buffer.region()], bytes.greatest);
    });
  for (int region = 0; region < plan.regions_size(); ++region)
    if (plan.regions(region) == "workspace")
      checkGuards(subprogram, ends[static_cast<size_t>(region)]);
}

void Bounds::checkParts() {
  for (const pb::Transfer &transfer : plan.transfers())
    for (const auto *buffers : {&transfer.from(), &transfer.to()})
      for (const pb::Buffer &buffer : *buffers)
        checkPart(fmt::format("transfer '{}'", transfer.name()), buffer);
  for (const pb::Bucket &bucket : plan.buckets()) {
    std::string name = fmt::format("bucket '{}'", bucket.name());
    checkPart(name, bucket.stored());
    checkPart(name, bucket.gradient());
    for (const pb::Buffer &buffer : bucket.state())
      checkPart(name, buffer);
  }
}

/// Checks that a sharded buffer is one of the equal shards of its value, or that each rank has a different value.
void Bounds::checkPart(const std::string &name, const pb::Buffer &buffer) {
  uint32_t axes = mesh.divided(buffer.part());
  if (axes == 0)
    return;
  const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
  int64_t whole = product({static_cast<int64_t>(value.elements()), widthOf(value.type())});
  int64_t bytes = static_cast<int64_t>(buffer.bytes());
  bool isOfAll = product({bytes, mesh.count(axes)}) == whole;
  bool isOwn = bytes == whole && (axes & ~mesh.divided(value.split())) == 0;
  if (!isOfAll && !isOwn)
    add("{}: {} bytes are no own part over axes {} of '{}', which has {} and is split over {}", name, bytes, axes,
        value.name(), whole, mesh.divided(value.split()));
}

/// Checks the guards of a subprogram. A guard counts as accessed, so the binding must also cover the bytes after the
/// last buffer.
void Bounds::checkGuards(const pb::Subprogram &subprogram, int64_t &workspace) {
  int64_t touched = workspace;
  for (const pb::Guard &guard : subprogram.guards()) {
    bool isInOrder =
        guard.first() <= guard.last() && guard.last() < static_cast<uint32_t>(subprogram.instructions_size());
    if (guard.offset() > static_cast<uint64_t>(touched) || !isInOrder)
      add("{}: a guard at byte {} from instruction {} to {}, buffers end at {} and there are {} instructions",
          subprogram.name(), guard.offset(), guard.first(), guard.last(), touched, subprogram.instructions_size());
    else
      workspace = std::max(workspace, static_cast<int64_t>(guard.offset()) + plan.guard_bytes());
  }
}

/// Checks the allocations of a stage. Both copies of a host staging buffer are disjoint in all slots, because the host
/// fills one copy while the device reads the other.
void Bounds::checkPlaces(int index) {
  const pb::Stage &stage = plan.stages(index);
  std::map<uint64_t, std::pair<uint64_t, int>> exchanged; // host staging buffers by first byte: end and allocation
  for (int i = 0; i < stage.places_size(); ++i) {
    const pb::Place &place = stage.places(i);
    uint64_t slots = stage.lifetimes(static_cast<int>(place.lifetime())).slots() * (place.exchanged() ? 2 : 1);
    uint64_t arena = stage.arena_bytes(place.memory()), last = 0;
    if (place.offsets_size() == 1)
      last = place.offsets(0) + (slots - 1) * place.stride();
    else
      last = *std::ranges::max_element(place.offsets());
    if (last + place.bytes() > arena)
      add("stage {}: place {} ends at byte {} of an arena of {}", index, i, last + place.bytes(), arena);
    if (!place.exchanged())
      continue;
    if (place.stride() < place.bytes())
      add("stage {}: place {} has {} bytes for the host every {}", index, i, place.bytes(), place.stride());
    else if (auto [at, isNew] = exchanged.emplace(place.offsets(0), std::pair(last + place.bytes(), i)); !isNew)
      add("stage {}: places {} and {} are one for the host", index, at->second.second, i);
  }
  for (auto next = exchanged.begin(); next != exchanged.end(); ++next)
    if (auto before = next; next != exchanged.begin() && (--before)->second.first > next->first)
      add("stage {}: both turns of place {} end at byte {}, place {} of the host begins at {}", index,
          before->second.second, before->second.first, next->second.second, next->first);
}

void Bounds::checkMemory(int index) {
  const pb::Stage &stage = plan.stages(index);
  uint64_t sum = 0;
  for (const pb::MemoryClass &part : stage.memory())
    if (__builtin_add_overflow(sum, part.bytes(), &sum))
      return add("stage {}: its classes of memory cannot be added up", index);
  if (!stage.memory().empty() && sum != stage.arena_bytes(pb::DEVICE))
    add("stage {}: its classes of memory have {} bytes, the arena has {}", index, sum, stage.arena_bytes(pb::DEVICE));
}

const pb::Place *Bounds::placeOf(const pb::Stage &stage, const pb::Call &call, uint32_t region) const {
  const pb::Binding *binding = bindingOf(call, region);
  return binding ? &stage.places(static_cast<int>(binding->place())) : nullptr;
}

int64_t Bounds::boundBytes(const pb::Stage &stage, const pb::Call &call, uint32_t region) const {
  const pb::Binding *binding = bindingOf(call, region);
  if (!binding)
    return 0;
  return static_cast<int64_t>(stage.places(static_cast<int>(binding->place())).bytes()) -
         static_cast<int64_t>(binding->offset());
}

/// Checks that an allocation that a call uses is resident, or that the call's chunk lists the allocation's live range.
void Bounds::checkLifetime(const std::string &name, const pb::Stage &stage, const pb::Call &call,
                           const pb::Place &place) {
  uint32_t number = 0;
  while (&stage.calls(static_cast<int>(number)) != &call)
    ++number;
  for (const pb::Chunk &chunk : stage.chunks())
    if (chunk.first_call() <= number && number < chunk.first_call() + chunk.calls() && place.lifetime() > 0 &&
        std::ranges::count(chunk.lifetimes(), place.lifetime()) == 0)
      add("{}: uses lifetime '{}', which chunk '{}' does not list", name,
          stage.lifetimes(static_cast<int>(place.lifetime())).name(), chunk.name());
}

void Bounds::checkCall(int index, const pb::Call &call) {
  const pb::Stage &stage = plan.stages(index);
  std::string name = fmt::format("stage {}, {}", index, call.name());
  for (const pb::Binding &binding : call.bindings())
    if (binding.offset() > stage.places(static_cast<int>(binding.place())).bytes())
      add("{}: binds {} at byte {} of a place of {}", name, plan.regions(static_cast<int>(binding.region())),
          binding.offset(), stage.places(static_cast<int>(binding.place())).bytes());
  for (uint32_t number : call.programs())
    for (int region = 0; number > 0 && region < plan.regions_size(); ++region) {
      int64_t touched = reach[number - 1][static_cast<size_t>(region)];
      uint32_t which = static_cast<uint32_t>(region);
      const pb::Place *place = placeOf(stage, call, which);
      const std::string &program = plan.subprograms(static_cast<int>(number) - 1).name();
      if (touched > std::max<int64_t>(0, boundBytes(stage, call, which)))
        add("{}: {} touches {} bytes of {}, the call binds {}", name, program, touched, plan.regions(region),
            boundBytes(stage, call, which));
      if (touched > 0 && place)
        checkLifetime(name, stage, call, *place);
      if (touched > 0 && place && place->memory() != pb::DEVICE)
        add("{}: {} touches {}, which is not in the device's memory", name, program, plan.regions(region));
    }
  for (const pb::BucketUse &use : call.buckets()) {
    const pb::Bucket &bucket = plan.buckets(static_cast<int>(use.bucket()));
    checkBuffer(name, stage, call, bucket.stored());
    if (bucket.has_gradient())
      checkBuffer(name, stage, call, bucket.gradient());
    if (bucket.has_whole_gradient())
      checkBuffer(name, stage, call, bucket.whole_gradient());
    if (bucket.has_whole_stored())
      checkBuffer(name, stage, call, bucket.whole_stored());
    for (const pb::Buffer &buffer : bucket.state())
      if (use.updates())
        checkBuffer(name, stage, call, buffer);
  }
}

void Bounds::checkBuffer(const std::string &name, const pb::Stage &stage, const pb::Call &call,
                         const pb::Buffer &buffer) {
  Range bytes = bytesOf(buffer, plan, mesh);
  int64_t bound = boundBytes(stage, call, buffer.region());
  if (bytes.least < 0 || bytes.greatest > std::max<int64_t>(0, bound))
    add("{}: bytes {} to {} of {}, the call binds {}", name, bytes.least, bytes.greatest,
        plan.regions(static_cast<int>(buffer.region())), bound);
}

void Bounds::checkExchange(int index, const pb::Exchange &exchange) {
  const pb::Stage &stage = plan.stages(index);
  const pb::Call &call = stage.calls(static_cast<int>(exchange.call()));
  std::string name = fmt::format("stage {}, exchange '{}'", index, exchange.name());
  checkBuffer(name, stage, call, exchange.buffer());
  const pb::Place *place = placeOf(stage, call, exchange.buffer().region());
  if (!place || !place->exchanged())
    add("{}: is in a region that is not exchanged with the host", name);
}

void Bounds::checkFlights(int index) {
  const pb::Stage &stage = plan.stages(index);
  std::set<std::pair<uint32_t, uint32_t>> seen; // pairs of transfer and call
  for (const pb::Actions &entry : stage.entries())
    for (const pb::Block &block : entry.blocks())
      for (const pb::Action &action : block.actions())
        for (const pb::Flight &flight : action.start().flights())
          if (seen.emplace(flight.transfer(), flight.call()).second) {
            const pb::Transfer &transfer = plan.transfers(static_cast<int>(flight.transfer()));
            const pb::Call &call = stage.calls(static_cast<int>(flight.call()));
            checkTransfer(fmt::format("stage {}, {} of {}", index, transfer.name(), call.name()), stage, call,
                          transfer);
          }
}

void Bounds::checkTransfer(const std::string &name, const pb::Stage &stage, const pb::Call &call,
                           const pb::Transfer &transfer) {
  for (const auto *buffers : {&transfer.from(), &transfer.to()})
    for (const pb::Buffer &buffer : *buffers) {
      checkBuffer(name, stage, call, buffer);
      const pb::Place *place = placeOf(stage, call, buffer.region());
      if (place)
        checkLifetime(name, stage, call, *place);
      if (place && place->memory() != pb::DEVICE && transfer.kind() != pb::Transfer::COPY)
        add("{}: ranks exchange values in the device's memory only", name);
    }
}

} // namespace

void verifyBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) { Bounds(plan, mesh, errors).check(); }

} // namespace espalier::rt::verify
