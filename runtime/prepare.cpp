#include "runtime/prepare.h"

#include "runtime/kernels/call_rows.h"

#include "format/functions.h"

#include <algorithm>

namespace espalier::rt {
namespace {

using Buffers = google::protobuf::RepeatedPtrField<pb::Buffer>;

/// Builds the arrays of one rank's program.
class Preparation {
public:
  Preparation(const pb::Plan &plan, const Mesh &mesh, int rank)
      : plan(plan), mesh(mesh), rank(rank), stage(plan.stages(mesh.stage(rank))) {
    program.rank = rank;
    program.stage = mesh.stage(rank);
  }
  RankProgram make(Device &device);

private:
  void addSubprograms();
  void addInstruction(const pb::Instruction &from);
  void addTransfers(Device &device);
  TransferShape shapeOf(const pb::Transfer &transfer) const;
  void addPlaces();
  void addCalls();
  void addEntry(const pb::Actions &from);
  PreparedAction actionOf(const pb::Action &from);
  Range instancesOf(const google::protobuf::RepeatedPtrField<pb::Flight> &from);
  Range buffersOf(const Buffers &from);
  Range scalarsOf(const google::protobuf::RepeatedPtrField<pb::Affine> &from);
  Range numbersOf(const google::protobuf::RepeatedField<uint32_t> &from, std::vector<uint32_t> &to);

  const pb::Plan &plan;
  const Mesh &mesh;
  const int rank;
  const pb::Stage &stage;
  std::vector<bool> isUsed; ///< per transfer: whether this stage starts it
  RankProgram program;
};

template <typename Container> Range rangeFrom(size_t first, const Container &container) {
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(container.size() - first)};
}

Range Preparation::buffersOf(const Buffers &from) {
  size_t first = program.buffers.size();
  for (const pb::Buffer &buffer : from) {
    const pb::Affine &slice = buffer.reads_at();
    program.buffers.push_back({offsetOf(mesh, rank, buffer) + slice.constant() + mesh.affine(rank, slice),
                               buffer.region(), slice.micro_batch(), slice.layer()});
  }
  return rangeFrom(first, program.buffers);
}

Range Preparation::scalarsOf(const google::protobuf::RepeatedPtrField<pb::Affine> &from) {
  size_t first = program.scalars.size();
  auto seed = static_cast<int64_t>(plan.settings().seed());
  for (const pb::Affine &scalar : from)
    program.scalars.push_back({scalar.constant() + mesh.affine(rank, scalar) + scalar.seed() * seed,
                               scalar.micro_batch(), scalar.layer(), scalar.first()});
  return rangeFrom(first, program.scalars);
}

Range Preparation::numbersOf(const google::protobuf::RepeatedField<uint32_t> &from, std::vector<uint32_t> &to) {
  size_t first = to.size();
  to.insert(to.end(), from.begin(), from.end());
  return rangeFrom(first, to);
}

void Preparation::addInstruction(const pb::Instruction &from) {
  PreparedInstruction &made = program.instructions.emplace_back();
  if (from.has_launch()) {
    made.number = from.launch().kernel();
    made.extent = from.launch().extent();
    made.grain = from.launch().grain();
    made.buffers = buffersOf(from.launch().buffers());
    made.scalars = scalarsOf(from.launch().scalars());
  } else if (from.has_call()) {
    made.kind = PreparedInstruction::Call;
    made.adds = from.call().store() != pb::OVERWRITE;
    made.unlessFirst = from.call().store() == pb::ADD_UNLESS_FIRST ? bucketOf(plan, from.call()) : 0;
    made.buffers = buffersOf(from.call().buffers());
    made.scalars = scalarsOf(from.call().scalars());
  } else if (from.has_start()) {
    made.kind = PreparedInstruction::Start;
    made.number = from.start();
    isUsed[from.start()] = true;
  } else {
    made.kind = PreparedInstruction::Wait;
    made.number = from.wait();
  }
}

void Preparation::addSubprograms() {
  std::vector<bool> isCalled(plan.subprograms_size() + 1);
  for (const pb::Call &call : stage.calls())
    for (uint32_t number : call.programs())
      isCalled[number] = true;
  program.subprograms.resize(plan.subprograms_size());
  for (int i = 0; i < plan.subprograms_size(); ++i) {
    if (!isCalled[i + 1])
      continue;
    size_t first = program.instructions.size();
    for (const pb::Instruction &instruction : plan.subprograms(i).instructions())
      addInstruction(instruction);
    program.subprograms[i] = rangeFrom(first, program.instructions);
  }
}

TransferShape Preparation::shapeOf(const pb::Transfer &transfer) const {
  TransferShape made = {.kind = transfer.kind(), .queue = transfer.queue()};
  size_t buffers = std::max(transfer.from_size(), transfer.to_size());
  auto bytesOf = [](const Buffers &of, size_t i) { return i < size_t(of.size()) ? of[i].bytes() : 0; };
  for (size_t i = 0; i < buffers; ++i)
    made.bytes.push_back(std::max(bytesOf(transfer.from(), i), bytesOf(transfer.to(), i)));
  switch (transfer.kind()) {
  case pb::Transfer::SEND:
  case pb::Transfer::RECEIVE:
    made.peer = membersOf(plan, mesh, rank, transfer).front();
    made.channel = transfer.line();
    break;
  case pb::Transfer::COPY:
    break;
  default:
    made.members = membersOf(plan, mesh, rank, transfer);
    made.shape.kind = transfer.kind();
    made.shape.reduction = transfer.reduction();
    made.shape.shift = transfer.shift();
    made.shape.type = plan.values(transfer.from(0).value()).type();
    for (size_t bytes : made.bytes)
      made.shape.elements.push_back(bytes / elementBytes(made.shape.type));
  }
  return made;
}

void Preparation::addTransfers(Device &device) {
  for (int i = 0; i < plan.transfers_size(); ++i) {
    const pb::Transfer &transfer = plan.transfers(i);
    PreparedTransfer &made = program.transfers.emplace_back();
    if (!isUsed[i])
      continue;
    made.from = buffersOf(transfer.from());
    made.to = buffersOf(transfer.to());
    made.number = device.addTransfer(shapeOf(transfer));
  }
}

void Preparation::addPlaces() {
  program.lifetimes.assign(stage.lifetimes().begin(), stage.lifetimes().end());
  for (const pb::Place &place : stage.places()) {
    PreparedPlace made = {.memory = place.memory(), .lifetime = place.lifetime(), .stride = place.stride()};
    made.offsets.assign(place.offsets().begin(), place.offsets().end());
    if (place.exchanged())
      made.turnBytes = stage.lifetimes(place.lifetime()).slots() * place.stride();
    program.places.push_back(std::move(made));
  }
  for (const pb::Chunk &chunk : stage.chunks())
    program.chunkLifetimes.emplace_back(chunk.lifetimes().begin(), chunk.lifetimes().end());
}

void Preparation::addCalls() {
  for (const pb::Call &call : stage.calls()) {
    PreparedLayerCall &made = program.calls.emplace_back();
    made.layer = call.layer();
    made.programs.assign(call.programs().begin(), call.programs().end());
    size_t first = program.bindings.size();
    for (const pb::Binding &binding : call.bindings())
      program.bindings.push_back({binding.region(), binding.place(), binding.offset()});
    made.bindings = rangeFrom(first, program.bindings);
  }
  for (int i = 0; i < stage.chunks_size(); ++i)
    for (uint32_t call = 0; call < stage.chunks(i).calls(); ++call)
      program.calls[stage.chunks(i).first_call() + call].chunk = i;
}

Range Preparation::instancesOf(const google::protobuf::RepeatedPtrField<pb::Flight> &from) {
  size_t first = program.instances.size();
  for (const pb::Flight &flight : from) {
    isUsed[flight.transfer()] = true;
    program.instances.push_back(
        {flight.transfer(), flight.call(), flight.micro_batch(), numbersOf(flight.slots(), program.slots)});
  }
  return rangeFrom(first, program.instances);
}

PreparedAction Preparation::actionOf(const pb::Action &from) {
  PreparedAction made;
  if (from.has_run()) {
    const pb::Run &run = from.run();
    made.backwards = run.backwards();
    made.role = run.role();
    made.microBatch = run.micro_batch();
    made.calls = {run.first_call(), run.calls()};
    made.slots = numbersOf(run.slots(), program.slots);
    made.first = numbersOf(run.first(), program.buckets);
  } else if (from.has_start()) {
    made.kind = PreparedAction::Start;
    made.instances = instancesOf(from.start().flights());
  } else {
    made.kind = PreparedAction::Wait;
    made.instances = instancesOf(from.wait().flights());
  }
  return made;
}

void Preparation::addEntry(const pb::Actions &from) {
  size_t firstBlock = program.blocks.size();
  for (const pb::Block &block : from.blocks()) {
    size_t first = program.actions.size();
    for (const pb::Action &action : block.actions())
      program.actions.push_back(actionOf(action));
    program.blocks.push_back({block.rounds(), block.advance(), rangeFrom(first, program.actions)});
  }
  program.entries.push_back(rangeFrom(firstBlock, program.blocks));
}

RankProgram Preparation::make(Device &device) {
  isUsed.resize(plan.transfers_size());
  addPlaces();
  addCalls();
  addSubprograms();
  for (const pb::Actions &entry : stage.entries())
    addEntry(entry);
  addTransfers(device);
  return std::move(program);
}

} // namespace

