#include "compiler/link/write_tables.h"

#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier {

namespace {

namespace pb = rt::pb;

/// Returns the dialect's keyword for an enumerator of the plan.
template <typename Enumeration> StringRef wordFor(int number, StringRef (*stringify)(Enumeration)) {
  return stringify(static_cast<Enumeration>(number));
}

class TableWriter {
public:
  TableWriter(const pb::Plan &plan, OpBuilder &b) : plan(plan), b(b), loc(b.getUnknownLoc()) {}

  void value(const pb::Value &from) {
    UnitAttr yes = b.getUnitAttr(), no;
    StringAttr whole;
    if (from.whole())
      whole = b.getStringAttr(valueName(from.whole() - 1));
    b.create<exec::ValueOp>(loc, b.getStringAttr(from.name()), TypeAttr::get(typeFor(from.type())),
                            number(from.elements()), axesOrNone(from.split()), axesOrNone(from.partial()),
                            from.per_micro_batch() ? yes : no, from.resident() ? yes : no, whole, number(from.first()),
                            number(from.additions()));
  }

  void transfer(const pb::Transfer &from) {
    bool hasGroup = from.kind() <= pb::Transfer::SHIFT;
    const pb::Group &group = hasGroup ? plan.groups(static_cast<int>(from.group())) : pb::Group::default_instance();
    b.create<exec::TransferOp>(locationFor(from), b.getStringAttr(from.name()),
                               b.getStringAttr(wordFor(from.kind(), exec::stringifyTransferKind)),
                               b.getStringAttr(wordFor(from.reduction(), exec::stringifyReduction)),
                               b.getStringAttr(plan.queues(static_cast<int>(from.queue())).name()),
                               hasGroup ? exec::axisNames(b.getContext(), group.axes()) : ArrayAttr(),
                               group.stages_size() ? numbers(group.stages()) : DenseI64ArrayAttr(),
                               number(from.shift()), number(from.line()), buffers(from.from()), buffers(from.to()));
  }

  void entry(const pb::Entry &from) {
    b.create<exec::EntryOp>(loc, b.getStringAttr(from.name()), number(from.micro_batches()), regions(from.finds()),
                            regions(from.writes()));
  }

  void stage(const pb::Stage &from) {
    auto op =
        b.create<exec::StageOp>(loc, numbers(from.arena_bytes()), number(from.first_layer()), number(from.layers()));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&op.getBody().emplaceBlock());
    for (const pb::Lifetime &lifetime : from.lifetimes())
      b.create<exec::LifetimeOp>(loc, lifetime.name(), lifetime.slots(), lifetime.rotates());
    for (const pb::Place &place : from.places())
      b.create<exec::PlaceOp>(loc, number(place.lifetime()),
                              b.getStringAttr(wordFor(place.memory(), exec::stringifyMemory)), number(place.bytes()),
                              numbers(place.offsets()), number(place.stride()),
                              place.exchanged() ? b.getUnitAttr() : UnitAttr(),
                              place.memory_class().empty() ? StringAttr() : b.getStringAttr(place.memory_class()));
    for (const pb::Call &call : from.calls())
      layer(call);
    for (const pb::Chunk &chunk : from.chunks())
      b.create<exec::ChunkOp>(loc, b.getStringAttr(chunk.name()), number(chunk.first_call()), number(chunk.calls()),
                              numbers(chunk.lifetimes()));
    for (const pb::Exchange &exchange : from.exchanges())
      this->exchange(exchange);
    for (const pb::MemoryClass &memory : from.memory())
      b.create<exec::MemoryOp>(loc, memory.name(), memory.bytes());
  }

  void list(const pb::Entry &entry, const pb::Actions &from) {
    auto op = b.create<exec::ListOp>(loc, entry.name());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&op.getBody().emplaceBlock());
    for (const pb::Block &block : from.blocks()) {
      auto blockOp = b.create<exec::BlockOp>(loc, block.rounds(), block.advance());
      OpBuilder::InsertionGuard inside(b);
      b.setInsertionPointToStart(&blockOp.getBody().emplaceBlock());
      for (const pb::Action &action : block.actions())
        this->action(action);
    }
  }

