// Finds the axes over which the operands and results of collectives lie in shards or hold partial sums. Programs pass
// values to each other by name, so the axes of one program's collective hold in all programs.
#include "compiler/codegen/value_shapes.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_PROPAGATEVALUEAXES
#include "compiler/passes.h.inc"

namespace {

/// Mesh axes of a value, as bit sets.
struct ValueAxes {
  uint32_t split = 0, partial = 0;
  StringRef reduction; ///< how the terms of a partial value are reduced; empty if no collective reduces it
};

class AxesPropagator {
public:
  explicit AxesPropagator(ModuleOp module) : module(module) {
    for (auto program : module.getOps<exec::ProgramOp>())
      if (auto buffers = program.getPassing())
        for (auto buffer : buffers->getAsRange<exec::BufferAttr>())
          passing.insert(buffer.getValue().getValue());
  }

  void propagate() {
    for (isNew = true; isNew;) {
      isNew = false;
      for (auto program : module.getOps<exec::ProgramOp>())
        for (Operation &op : program.getBody().front())
          if (auto start = dyn_cast<exec::StartOp>(op))
            follow(program, start);
          else if (auto call = dyn_cast<exec::CallOp>(op); call && call.getFunction() == "rearrange")
            followRearrange(program, call);
    }
    for (auto program : module.getOps<exec::ProgramOp>())
      write(program);
  }

private:
  /// Returns the axes of the value in a buffer. Terms that lower-to-exec has found for a program's own value are known
  /// from the start.
  ValueAxes &axesOf(exec::ProgramOp program, exec::BufferAttr buffer) {
    auto [entry, isFirst] = known.try_emplace(codegen::nameInPlan(program.getSymName(), buffer));
    used[program].insert(buffer.getValue());
    auto shapes = exec::shapesAttr.of(program);
    if (isFirst && !passing.contains(buffer.getValue().getValue()))
      if (std::optional<codegen::ValueShape> shape = codegen::shapeIn(shapes, buffer.getValue()))
        entry->second.partial = static_cast<uint32_t>(shape->partial);
    return entry->second;
  }

  void include(ValueAxes &axes, uint32_t split, uint32_t partial) {
    isNew = isNew || (split & ~axes.split) != 0 || (partial & ~axes.partial) != 0;
    axes.split |= split;
    axes.partial |= partial;
  }

  /// Each kind of collective changes the axes as described in runtime/verify/README.md, section G.
  void follow(exec::ProgramOp program, exec::StartOp start) {
    using exec::CollectiveKind;
    ValueAxes &from = axesOf(program, start.getFrom()), &to = axesOf(program, start.getTo());
    uint32_t axes = exec::axisBits(start.getAxes());
    CollectiveKind kind = *exec::symbolizeCollectiveKind(start.getKind());
    bool isExchange = kind == CollectiveKind::AllToAll;
    uint32_t splitBefore = kind == CollectiveKind::AllGather || isExchange ? axes : 0;
    uint32_t splitAfter = kind == CollectiveKind::ReduceScatter || isExchange ? axes : 0;
    uint32_t reduced = kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter ? axes : 0;
    if (reduced)
      from.reduction = start.getReduction();
    include(from, (to.split & ~splitAfter) | splitBefore, to.partial | reduced);
    include(to, (from.split & ~splitBefore) | splitAfter, from.partial & ~reduced);
  }

  /// A rearrangement before a reduce-scatter keeps partial sums partial.
  void followRearrange(exec::ProgramOp program, exec::CallOp call) {
    ValueAxes &from = axesOf(program, cast<exec::BufferAttr>(call.getBuffers()[0]));
    ValueAxes &to = axesOf(program, cast<exec::BufferAttr>(call.getBuffers()[1]));
    include(from, 0, to.partial);
    include(to, 0, from.partial);
  }

  void write(exec::ProgramOp program) {
    Builder b(program.getContext());
    SmallVector<NamedAttribute> entries;
    for (StringAttr value : used[program]) {
      const ValueAxes &axes = known.at(codegen::nameInPlan(program.getSymName(), value));
      SmallVector<NamedAttribute> found;
      if (axes.split)
        found.push_back(b.getNamedAttr("split", exec::axisNames(b.getContext(), axes.split)));
      if (axes.partial)
        found.push_back(b.getNamedAttr("partial", exec::axisNames(b.getContext(), axes.partial)));
      if (!axes.reduction.empty())
        found.push_back(b.getNamedAttr("reduction", b.getStringAttr(axes.reduction)));
      if (!found.empty())
        entries.push_back(b.getNamedAttr(value, b.getDictionaryAttr(found)));
    }
    if (!entries.empty())
      exec::axesAttr.set(program, b.getDictionaryAttr(entries));
  }

  ModuleOp module;
  llvm::StringSet<> passing;                                     ///< names of values that pass between programs
  std::map<std::string, ValueAxes> known;                        ///< by name in the plan
  llvm::DenseMap<Operation *, llvm::SetVector<StringAttr>> used; ///< values of collectives, by program
  bool isNew = true;
};

struct PropagateValueAxesPass : impl::PropagateValueAxesBase<PropagateValueAxesPass> {
  void runOnOperation() override { AxesPropagator(getOperation()).propagate(); }
};

} // namespace
} // namespace espalier
