#include "compiler/link/add_transfers.h"

#include "compiler/attributes/batch_ramp.h"
#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/kernel_shape.h"
#include "compiler/link/plan_numbers.h"
#include "dialects/exec/dialect.h"
#include "format/abi.h"
#include "format/axes.h"
#include "format/model_inputs.h"
#include "planner/model/schedule.h"

#include <map>
#include <set>

using namespace mlir;

namespace espalier {

using namespace rt;

namespace {

constexpr uint64_t scalarBytes = uint64_t{rt::ScalarSlotCount} * 4;
constexpr uint32_t sumSlots[] = {rt::LossSum, rt::TokenCount, rt::SquaredNorm, rt::StopRequests};

/// Returns the mesh axes of size greater than 1.
uint32_t allAxes(const planner::Plan &plan) {
  auto bit = [](int size, StringRef axis) { return size > 1 ? exec::axisBit(axis) : 0; };
  return sampleAxisBits(plan) | bit(plan.pp, "pp") | bit(plan.cp, "cp") | bit(plan.tp, "tp");
}

/// Adds the scalars that the host sets, and one value per scalar slot. Before the all-reduce, a rank holds partial sums
/// in the slots of sums. Slots that the run does not use have no value.
uint32_t addScalars(uint32_t axes, exec::OptimizerAttr optimizer, PlanTables &tables) {
  pb::Value all;
  all.set_name("scalars");
  all.set_elements(rt::ScalarSlotCount);
  all.set_resident(true);
  uint32_t whole = tables.value(all);
  auto add = [&](const std::string &name, uint32_t slot, uint32_t partial) {
    pb::Value value;
    value.set_name(name);
    value.set_type(slot == rt::Step ? pb::I32 : pb::F32);
    value.set_elements(1);
    value.set_partial(partial);
    value.set_resident(true);
    value.set_whole(whole + 1);
    value.set_first(slot);
    tables.value(value);
  };
  auto isUsed = [&](uint32_t slot) {
    if (slot == rt::NormLimit)
      return optimizer.getSkipSpikeFactor() > 0;
    return slot < rt::GroupRate || slot - rt::GroupRate < optimizer.getGroupDecays().size();
  };
  for (auto [name, slot] : codegen::scalarSlots)
    if (isUsed(slot))
      add(name, slot, llvm::is_contained(sumSlots, slot) ? axes : 0);
  for (uint32_t slot : sumSlots)
    if (axes)
      add(codegen::agreedName(slot), slot, 0);
  return whole;
}

uint32_t addAgreement(uint32_t axes, PlanTables &tables) {
  pb::Transfer agree = transferNamed("agree", pb::Transfer::ALL_REDUCE, "gradients", tables);
  agree.set_group(tables.group(axes));
  for (uint32_t slot : sumSlots) {
    *agree.add_from() =
        bufferAt(exec::Region::Scalars, uint64_t{slot} * 4, 4, tables.findValue(codegen::scalarName(slot).str()));
    *agree.add_to() =
        bufferAt(exec::Region::Scalars, uint64_t{slot} * 4, 4, tables.findValue(codegen::agreedName(slot)));
  }
  return tables.transfer(std::move(agree));
}

/// Adds the transfers between stages. Channel 0 sends streams by `shift` stages. Channel 1 sends cotangents in the
/// opposite direction and exists only if the module trains.
StreamTransfers addLines(const RegionSizes &regions, int shift, const std::string &suffix, bool hasBackward,
                         PlanTables &tables) {
  auto add = [&](const std::string &queue, bool sends, int by, uint32_t line, exec::Region region, int32_t layer) {
    pb::Transfer made =
        transferNamed(queue + suffix, sends ? pb::Transfer::SEND : pb::Transfer::RECEIVE, queue, tables);
    made.set_shift(by);
    made.set_line(line);
    int64_t value = tables.findValue(line == 0 ? "stream" : "cotangent");
    pb::Buffer buffer = bufferAt(region, 0, regions.streamBytes, value, layer);
    *(sends ? made.add_from() : made.add_to()) = buffer;
    return static_cast<int64_t>(tables.transfer(std::move(made)));
  };
  StreamTransfers made;
  made.out = add("out", /*sends=*/true, shift, 0, exec::Region::StreamOut, 1);
  made.in = add("in", /*sends=*/false, -shift, 0, exec::Region::StreamIn, 0);
  if (!hasBackward)
    return made;
  made.dIn = add("din", /*sends=*/true, -shift, 1, exec::Region::CotangentIn, 0);
  made.dOut = add("dout", /*sends=*/false, shift, 1, exec::Region::CotangentOut, 1);
  return made;
}

/// Returns, by channel, the pairs (sender, receiver) of stages between which the schedules start sends.
std::map<uint32_t, std::set<std::pair<uint32_t, uint32_t>>> linePairs(const pb::Plan &plan) {
  std::map<uint32_t, std::set<std::pair<uint32_t, uint32_t>>> pairs;
  int stages = plan.stages_size();
  auto add = [&](int stage, const pb::Flight &flight) {
    const pb::Transfer &transfer = plan.transfers(static_cast<int>(flight.transfer()));
    if (transfer.kind() == pb::Transfer::SEND)
      pairs[transfer.line()].insert(
          {static_cast<uint32_t>(stage), static_cast<uint32_t>((stage + transfer.shift() + stages) % stages)});
  };
  for (auto [number, stage] : llvm::enumerate(plan.stages()))
    for (const pb::Actions &actions : stage.entries())
      for (const pb::Block &block : actions.blocks())
        for (const pb::Action &action : block.actions())
          for (const pb::Flight &flight : action.start().flights())
            add(static_cast<int>(number), flight);
  return pairs;
}

} // namespace

uint32_t sampleAxisBits(const planner::Plan &plan) {
  auto bit = [](int size, StringRef axis) { return size > 1 ? exec::axisBit(axis) : 0; };
  return bit(plan.zeroReplicas(), replicateAxis) | bit(plan.zeroRanks(), "dp") | bit(plan.ep, "ep");
}

pb::Buffer bufferAt(exec::Region region, uint64_t offset, uint64_t bytes, int64_t value, int32_t layer) {
  pb::Buffer buffer;
  buffer.set_region(static_cast<uint32_t>(region));
  buffer.set_offset(offset);
  buffer.set_bytes(bytes);
  buffer.set_value(static_cast<uint32_t>(value));
  buffer.set_layer(layer);
  return buffer;
}

pb::Transfer transferNamed(const std::string &name, pb::Transfer::Kind kind, const std::string &queue,
                           PlanTables &tables) {
  pb::Transfer made;
  pb::Location location;
  location.set_op(name);
  made.set_location(tables.location(location));
  made.set_name(name);
  made.set_kind(kind);
  made.set_queue(tables.queue(queue));
  return made;
}

void addNames(ModuleOp module, const RegionSizes &regions, const planner::Plan &plan, pb::Plan &out) {
  bool hasCollectives = false;
  module.walk([&](exec::StartOp) { hasCollectives = true; });
  bool hasLines = plan.pp > 1, hasBackward = exec::trains(module);
  for (auto [name, occurs] :
       {std::pair("compute", true), std::pair("gradients", plan.ranks() > 1), std::pair("collectives", hasCollectives),
        std::pair("out", hasLines), std::pair("in", hasLines), std::pair("din", hasLines && hasBackward),
        std::pair("dout", hasLines && hasBackward), std::pair("to_device", true), std::pair("to_host", true)})
    if (occurs)
      out.add_queues()->set_name(name);
  auto addTraining = [&](const std::string &name, int64_t microBatches) {
    pb::Entry &train = *out.add_entries();
    train.set_name(name);
    train.set_micro_batches(static_cast<uint32_t>(microBatches));
    for (exec::Region region : {exec::Region::Parameters, exec::Region::State, exec::Region::Cache}) {
      if (region == exec::Region::Cache && regions.cacheBytes.empty())
        continue;
      train.add_finds(static_cast<uint32_t>(region));
      train.add_writes(static_cast<uint32_t>(region));
    }
  };
  if (hasBackward)
    addTraining("train_step", plan.microBatches);
  pb::Entry &evaluate = *out.add_entries();
  evaluate.set_name("evaluate");
  evaluate.set_micro_batches(1);
  evaluate.add_finds(static_cast<uint32_t>(exec::Region::Parameters));
  for (int64_t microBatches : hasBackward ? readRamp(module) : std::vector<int64_t>())
    addTraining("train_step_" + std::to_string(microBatches), microBatches);
}

void addPassingValues(ModuleOp module, PlanTables &tables) {
  StringRef cache = exec::stringifyRegion(exec::Region::Cache);
  auto none = ArrayAttr::get(module.getContext(), {});
  for (auto program : module.getOps<exec::ProgramOp>())
    for (Attribute attribute : program.getPassing().value_or(none)) {
      auto buffer = cast<exec::BufferAttr>(attribute);
      bool isResident = buffer.getRegion() == cache;
      pb::Value value;
      value.set_name(buffer.getValue().str());
      value.set_type(numberOf<pb::DataType>(exec::dataType(buffer.getElement())));
      value.set_elements(buffer.getBytes() * 8 / buffer.getElement().getIntOrFloatBitWidth());
      value.set_per_micro_batch(!isResident);
      value.set_resident(isResident);
      tables.value(value);
    }
}

StepTransfers addStepTransfers(ModuleOp module, const RegionSizes &regions, const planner::Plan &plan,
                               PlanTables &tables) {
  StepTransfers numbers;
  addPassingValues(module, tables);
  uint32_t axes = allAxes(plan), scalars = addScalars(axes, exec::optimizerAttr.of(module), tables);
  pb::Transfer inputs = transferNamed("tok", pb::Transfer::COPY, "to_device", tables);
  for (const rt::ModelInput &sampleInput : rt::modelInputs) {
    std::string name(sampleInput.name);
    int64_t value = tables.findValue(name);
    if (value < 0) // no program reads this input
      continue;
    RegionSizes::Input input = regions.inputs.at(name);
    *inputs.add_from() = bufferAt(exec::Region::Staged, input.offset, input.bytes, value);
    *inputs.add_to() = bufferAt(exec::Region::Inputs, input.offset, input.bytes, value);
  }
  numbers.inputs = tables.transfer(std::move(inputs));
  pb::Transfer set = transferNamed("set", pb::Transfer::COPY, "to_device", tables);
  *set.add_from() = bufferAt(exec::Region::Settings, 0, scalarBytes, scalars);
  *set.add_to() = bufferAt(exec::Region::Scalars, 0, scalarBytes, scalars);
  numbers.set = tables.transfer(std::move(set));
  pb::Transfer metrics = transferNamed("metrics", pb::Transfer::COPY, "to_host", tables);
  *metrics.add_from() = bufferAt(exec::Region::Scalars, 0, scalarBytes, scalars);
  *metrics.add_to() = bufferAt(exec::Region::Results, 0, scalarBytes, scalars);
  numbers.metrics = tables.transfer(std::move(metrics));
  if (axes)
    numbers.agree = addAgreement(axes, tables);
  if (plan.pp > 1)
    numbers.forth = addLines(regions, 1, "", exec::trains(module), tables);
  if (plan.pp > 1 && planner::isVShaped(plan.schedule))
    numbers.back = addLines(regions, -1, ".back", exec::trains(module), tables);
  return numbers;
}

void addCommunicators(pb::Plan &out) {
  std::set<std::pair<uint32_t, uint32_t>> known; // group, queue
  std::map<uint32_t, std::set<std::pair<uint32_t, uint32_t>>> pairs = linePairs(out);
  for (const pb::Transfer &transfer : out.transfers()) {
    bool isSend = transfer.kind() == pb::Transfer::SEND, isReceive = transfer.kind() == pb::Transfer::RECEIVE;
    if (transfer.kind() == pb::Transfer::COPY || isReceive)
      continue;
    if (!isSend && known.insert({transfer.group(), transfer.queue()}).second) {
      pb::Communicator &communicator = *out.add_communicators();
      communicator.set_group(transfer.group());
      communicator.set_queue(transfer.queue());
    }
    if (!isSend)
      continue;
    for (auto [sender, receiver] : pairs[transfer.line()]) {
      pb::Communicator &communicator = *out.add_communicators();
      communicator.set_is_line(true);
      communicator.set_line(transfer.line());
      communicator.set_sender(sender);
      communicator.set_receiver(receiver);
    }
    pairs.erase(transfer.line());
  }
}

} // namespace espalier
