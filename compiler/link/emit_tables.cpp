#include "compiler/link/emit_tables.h"

#include "compiler/link/plan_numbers.h"
#include "compiler/link/plan_tables.h"
#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier {

namespace {

namespace pb = rt::pb;

static_assert(isSame(exec::TransferKind::Shift, pb::Transfer::SHIFT) &&
              isSame(exec::TransferKind::Send, pb::Transfer::SEND) &&
              isSame(exec::TransferKind::Receive, pb::Transfer::RECEIVE) &&
              isSame(exec::TransferKind::Copy, pb::Transfer::COPY));
static_assert(exec::getMaxEnumValForTransferKind() == pb::Transfer::Kind_MAX &&
              exec::getMaxEnumValForReduction() == pb::Reduction_MAX &&
              exec::getMaxEnumValForDataType() == pb::DataType_MAX &&
              exec::getMaxEnumValForMemory() == pb::Memory_MAX &&
              exec::getMaxEnumValForInitializer() == pb::Initialization::Kind_MAX);
static_assert(isSame(exec::DataType::F32, pb::F32) && isSame(exec::DataType::BF16, pb::BF16) &&
              isSame(exec::DataType::F16, pb::F16) && isSame(exec::DataType::I32, pb::I32));
static_assert(isSame(exec::Memory::Device, pb::DEVICE) && isSame(exec::Memory::Host, pb::HOST));
static_assert(isSame(exec::Initializer::Zeros, pb::Initialization::ZEROS) &&
              isSame(exec::Initializer::Ones, pb::Initialization::ONES) &&
              isSame(exec::Initializer::Normal, pb::Initialization::NORMAL));

template <typename List> void assign(ArrayRef<int64_t> from, List &to) { to.Assign(from.begin(), from.end()); }

template <typename List> void addRegions(ArrayAttr names, List &to) {
  for (StringRef name : names.getAsValueRange<StringAttr>())
    to.Add(numberOf<uint32_t>(exec::symbolizeRegion(name)));
}

void emitValue(exec::ValueOp op, PlanTables &tables) {
  pb::Value value;
  value.set_name(op.getName().str());
  value.set_type(numberOf<pb::DataType>(exec::dataType(op.getType())));
  value.set_elements(op.getElements());
  value.set_split(exec::axisBits(op.getSplitAttr()));
  value.set_partial(exec::axisBits(op.getPartialAttr()));
  value.set_per_micro_batch(op.getPerMicroBatch());
  value.set_resident(op.getResident());
  if (op.getWhole())
    value.set_whole(static_cast<uint32_t>(tables.findValue(op.getWhole()->str()) + 1));
  value.set_first(op.getFirst());
  value.set_additions(static_cast<uint32_t>(op.getAdditions()));
  tables.value(value);
}

void emitBuffer(exec::BufferAttr from, const PlanTables &tables, pb::Buffer &to) {
  to.set_region(numberOf<uint32_t>(exec::symbolizeRegion(from.getRegion())));
  to.set_offset(static_cast<uint64_t>(from.getOffset()));
  to.set_bytes(static_cast<uint64_t>(from.getBytes()));
  to.set_value(static_cast<uint32_t>(tables.findValue(from.getValue().str())));
  to.set_layer(static_cast<int32_t>(from.getLayer()));
  to.set_part(static_cast<uint32_t>(from.getPart()));
}

void emitTransfer(exec::TransferOp op, PlanTables &tables) {
  pb::Transfer transfer;
  transfer.set_name(op.getName().str());
  transfer.set_kind(numberOf<pb::Transfer::Kind>(exec::symbolizeTransferKind(op.getKind())));
  transfer.set_reduction(numberOf<pb::Reduction>(exec::symbolizeReduction(op.getReduction())));
  transfer.set_queue(tables.queue(op.getQueue().str()));
  if (op.getAxes()) {
    std::vector<uint32_t> stages;
    if (op.getStages())
      stages.assign(op.getStages()->begin(), op.getStages()->end());
    transfer.set_group(tables.group(exec::axisBits(op.getAxesAttr()), stages));
  }
  transfer.set_shift(static_cast<int32_t>(op.getShift()));
  transfer.set_line(static_cast<uint32_t>(op.getLine()));
  for (exec::BufferAttr buffer : op.getFrom().getAsRange<exec::BufferAttr>())
    emitBuffer(buffer, tables, *transfer.add_from());
  for (exec::BufferAttr buffer : op.getTo().getAsRange<exec::BufferAttr>())
    emitBuffer(buffer, tables, *transfer.add_to());
  pb::Location location;
  if (auto line = dyn_cast<FileLineColLoc>(Location(op.getLoc()))) {
    location.set_file(line.getFilename().str());
    location.set_line(line.getLine());
    location.set_column(line.getColumn());
  }
  location.set_op(transfer.name());
  transfer.set_location(tables.location(location));
  tables.transfer(std::move(transfer));
}

/// Emits stages. Maps the names that stages refer to to indices in the plan.
class StageEmitter {
public:
  StageEmitter(pb::Plan &plan) : plan(plan), tables(plan) {
    for (auto [index, transfer] : llvm::enumerate(plan.transfers()))
      transfers.try_emplace(transfer.name(), index);
    for (auto [index, subprogram] : llvm::enumerate(plan.subprograms()))
      subprograms.try_emplace(subprogram.name(), index);
    for (auto [index, entry] : llvm::enumerate(plan.entries()))
      entries.try_emplace(entry.name(), index);
  }

