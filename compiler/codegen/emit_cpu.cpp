// exec.kernel -> llvm dialect -> LLVM IR -> object -> shared object. All kernels of a level are one LLVM module; the
// levels are compiled in parallel. Nothing of the machine that compiles gets into the bytes.
#include "compiler/codegen/emit_cpu.h"

#include "compiler/codegen/kernel_builder.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <array>
#include <thread>

using namespace mlir;

namespace espalier::codegen {

void buildKernel(ImplicitLocOpBuilder &builder, StringRef symbol, const KernelShape &shape,
                 const VectorTarget &target) {
  MLIRContext *context = builder.getContext();
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type integer = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {pointer, pointer, integer, integer});
  auto function = builder.create<LLVM::LLVMFuncOp>(symbol, type);
  // Without these the v4 level would split vectors of 16 lanes in two.
  auto width = [&](StringRef name) {
    return builder.getArrayAttr({builder.getStringAttr(name), builder.getStringAttr(Twine(32 * target.lanes))});
  };
  function.setPassthroughAttr(
      builder.getArrayAttr({width("prefer-vector-width"), width("min-legal-vector-width"),
                            builder.getStringAttr("nounwind"), builder.getStringAttr("no-builtins")}));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.addEntryBlock(builder));
  Lanes lanes(builder, target);
  Evaluator evaluator(shape, lanes, function);
  auto build = shape.kind == "row" ? buildRowKernel : shape.kind == "flat" ? buildFlatKernel : buildColumnKernel;
  build(evaluator, shape, lanes, function.getArgument(2), function.getArgument(3));
  builder.create<LLVM::ReturnOp>(ValueRange());
}

namespace {

const std::array<VectorTarget, 3> levels = {VectorTarget{"x86-64", 4, false}, VectorTarget{"x86-64-v3", 8, true},
                                            VectorTarget{"x86-64-v4", 16, true}};

/// All kernels as llvm dialect functions.
FailureOr<OwningOpRef<ModuleOp>> lowerKernels(ModuleOp module, const VectorTarget &target) {
  OwningOpRef<ModuleOp> lowered = ModuleOp::create(UnknownLoc::get(module.getContext()));
  ImplicitLocOpBuilder builder(UnknownLoc::get(module.getContext()), module.getContext());
  builder.setInsertionPointToEnd(lowered->getBody());
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    auto shape = analyzeKernel(kernel.getBody().front(), kernel.getShape(), kernel.getSplit());
    if (failed(shape))
      return kernel.emitOpError("is not a kernel of shape ") << kernel.getShape();
    buildKernel(builder, kernel.getSymName(), *shape, target);
  }
  expandMath(*lowered);
  PassManager passes(module.getContext(), ModuleOp::getOperationName());
  passes.addPass(createConvertVectorToLLVMPass());
  passes.addPass(createConvertSCFToCFPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  if (failed(passes.run(*lowered)))
    return failure();
  return lowered;
}

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(const VectorTarget &target, std::string &error) {
  const char *triple = "x86_64-unknown-linux-gnu";
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, target.level, "", options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// The scalar pipeline; loops are vectorized by construction already. Library functions are off: nothing is there
/// that could be called.
void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::TargetLibraryInfoImpl library(module.getTargetTriple().empty() ? llvm::Triple()
                                                                       : llvm::Triple(module.getTargetTriple()));
  library.disableAllFunctions();
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

/// Relocatable object code of `lowered`, or an error text.
std::string compileObject(ModuleOp lowered, const VectorTarget &target, SmallVectorImpl<char> &object) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(lowered, context, "kernels");
  if (!module)
    return "kernels could not be translated to LLVM IR";
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target, error);
  if (!machine)
    return error;
  module->setTargetTriple(machine->getTargetTriple().str());
  module->setDataLayout(machine->createDataLayout());
  optimize(*module, *machine);
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return "the target emits no object code";
  passes.run(*module);
  return "";
}

/// Links `object` to a shared object; returns an error text.
std::string link(ArrayRef<char> object, std::string &linked) {
  llvm::ErrorOr<std::string> linker = llvm::sys::findProgramByName("ld.lld-19");
  if (!linker)
    linker = llvm::sys::findProgramByName("ld.lld");
  if (!linker)
    return "the linker ld.lld-19 is missing; install the package lld-19";
  SmallString<128> input, output, messages;
  int descriptor = -1;
  if (llvm::sys::fs::createTemporaryFile("kernels", "o", descriptor, input))
    return "cannot make a temporary file";
  llvm::FileRemover removeInput(input);
  {
    llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
    stream.write(object.data(), object.size());
  }
  if (llvm::sys::fs::createTemporaryFile("kernels", "so", output) ||
      llvm::sys::fs::createTemporaryFile("kernels", "txt", messages))
    return "cannot make a temporary file";
  llvm::FileRemover removeOutput(output), removeMessages(messages);
  std::string text;
  std::array<std::optional<StringRef>, 3> redirects = {StringRef(""), messages.str(), messages.str()};
  int status = llvm::sys::ExecuteAndWait(
      *linker,
      {*linker, "-shared", "--no-undefined", "--build-id=none", "--strip-all", "--threads=1", "-o", output, input},
      std::nullopt, redirects, 0, 0, &text);
  if (status != 0) {
    if (auto said = llvm::MemoryBuffer::getFile(messages))
      text += (*said)->getBuffer();
    return "kernels do not link: " + text;
  }
  auto file = llvm::MemoryBuffer::getFile(output);
  if (!file)
    return "cannot read the linked kernels";
  linked = (*file)->getBuffer().str();
  return "";
}

/// Everything the conversions need, loaded before threads share the context.
void prepareContext(MLIRContext &context) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<LLVM::LLVMDialect, arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                      cf::ControlFlowDialect, vector::VectorDialect>();
}

} // namespace

FailureOr<std::vector<CpuObject>> emitCpuObjects(ModuleOp module) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  prepareContext(*module.getContext());
  std::vector<OwningOpRef<ModuleOp>> lowered;
  for (const VectorTarget &target : levels) {
    auto kernels = lowerKernels(module, target);
    if (failed(kernels))
      return failure();
    lowered.push_back(std::move(*kernels));
  }
  std::vector<CpuObject> objects(levels.size());
  std::vector<std::string> errors(levels.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < levels.size(); ++i)
    threads.emplace_back([&, i] {
      SmallVector<char> object;
      errors[i] = compileObject(*lowered[i], levels[i], object);
      objects[i].level = levels[i].level;
      if (errors[i].empty())
        errors[i] = link(object, objects[i].bytes);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    if (!error.empty())
      return module.emitError(error);
  return objects;
}

} // namespace espalier::codegen