uint32_t bucketOf(const pb::Plan &plan, const pb::LibraryCall &call) {
  std::vector<const OperandSignature *> operands = CallRows(call).operands(call.buffers_size());
  auto stored = std::ranges::find_if(operands, [](const OperandSignature *operand) { return operand->isStored(); });
  if (stored == operands.end())
    return 0;
  uint32_t value = call.buffers(static_cast<int>(stored - operands.begin())).value();
  uint32_t whole = plan.values(value).whole();
  uint32_t gradient = whole > 0 ? whole - 1 : value;
  for (int number = 0; number < plan.buckets_size(); ++number) {
    const pb::Bucket &bucket = plan.buckets(number);
    if (bucket.has_gradient() &&
        (bucket.has_whole_gradient() ? bucket.whole_gradient() : bucket.gradient()).value() == gradient)
      return number + 1;
  }
  return 0;
}

std::vector<int> membersOf(const pb::Plan &plan, const Mesh &mesh, int rank, const pb::Transfer &transfer) {
  if (transfer.kind() == pb::Transfer::COPY)
    return {};
  if (transfer.kind() != pb::Transfer::SEND && transfer.kind() != pb::Transfer::RECEIVE)
    return mesh.members(rank, plan.groups(transfer.group()));
  int stages = mesh.count(PP), shifted = (mesh.stage(rank) + transfer.shift() % stages + stages) % stages;
  return {mesh.peer(rank, shifted)};
}

RankProgram prepareRank(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device) {
  return Preparation(plan, mesh, rank).make(device);
}

} // namespace espalier::rt