  LogicalResult emit(exec::StageOp op) {
    stage = plan.add_stages();
    assign(op.getArenaBytes(), *stage->mutable_arena_bytes());
    stage->set_first_layer(static_cast<uint32_t>(op.getFirstLayer()));
    stage->set_layers(static_cast<uint32_t>(op.getLayers()));
    bool hasLists = !op.getOps<exec::ListOp>().empty();
    for (int entry = 0; hasLists && entry < plan.entries_size(); ++entry)
      stage->add_entries();
    for (Operation &part : op.getBody().front())
      if (failed(emitPart(&part)))
        return failure();
    return success();
  }

private:
  LogicalResult emitPart(Operation *op) {
    if (auto lifetime = dyn_cast<exec::LifetimeOp>(op)) {
      pb::Lifetime &made = *stage->add_lifetimes();
      made.set_name(lifetime.getName().str());
      made.set_slots(static_cast<uint32_t>(lifetime.getSlots()));
      made.set_rotates(lifetime.getRotates());
    } else if (auto place = dyn_cast<exec::PlaceOp>(op)) {
      emitPlace(place);
    } else if (auto layer = dyn_cast<exec::LayerOp>(op)) {
      emitLayer(layer);
    } else if (auto chunk = dyn_cast<exec::ChunkOp>(op)) {
      pb::Chunk &made = *stage->add_chunks();
      made.set_name(chunk.getName().str());
      made.set_first_call(static_cast<uint32_t>(chunk.getFirstCall()));
      made.set_calls(static_cast<uint32_t>(chunk.getCalls()));
      assign(chunk.getLifetimes(), *made.mutable_lifetimes());
    } else if (auto exchange = dyn_cast<exec::ExchangeOp>(op)) {
      return emitExchange(exchange);
    } else if (auto memory = dyn_cast<exec::MemoryOp>(op)) {
      pb::MemoryClass &made = *stage->add_memory();
      made.set_name(memory.getName().str());
      made.set_bytes(memory.getBytes());
    } else if (auto list = dyn_cast<exec::ListOp>(op)) {
      return emitList(list);
    }
    return success();
  }

  void emitPlace(exec::PlaceOp op) {
    pb::Place &place = *stage->add_places();
    place.set_lifetime(static_cast<uint32_t>(op.getLifetime()));
    place.set_memory(numberOf<pb::Memory>(exec::symbolizeMemory(op.getMemory())));
    place.set_bytes(op.getBytes());
    assign(op.getOffsets(), *place.mutable_offsets());
    place.set_stride(op.getStride());
    place.set_exchanged(op.getExchanged());
    place.set_memory_class(op.getMemoryClass().value_or("").str());
  }

  void emitLayer(exec::LayerOp op) {
    pb::Call &call = *stage->add_calls();
    call.set_name(op.getName().str());
    call.set_layer(static_cast<int32_t>(op.getLayer()));
    call.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
    for (NamedAttribute program : op.getPrograms())
      call.set_programs(numberOf<int>(exec::symbolizeRole(program.getName())),
                        subprograms.at(cast<FlatSymbolRefAttr>(program.getValue()).getValue().str()) + 1);
    for (exec::BindingAttr from : op.getBindings().getAsRange<exec::BindingAttr>()) {
      pb::Binding &binding = *call.add_bindings();
      binding.set_region(numberOf<uint32_t>(exec::symbolizeRegion(from.getRegion())));
      binding.set_place(static_cast<uint32_t>(from.getPlace()));
      binding.set_offset(static_cast<uint64_t>(from.getOffset()));
    }
    for (exec::BucketUseAttr from : op.getBuckets().getAsRange<exec::BucketUseAttr>()) {
      pb::BucketUse &use = *call.add_buckets();
      use.set_bucket(static_cast<uint32_t>(from.getBucket()));
      use.set_owner(static_cast<uint32_t>(from.getOwner()));
      use.set_updates(from.getUpdates() != 0);
    }
  }

