// Rules about collectives within a subprogram: a started one is live until its wait.
#include "runtime/comm/comm.h"
#include "runtime/verify_rules.h"

#include <fmt/format.h>
#include <map>

namespace espalier::rt {
namespace {

/// A buffer of a collective in flight.
struct Flying {
  int instruction;
  pb::Region region;
  ByteRange range;
  bool isWritten;
};

class Flights {
public:
  Flights(const pb::Plan &plan, const Mesh &mesh, const pb::Subprogram &subprogram, PlanErrors &errors)
      : plan(plan), mesh(mesh), subprogram(subprogram), errors(errors) {}

  void check();

private:
  void start(int index);
  void finish(int index);
  void touch(int index, const pb::BufferRef &buffer, bool isWritten);

  const pb::Plan &plan;
  const Mesh &mesh;
  const pb::Subprogram &subprogram;
  PlanErrors &errors;
  std::map<uint32_t, int> startOf;                ///< by id, every start seen
  std::map<uint32_t, std::vector<Flying>> flying; ///< by id, not yet waited for
};

void Flights::check() {
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    for (const pb::BufferRef &buffer : instruction.launch().buffers())
      touch(i, buffer, buffer.written());
    for (const pb::BufferRef &buffer : instruction.call().buffers())
      touch(i, buffer, buffer.written());
    if (instruction.has_start())
      start(i);
    if (instruction.has_wait())
      finish(i);
  }
  for (const auto &[id, buffers] : flying)
    errors.add(
        fmt::format("{}: collective {} is never waited for", instructionName(plan, subprogram, startOf[id]), id));
}

void Flights::start(int index) {
  const pb::Collective &collective = subprogram.instructions(index).start();
  std::string name = instructionName(plan, subprogram, index);
  for (const pb::BufferRef &buffer : collective.from())
    touch(index, buffer, /*isWritten=*/false);
  for (const pb::BufferRef &buffer : collective.to())
    touch(index, buffer, /*isWritten=*/true);
  if (!startOf.emplace(collective.id(), index).second)
    return errors.add(fmt::format("{}: collective {} is started twice", name, collective.id()));
  std::vector<Flying> &buffers = flying[collective.id()];
  for (const pb::BufferRef &buffer : collective.from())
    buffers.push_back({index, buffer.region(), rangeOf(buffer, mesh), false});
  for (const pb::BufferRef &buffer : collective.to())
    buffers.push_back({index, buffer.region(), rangeOf(buffer, mesh), true});
  if (flying.size() > maxInFlight)
    errors.add(fmt::format("{}: {} collectives in flight, at most {} are possible", name, flying.size(), maxInFlight));
}

void Flights::finish(int index) {
  uint32_t id = subprogram.instructions(index).wait().id();
  if (flying.erase(id) == 0)
    errors.add(fmt::format("{}: waits for collective {}, which is not in flight",
                           instructionName(plan, subprogram, index), id));
}

void Flights::touch(int index, const pb::BufferRef &buffer, bool isWritten) {
  ByteRange range = rangeOf(buffer, mesh);
  for (const auto &[id, buffers] : flying)
    for (const Flying &other : buffers)
      if (other.region == buffer.region() && other.range.overlaps(range) && (isWritten || other.isWritten))
        return errors.add(fmt::format("{}: touches bytes {} to {} of {} while collective {} of "
                                      "instruction {} is in flight there",
                                      instructionName(plan, subprogram, index), range.begin, range.end,
                                      pb::Region_Name(buffer.region()), id, other.instruction));
}

} // namespace

void verifyWaits(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    Flights(plan, mesh, subprogram, errors).check();
}

} // namespace espalier::rt
