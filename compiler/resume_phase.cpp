#include "compiler/resume_phase.h"

#include "dialects/exec/dialect.h"
#include "planner/answer/explain.h"

#include "llvm/Support/SourceMgr.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"

using namespace mlir;

namespace espalier {

void labelPhase(ModuleOp module, StringRef phase, const RunConfig &run, const planner::Plan &plan) {
  Builder b(module.getContext());
  SmallVector<NamedAttribute> sizes;
  for (const auto &[name, size] : run.model.dims)
    sizes.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(size)));
  module->setAttr("model.phase", b.getStringAttr(phase));
  module->setAttr("model.plan", b.getStringAttr(planner::describePlan(plan)));
  module->setAttr("model.sizes", b.getDictionaryAttr(sizes));
}

namespace {

/// What later phases rely on of one function, kernel or program.
SmallVector<Attribute> interfaceOf(Operation *symbol) {
  SmallVector<Attribute> parts = {SymbolTable::getSymbolName(symbol)};
  for (StringRef name : {"function_type", "arg_attrs", "res_attrs"})
    if (Attribute attribute = symbol->getAttr(name))
      parts.push_back(attribute);
  return parts;
}

/// The first difference in words; empty when later phases cannot tell one from the other.
std::string difference(ModuleOp fresh, ModuleOp read) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (StringRef label : {"model.phase", "model.plan", "model.sizes", "exec.guard_bytes"}) {
    Attribute wanted = fresh->getAttr(label), got = read->getAttr(label);
    if (wanted == got)
      continue;
    stream << "needs " << label << " " << wanted << ", got ";
    got ? stream << got : stream << "none";
    return text;
  }
  auto next = read.getBody()->begin(), end = read.getBody()->end();
  for (Operation &wanted : *fresh.getBody()) {
    if (next == end || interfaceOf(&wanted) != interfaceOf(&*next)) {
      stream << "differs in @" << SymbolTable::getSymbolName(&wanted).getValue();
      return text;
    }
    ++next;
  }
  if (next != end)
    stream << "has @" << SymbolTable::getSymbolName(&*next).getValue() << " on top";
  return text;
}

} // namespace

OwningOpRef<ModuleOp> readPhase(ModuleOp fresh, StringRef file) {
  MLIRContext *context = fresh.getContext();
  auto start = FileLineColLoc::get(context, file, 1, 1);
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(file, &message);
  if (!buffer) {
    emitError(start) << message;
    return {};
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> read = parseSourceFile<ModuleOp>(sources, context);
  if (!read)
    return {};
  std::string found = difference(fresh, *read);
  if (!found.empty()) {
    emitError(start) << found << "; give the run file and the phase that this file was made of, or make it again with "
                     << "--dump-phases";
    return {};
  }
  return read;
}

} // namespace espalier