  LogicalResult emitExchange(exec::ExchangeOp op) {
    pb::Exchange &exchange = *stage->add_exchanges();
    exchange.set_name(op.getName().str());
    exchange.set_call(static_cast<uint32_t>(op.getCall()));
    emitBuffer(op.getBuffer(), tables, *exchange.mutable_buffer());
    exchange.set_filled_by_host(op.getFilledByHost());
    for (ArrayAttr axes : op.getSplit().getAsRange<ArrayAttr>())
      exchange.add_split(exec::axisBits(axes));
    for (StringRef name : op.getEntries().getAsValueRange<StringAttr>()) {
      auto found = entries.find(name.str());
      if (found == entries.end())
        return op.emitOpError("needs entries of the module, got ") << name;
      exchange.add_entries(found->second);
    }
    return success();
  }

  LogicalResult emitList(exec::ListOp op) {
    pb::Actions &actions = *stage->mutable_entries(static_cast<int>(entries.at(op.getEntry().str())));
    for (auto blockOp : op.getOps<exec::BlockOp>()) {
      pb::Block &block = *actions.add_blocks();
      block.set_rounds(static_cast<uint32_t>(blockOp.getRounds()));
      block.set_advance(static_cast<uint32_t>(blockOp.getAdvance()));
      for (Operation &action : blockOp.getBody().front())
        if (failed(emitAction(&action, *block.add_actions())))
          return failure();
    }
    return success();
  }

  LogicalResult emitAction(Operation *op, pb::Action &action) {
    if (auto start = dyn_cast<exec::StartTransfersOp>(op))
      return emitFlights(op, start.getFlights(), *action.mutable_start()->mutable_flights());
    if (auto wait = dyn_cast<exec::WaitTransfersOp>(op))
      return emitFlights(op, wait.getFlights(), *action.mutable_wait()->mutable_flights());
    auto from = cast<exec::RunOp>(op);
    pb::Run &run = *action.mutable_run();
    run.set_role(numberOf<uint32_t>(exec::symbolizeRole(from.getRole())));
    run.set_first_call(static_cast<uint32_t>(from.getFirstCall()));
    run.set_calls(static_cast<uint32_t>(from.getCalls()));
    run.set_backwards(from.getBackwards());
    run.set_micro_batch(static_cast<uint32_t>(from.getMicroBatch()));
    assign(from.getSlots(), *run.mutable_slots());
    assign(from.getFirst(), *run.mutable_first());
    return success();
  }

  template <typename List> LogicalResult emitFlights(Operation *op, ArrayAttr flights, List &to) {
    for (exec::FlightAttr from : flights.getAsRange<exec::FlightAttr>()) {
      auto found = transfers.find(from.getTransfer().str());
      if (found == transfers.end())
        return op->emitOpError("needs transfers of the module, got ") << from.getTransfer();
      pb::Flight &flight = *to.Add();
      flight.set_transfer(found->second);
      flight.set_call(static_cast<uint32_t>(from.getCall()));
      flight.set_micro_batch(static_cast<uint32_t>(from.getMicroBatch()));
      if (from.getSlots())
        assign(from.getSlots().asArrayRef(), *flight.mutable_slots());
    }
    return success();
  }

  pb::Plan &plan;
  PlanTables tables;
  std::map<std::string, uint32_t> transfers, subprograms, entries;
  pb::Stage *stage = nullptr;
};

} // namespace

void emitTables(ModuleOp module, pb::Plan &plan) {
  for (uint32_t role = 0; role <= exec::getMaxEnumValForRole(); ++role)
    plan.add_roles(exec::stringifyRole(static_cast<exec::Role>(role)).str());
  for (uint32_t region = 0; region <= exec::getMaxEnumValForRegion(); ++region)
    plan.add_regions(exec::stringifyRegion(static_cast<exec::Region>(region)).str());
  if (auto queues = module->getAttrOfType<ArrayAttr>("exec.queues"))
    for (StringRef name : queues.getAsValueRange<StringAttr>())
      plan.add_queues()->set_name(name.str());
  for (auto op : module.getOps<exec::EntryOp>()) {
    pb::Entry &entry = *plan.add_entries();
    entry.set_name(op.getName().str());
    entry.set_micro_batches(static_cast<uint32_t>(op.getMicroBatches()));
    addRegions(op.getFinds(), *entry.mutable_finds());
    addRegions(op.getWrites(), *entry.mutable_writes());
  }
  PlanTables tables(plan);
  for (auto op : module.getOps<exec::ValueOp>())
    emitValue(op, tables);
  for (auto op : module.getOps<exec::TransferOp>())
    emitTransfer(op, tables);
}

LogicalResult emitStages(ModuleOp module, pb::Plan &plan) {
  StageEmitter emitter(plan);
  for (auto op : module.getOps<exec::StageOp>())
    if (failed(emitter.emit(op)))
      return failure();
  return success();
}

} // namespace espalier
