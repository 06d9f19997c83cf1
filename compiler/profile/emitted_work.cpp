#include "compiler/profile/emitted_work.h"

#include "compiler/codegen/describe_kernel.h"
#include "compiler/codegen/program_builder.h"
#include "compiler/codegen/value_shapes.h"
#include "dialects/attributes.h"

#include <map>

using namespace mlir;

namespace espalier {

using planner::Monomial;
using planner::Size;

namespace {

/// A lookup table of a kernel. The kernel accesses only the rows that ids select, as many bytes as buffer `like` has.
struct LookedUp {
  unsigned buffer, like;
};

std::optional<LookedUp> lookedUpBy(StringRef kernelShape) {
  static const llvm::StringMap<LookedUp> tables = {
      {"embed", {0, 2}}, {"take_row", {0, 2}}, {"sum_segments", {4, 2}}, {"join_segments", {3, 2}}};
  auto found = tables.find(kernelShape);
  return found == tables.end() ? std::nullopt : std::optional(found->second);
}

/// Reads the instructions of one module's programs.
class InstructionReader {
public:
  InstructionReader(ModuleOp module, const SizeReader &sizes) : module(module), sizes(sizes) {}

  EmittedPiece launch(exec::LaunchOp op) {
    exec::KernelOp kernel = module.lookupSymbol<exec::KernelOp>(op.getKernel());
    auto [entry, isNew] = kernels.try_emplace(kernel.getSymName().str());
    if (isNew)
      codegen::describeKernel(kernel, entry->second);
    EmittedPiece piece{kernel.getShape().str(), {}};
    std::optional<LookedUp> table = lookedUpBy(kernel.getShape());
    for (auto [index, operand] : llvm::enumerate(entry->second.operands())) {
      bool isTable = table && table->buffer == index;
      auto access = operand.access();
      bool isBoth = access == rt::pb::Operand::ADD || access == rt::pb::Operand::UPDATE;
      add(piece.bytes, scaled(bytesOf(op, op.getBuffers()[isTable ? table->like : index]), isBoth ? 2 : 1));
    }
    return piece;
  }

  EmittedPiece call(exec::CallOp op) {
    EmittedPiece piece{op.getFunction().str(), {}};
    Attribute result = op.getBuffers()[op.getFunction() == "matmul" ? 2 : op.getBuffers().size() - 1];
    bool isCopy = op.getFunction() == "copy"; // a copy may read only a part of its source
    bool adds = op->hasAttr("accumulate") || op->hasAttr("always_adds");
    for (Attribute buffer : op.getBuffers())
      add(piece.bytes, bytesOf(op, isCopy ? result : buffer));
    if (adds)
      add(piece.bytes, bytesOf(op, result));
    return piece;
  }

private:
  /// Returns the bytes of a buffer as a function of the dimensions of its value, scaled if the buffer holds only a
  /// part.
  Monomial bytesOf(Operation *instruction, Attribute attribute) const {
    auto buffer = cast<exec::BufferAttr>(attribute);
    double bytes = static_cast<double>(buffer.getBytes());
    auto shapes = exec::shapesAttr.of(instruction->getParentOp());
    std::optional<codegen::ValueShape> shape = codegen::shapeIn(shapes, buffer.getValue());
    if (!shape)
      return {bytes, {}};
    return scaled(sizes.bytes(shape->tensor), bytes / static_cast<double>(codegen::tensorBytes(shape->tensor)));
  }

  ModuleOp module;
  const SizeReader &sizes;
  std::map<std::string, rt::pb::Kernel> kernels; ///< kernel descriptions by symbol
};

} // namespace

std::optional<EmittedWork> EmittedWork::read(ModuleOp fused, const SizeReader &sizes) {
  OwningOpRef<ModuleOp> copy = fused.clone();
  codegen::SourcePositions positions;
  if (failed(codegen::lowerToExec(*copy, &positions)))
    return std::nullopt;
  EmittedWork work;
  InstructionReader reader(*copy, sizes);
  for (auto program : copy->getOps<exec::ProgramOp>()) {
    std::vector<Operation *> ops;
    for (Operation &op : fused.lookupSymbol<func::FuncOp>(program.getSymName()).getBody().front())
      ops.push_back(&op);
    for (Operation &instruction : program.getBody().front()) {
      auto position = positions.find(&instruction);
      if (position == positions.end() || !isa<exec::LaunchOp, exec::CallOp>(instruction))
        continue;
      auto launch = dyn_cast<exec::LaunchOp>(instruction);
      work.pieces[ops[static_cast<size_t>(position->second)]].push_back(
          launch ? reader.launch(launch) : reader.call(cast<exec::CallOp>(instruction)));
    }
  }
  return work;
}

ArrayRef<EmittedPiece> EmittedWork::of(Operation *op) const {
  auto found = pieces.find(op);
  return found == pieces.end() ? ArrayRef<EmittedPiece>() : ArrayRef(found->second);
}

} // namespace espalier
