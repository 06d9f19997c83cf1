#include "compiler/resume_phase.h"

#include "compiler/attributes/apply_plan.h"
#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/guards.h"
#include "dialects/attributes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace espalier {

namespace {

ArrayAttr symbolsOf(ModuleOp module) {
  SmallVector<Attribute> names;
  for (Operation &op : *module.getBody())
    if (StringAttr name = SymbolTable::getSymbolName(&op))
      names.push_back(name);
  return ArrayAttr::get(module.getContext(), names);
}

/// Returns the first difference between the expected and the actual labels of the IR as text, or an empty string.
std::string difference(ModuleOp wanted, ModuleOp read) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  const StringRef labels[] = {
      model::phaseAttr,    dist::meshAttr,   exec::planAttr, model::sizesAttr,     model::runsAttr,
      exec::optimizerAttr, exec::targetAttr, exec::modeAttr, exec::guardBytesAttr, exec::unfusedEpiloguesAttr};
  for (StringRef label : labels) {
    Attribute want = wanted->getAttr(label), got = read->getAttr(label);
    if (want == got)
      continue;
    stream << "needs " << label << " ";
    want ? stream << want : stream << "none";
    stream << ", got ";
    got ? stream << got : stream << "none";
    return text;
  }
  auto noted = model::symbolsAttr.of(read);
  ArrayAttr found = symbolsOf(read);
  if (noted == found)
    return text;
  for (Attribute name : noted ? noted : found)
    if (!llvm::is_contained(found, name)) {
      stream << "differs in @" << cast<StringAttr>(name).getValue();
      return text;
    }
  stream << "has other symbols than its model.symbols";
  return text;
}

} // namespace

void labelRun(ModuleOp module, const RunConfig &run, const planner::Plan &plan, const CompileOptions &options) {
  Builder b(module.getContext());
  applyPlan(module, plan, run.model);
  setRunAttributes(module, run, plan);
  exec::targetAttr.set(module, b.getStringAttr(options.target));
  if (options.check)
    exec::guardBytesAttr.set(module, b.getI64IntegerAttr(checkedGuardBytes));
}

void labelPhase(ModuleOp module, StringRef phase) {
  model::phaseAttr.set(module, StringAttr::get(module.getContext(), phase));
  model::symbolsAttr.set(module, symbolsOf(module));
}

OwningOpRef<ModuleOp> readPhase(MLIRContext &context, StringRef file, StringRef phase, const RunConfig &run,
                                const planner::Plan &plan, const CompileOptions &options) {
  auto start = FileLineColLoc::get(&context, file, 1, 1);
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(file, &message);
  if (!buffer) {
    emitError(start) << message;
    return {};
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> read = parseSourceFile<ModuleOp>(sources, &context);
  if (!read)
    return {};
  OwningOpRef<ModuleOp> wanted = ModuleOp::create(start);
  labelRun(*wanted, run, plan, options);
  labelPhase(*wanted, phase);
  std::string found = difference(*wanted, *read);
  if (!found.empty()) {
    emitError(start) << found << "; give the run file and the phase that this file was made of, or make it again with "
                     << "--dump-phases";
    return {};
  }
  return read;
}

} // namespace espalier