private:
  std::string valueName(uint32_t index) const { return plan.values(static_cast<int>(index)).name(); }
  IntegerAttr number(int64_t value) { return b.getI64IntegerAttr(value); }

  template <typename List> DenseI64ArrayAttr numbers(const List &list) {
    return b.getDenseI64ArrayAttr(SmallVector<int64_t>(list.begin(), list.end()));
  }

  ArrayAttr axesOrNone(uint32_t bits) { return bits ? exec::axisNames(b.getContext(), bits) : ArrayAttr(); }

  Type typeFor(pb::DataType type) {
    switch (static_cast<exec::DataType>(type)) {
    case exec::DataType::F32:
      return b.getF32Type();
    case exec::DataType::BF16:
      return b.getBF16Type();
    case exec::DataType::F16:
      return b.getF16Type();
    case exec::DataType::I32:
      return b.getI32Type();
    }
  }

  template <typename List> ArrayAttr regions(const List &list) {
    SmallVector<Attribute> names;
    for (uint32_t region : list)
      names.push_back(b.getStringAttr(wordFor(static_cast<int>(region), exec::stringifyRegion)));
    return b.getArrayAttr(names);
  }

  exec::BufferAttr buffer(const pb::Buffer &from) {
    return exec::BufferAttr::get(b.getContext(), wordFor(static_cast<int>(from.region()), exec::stringifyRegion),
                                 static_cast<int64_t>(from.offset()), static_cast<int64_t>(from.bytes()), /*within=*/0,
                                 /*coordinates=*/{}, b.getStringAttr(valueName(from.value())), /*element=*/{},
                                 from.layer(), from.part(), /*bucket=*/0);
  }

  template <typename List> ArrayAttr buffers(const List &list) {
    SmallVector<Attribute> all;
    for (const pb::Buffer &from : list)
      all.push_back(buffer(from));
    return b.getArrayAttr(all);
  }

  Location locationFor(const pb::Transfer &from) {
    const pb::Location &at = plan.locations(static_cast<int>(from.location()));
    if (at.line() == 0)
      return loc;
    return FileLineColLoc::get(b.getContext(), at.file(), at.line(), at.column());
  }

  void layer(const pb::Call &call) {
    SmallVector<NamedAttribute> programs;
    for (auto [role, program] : llvm::enumerate(call.programs()))
      if (program)
        programs.push_back(b.getNamedAttr(
            wordFor(static_cast<int>(role), exec::stringifyRole),
            FlatSymbolRefAttr::get(b.getContext(), plan.subprograms(static_cast<int>(program) - 1).name())));
    SmallVector<Attribute> bindings, uses;
    for (const pb::Binding &binding : call.bindings())
      bindings.push_back(exec::BindingAttr::get(b.getContext(),
                                                wordFor(static_cast<int>(binding.region()), exec::stringifyRegion),
                                                binding.place(), static_cast<int64_t>(binding.offset())));
    for (const pb::BucketUse &use : call.buckets())
      uses.push_back(exec::BucketUseAttr::get(b.getContext(), use.bucket(), use.owner(), use.updates()));
    b.create<exec::LayerOp>(loc, b.getStringAttr(call.name()), number(call.layer()), b.getDictionaryAttr(programs),
                            b.getArrayAttr(bindings), b.getArrayAttr(uses));
  }

  void exchange(const pb::Exchange &from) {
    SmallVector<Attribute> split, entries;
    for (uint32_t axes : from.split())
      split.push_back(exec::axisNames(b.getContext(), axes));
    for (uint32_t entry : from.entries())
      entries.push_back(b.getStringAttr(plan.entries(static_cast<int>(entry)).name()));
    b.create<exec::ExchangeOp>(loc, b.getStringAttr(from.name()), number(from.call()), buffer(from.buffer()),
                               from.filled_by_host() ? b.getUnitAttr() : UnitAttr(), b.getArrayAttr(split),
                               b.getArrayAttr(entries));
  }

  template <typename List> ArrayAttr flights(const List &list, bool hasSlots) {
    SmallVector<Attribute> all;
    for (const pb::Flight &flight : list)
      all.push_back(exec::FlightAttr::get(b.getContext(), plan.transfers(static_cast<int>(flight.transfer())).name(),
                                          flight.call(), flight.micro_batch(),
                                          hasSlots ? numbers(flight.slots()) : DenseI64ArrayAttr()));
    return b.getArrayAttr(all);
  }

  void action(const pb::Action &from) {
    if (from.has_start())
      b.create<exec::StartTransfersOp>(loc, flights(from.start().flights(), /*hasSlots=*/true));
    else if (from.has_wait())
      b.create<exec::WaitTransfersOp>(loc, flights(from.wait().flights(), /*hasSlots=*/false));
    else
      b.create<exec::RunOp>(loc, b.getStringAttr(wordFor(static_cast<int>(from.run().role()), exec::stringifyRole)),
                            number(from.run().first_call()), number(from.run().calls()),
                            from.run().backwards() ? b.getUnitAttr() : UnitAttr(), number(from.run().micro_batch()),
                            numbers(from.run().slots()), numbers(from.run().first()));
  }

  const pb::Plan &plan;
  OpBuilder &b;
  Location loc;
};

} // namespace

void writeTables(const pb::Plan &plan, ModuleOp module) {
  for (auto value : llvm::make_early_inc_range(module.getOps<exec::ValueOp>()))
    value.erase();
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  SmallVector<StringRef> queues;
  for (const pb::Queue &queue : plan.queues())
    queues.push_back(queue.name());
  module->setAttr("exec.queues", b.getStrArrayAttr(queues));
  TableWriter writer(plan, b);
  for (const pb::Entry &entry : plan.entries())
    writer.entry(entry);
  for (const pb::Value &value : plan.values())
    writer.value(value);
  for (const pb::Transfer &transfer : plan.transfers())
    writer.transfer(transfer);
}

void writeStage(const pb::Plan &plan, const pb::Stage &stage, OpBuilder &builder) {
  TableWriter(plan, builder).stage(stage);
}

void writeLists(const pb::Plan &plan, const pb::Stage &stage, OpBuilder &builder) {
  TableWriter writer(plan, builder);
  for (auto [entry, actions] : llvm::zip_equal(plan.entries(), stage.entries()))
    writer.list(entry, actions);
}

} // namespace espalier
