#include "compiler/link/generation.h"

#include "compiler/link/add_transfers.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

using namespace rt;

namespace {

/// Largest number of prompt tokens per prefill. The number is large enough for matrix products at full speed and small
/// compared with a long context. Shorter prompts are padded; a device may skip the padding.
constexpr int64_t promptTokens = 64;

constexpr const char *phaseNames[] = {"prefill", "decode"};
constexpr const char *inputNames[] = {"tokens", "positions", "rows"};

uint64_t bytesOf(const pb::Value &value) {
  return value.elements() * (value.type() == pb::BF16 || value.type() == pb::F16 ? 2 : 4);
}

/// Builds the transfers of one entry.
class TransferBuilder {
public:
  TransferBuilder(const RegionSizes &regions, std::string phase, PlanTables &tables, const pb::Plan &out)
      : regions(regions), phase(std::move(phase)), tables(tables), out(out) {}

  PhaseTransfers build(bool hasLines) {
    PhaseTransfers made;
    made.inputs = addInputs();
    if (hasLines) {
      made.out = addLine("out", /*sends=*/true);
      made.in = addLine("in", /*sends=*/false);
    }
    made.logits = addLogits();
    return made;
  }

private:
  pb::Buffer at(exec::Region region, uint64_t offset, int64_t value, int32_t layer = 0) const {
    return bufferAt(region, offset, bytesOf(out.values(static_cast<int>(value))), value, layer);
  }

  pb::Transfer transfer(const std::string &name, pb::Transfer::Kind kind, const std::string &queue) {
    return transferNamed(name + "." + phase, kind, queue, tables);
  }

  uint32_t addInputs() {
    pb::Transfer made = transfer("tok", pb::Transfer::COPY, "to_device");
    for (const char *name : inputNames) {
      std::string key = std::string(name) + "." + phase;
      auto input = regions.inputs.find(key);
      if (input == regions.inputs.end()) // no program reads this input
        continue;
      *made.add_from() = at(exec::Region::Staged, input->second.offset, tables.findValue(key));
      *made.add_to() = at(exec::Region::Inputs, input->second.offset, tables.findValue(key));
    }
    return tables.transfer(std::move(made));
  }

  uint32_t addLine(const char *name, bool sends) {
    pb::Transfer made = transfer(name, sends ? pb::Transfer::SEND : pb::Transfer::RECEIVE, name);
    made.set_shift(sends ? 1 : -1);
    int64_t stream = tables.findValue("stream." + phase);
    if (sends)
      *made.add_from() = at(exec::Region::StreamOut, 0, stream, 1);
    else
      *made.add_to() = at(exec::Region::StreamIn, 0, stream, 0);
    return tables.transfer(std::move(made));
  }

  uint32_t addLogits() {
    pb::Transfer made = transfer("logits", pb::Transfer::COPY, "to_host");
    int64_t value = tables.findValue("logits");
    *made.add_from() = at(exec::Region::Logits, 0, value);
    *made.add_to() = at(exec::Region::Results, 0, value);
    return tables.transfer(std::move(made));
  }

  const RegionSizes &regions;
  std::string phase;
  PlanTables &tables;
  const pb::Plan &out;
};

} // namespace

std::vector<GenerationPhase> generationPhases(const ModelDescription &model) {
  return {{phaseNames[0], std::min(promptTokens, model.dims.at("seq"))}, {phaseNames[1], 1}};
}

void addGenerationNames(ModuleOp module, const planner::Plan &plan, pb::Plan &out) {
  bool hasCollectives = false;
  module.walk([&](exec::StartOp) { hasCollectives = true; });
  for (auto [name, occurs] :
       {std::pair("compute", true), std::pair("collectives", hasCollectives), std::pair("out", plan.pp > 1),
        std::pair("in", plan.pp > 1), std::pair("to_device", true), std::pair("to_host", true)})
    if (occurs)
      out.add_queues()->set_name(name);
  for (const char *name : phaseNames) {
    pb::Entry &entry = *out.add_entries();
    entry.set_name(name);
    entry.set_micro_batches(1);
    entry.add_finds(static_cast<uint32_t>(exec::Region::Parameters));
    entry.add_finds(static_cast<uint32_t>(exec::Region::Cache));
    entry.add_writes(static_cast<uint32_t>(exec::Region::Cache));
  }
}

std::vector<PhaseTransfers> addGenerationTransfers(ModuleOp module, const RegionSizes &regions,
                                                   const planner::Plan &plan, PlanTables &tables, const pb::Plan &out) {
  addPassingValues(module, tables);
  std::vector<PhaseTransfers> transfers;
  for (const char *name : phaseNames)
    transfers.push_back(TransferBuilder(regions, name, tables, out).build(plan.pp > 1));
  return transfers;
}

} // namespace espalier
