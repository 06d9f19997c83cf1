// Verifies entries, transfers and stages. A comment at each check names the constraint in ops.td.
#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace espalier::exec {

namespace {

bool areRegions(ArrayAttr names) {
  return llvm::all_of(names.getAsValueRange<StringAttr>(),
                      [](StringRef name) { return symbolizeRegion(name).has_value(); });
}

/// Returns the number of ops of one kind in the stage around `part`.
template <typename Op> int64_t countIn(Operation *part) {
  auto stage = part->getParentOfType<StageOp>();
  return stage ? llvm::range_size(stage.getOps<Op>()) : 0;
}

bool isRange(int64_t first, int64_t count, int64_t limit) {
  return first >= 0 && count >= 1 && first <= limit && count <= limit - first;
}

/// Returns whether the module has an op of this kind and name.
template <typename Op> bool isListed(Operation *part, StringRef name) {
  auto module = part->getParentOfType<ModuleOp>();
  return module && llvm::any_of(module.getOps<Op>(), [&](Op op) { return op.getName() == name; });
}

LogicalResult verifyFlights(Operation *op, ArrayAttr flights) {
  int64_t layers = countIn<LayerOp>(op);
  for (Attribute attribute : flights) {
    auto flight = dyn_cast<FlightAttr>(attribute);
    if (!flight || !isRange(flight.getCall(), 1, layers) || flight.getMicroBatch() < 0)
      return op->emitOpError("needs flights of the stage's ") << layers << " layers, got " << attribute;
  }
  return success();
}

} // namespace

LogicalResult EntryOp::verify() {
  if (!areRegions(getFinds()) || !areRegions(getWrites())) // entry_c1
    return emitOpError("needs regions of plan.proto, got ") << getFinds() << " and " << getWrites();
  return success();
}

LogicalResult TransferOp::verify() {
  auto kind = symbolizeTransferKind(getKind());
  if (!kind || !symbolizeReduction(getReduction())) // transfer_c1
    return emitOpError("needs a kind and a reduction of plan.proto, got ") << getKind() << " and " << getReduction();
  auto count = [](ArrayAttr buffers) -> int64_t {
    bool areBuffers = llvm::all_of(buffers, [](Attribute buffer) { return isa<BufferAttr>(buffer); });
    return areBuffers ? static_cast<int64_t>(buffers.size()) : -1;
  };
  int64_t from = count(getFrom()), to = count(getTo());
  bool isPaired = kind == TransferKind::Send      ? from > 0 && to == 0
                  : kind == TransferKind::Receive ? to > 0 && from == 0
                                                  : from >= 0 && from == to;
  if (!isPaired) // transfer_c2
    return emitOpError("needs buffers in pairs, of a send only from, of a receive only to, got ")
           << getFrom().size() << " and " << getTo().size();
  return success();
}

LogicalResult StageOp::verify() {
  if (getArenaBytes().size() != 2) // stage_c1
    return emitOpError("needs arena bytes of device and host, got ") << getArenaBytes().size() << " numbers";
  return success();
}

LogicalResult LifetimeOp::verify() {
  if (static_cast<int64_t>(getSlots()) < 1) // lifetime_c1
    return emitOpError("needs at least one slot, got ") << getSlots();
  return success();
}

LogicalResult PlaceOp::verify() {
  if (!symbolizeMemory(getMemory())) // place_c1
    return emitOpError("needs memory device or host, got ") << getMemory();
  if (int64_t lifetimes = countIn<LifetimeOp>(*this); !isRange(getLifetime(), 1, lifetimes)) // place_c2
    return emitOpError("needs one of the stage's ") << lifetimes << " lifetimes, got number " << getLifetime();
  return success();
}

LogicalResult LayerOp::verify() {
  auto module = (*this)->getParentOfType<ModuleOp>();
  for (NamedAttribute program : getPrograms()) {
    auto name = dyn_cast<FlatSymbolRefAttr>(program.getValue());
    if (!symbolizeRole(program.getName()) || !name || !module.lookupSymbol<ProgramOp>(name.getAttr())) // layer_c1
      return emitOpError("needs programs of the module by role, got ")
             << program.getName() << " " << program.getValue();
  }
  int64_t places = countIn<PlaceOp>(*this);
  for (Attribute attribute : getBindings()) {
    auto binding = dyn_cast<BindingAttr>(attribute);
    if (!binding || !symbolizeRegion(binding.getRegion()) || !isRange(binding.getPlace(), 1, places)) // layer_c2
      return emitOpError("needs bindings to the stage's ") << places << " places, got " << attribute;
  }
  for (Attribute use : getBuckets())
    if (!isa<BucketUseAttr>(use)) // layer_c3
      return emitOpError("needs uses of buckets, got ") << use;
  return success();
}

LogicalResult ChunkOp::verify() {
  if (int64_t layers = countIn<LayerOp>(*this); !isRange(getFirstCall(), getCalls(), layers)) // chunk_c1
    return emitOpError("needs calls of the stage's ")
           << layers << " layers, got " << getCalls() << " from " << getFirstCall();
  return success();
}

LogicalResult ExchangeOp::verify() {
  if (int64_t layers = countIn<LayerOp>(*this); !isRange(getCall(), 1, layers)) // exchange_c1
    return emitOpError("needs one of the stage's ") << layers << " layers, got number " << getCall();
  return success();
}

LogicalResult MemoryOp::verify() {
  if (auto bytes = static_cast<int64_t>(getBytes()); bytes < 0) // memory_c1
    return emitOpError("needs bytes of at least 0, got ") << bytes;
  return success();
}

LogicalResult ListOp::verify() {
  if (!isListed<EntryOp>(*this, getEntry())) // list_c1
    return emitOpError("needs an entry of the module, got ") << getEntry();
  return success();
}

LogicalResult BlockOp::verify() {
  if (static_cast<int64_t>(getRounds()) < 1) // block_c1
    return emitOpError("needs at least one round, got ") << getRounds();
  return success();
}

LogicalResult RunOp::verify() {
  if (!symbolizeRole(getRole())) // run_c1
    return emitOpError("needs a role of plan.proto, got ") << getRole();
  if (int64_t layers = countIn<LayerOp>(*this); !isRange(getFirstCall(), getCalls(), layers)) // run_c2
    return emitOpError("needs calls of the stage's ")
           << layers << " layers, got " << getCalls() << " from " << getFirstCall();
  return success();
}

LogicalResult StartTransfersOp::verify() { return verifyFlights(*this, getFlights()); } // start_transfers_c1

LogicalResult WaitTransfersOp::verify() { return verifyFlights(*this, getFlights()); } // wait_transfers_c1

} // namespace espalier::exec
