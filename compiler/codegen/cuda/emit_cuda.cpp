// Lowers exec.kernel to the LLVM dialect, LLVM IR and PTX text, with LLVM's NVPTX back end. No CUDA toolkit is needed.
#include "compiler/codegen/cuda/emit_cuda.h"

#include "compiler/codegen/cuda/shape_kernels.h"
#include "compiler/codegen/cuda/special_kernels.h"
#include "compiler/codegen/llvm_pipeline.h"
#include "format/geometry.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// PTX 8.0, which the drivers of CUDA 12.0 support.
constexpr const char *features = "+ptx80";

LogicalResult buildFromBody(ImplicitLocOpBuilder &builder, exec::KernelOp kernel) {
  auto shape = analyzeKernel(kernel.getBody().front(), kernel.getShape(), kernel.getSplit());
  if (failed(shape))
    return kernel.emitOpError("is not a kernel of shape ") << kernel.getShape();
  Policy policy = Policy::of(kernel);
  KernelFunction function(builder, kernel.getSymName(), shape->bufferCount(), shape->scalars.size(),
                          *kernel.getGeometry());
  CudaLanes lanes(function, shape->kind == "flat" ? 64 : 32);
  auto arguments = KernelArguments::read(
      *shape, [&](unsigned i) { return function.buffer(i); }, [&](unsigned i) { return function.scalar(i); });
  Evaluator evaluator(*shape, lanes, std::move(arguments));
  auto build = shape->kind == "row" ? buildRowKernel : shape->kind == "flat" ? buildFlatKernel : buildColumnKernel;
  build({*shape, policy, function, lanes, evaluator});
  function.finish();
  return success();
}

LogicalResult buildSpecial(ImplicitLocOpBuilder &builder, exec::KernelOp kernel) {
  BuildKernel build = specialKernel(kernel.getShape());
  auto count = [&](StringRef name) { return kernel.getParameters()->getAs<IntegerAttr>(name); };
  if (!build || !kernel.getGeometry() || !count("buffers") || !count("scalars"))
    return kernel.emitOpError("of shape ") << kernel.getShape() << " has no builder for cuda";
  KernelFunction function(builder, kernel.getSymName(), count("buffers").getInt(), count("scalars").getInt(),
                          *kernel.getGeometry(), rt::findKernel(kernel.getShape()));
  if (failed(build(function, kernel)))
    return failure();
  function.finish();
  return success();
}

FailureOr<OwningOpRef<ModuleOp>> buildKernels(ModuleOp module) {
  OwningOpRef<ModuleOp> lowered = ModuleOp::create(UnknownLoc::get(module.getContext()));
  ImplicitLocOpBuilder builder(UnknownLoc::get(module.getContext()), module.getContext());
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    builder.setInsertionPointToEnd(lowered->getBody());
    bool hasBody = !kernel.getBody().front().without_terminator().empty();
    if (failed(hasBody ? buildFromBody(builder, kernel) : buildSpecial(builder, kernel)))
      return failure();
  }
  expandMath(*lowered);
  if (failed(convertToLlvm(*lowered)))
    return failure();
  return lowered;
}

/// Prints the geometry lines that the verifier compares with the plan.
void printGeometries(ModuleOp module, raw_ostream &stream) {
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    exec::GeometryAttr geometry = *kernel.getGeometry();
    stream << rt::geometryLine(kernel.getSymName().str(), geometry.getThreads(), geometry.getExtentPerBlock(),
                               geometry.getColumnsPerBlock(), geometry.getSharedBytes())
           << "\n";
  }
}

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(std::string &error) {
  const char *triple = "nvptx64-nvidia-cuda";
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, architecture, features, options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Default));
}

} // namespace

FailureOr<std::string> emitPtx(ModuleOp module) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  prepareContext(*module.getContext());
  auto lowered = buildKernels(module);
  if (failed(lowered))
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> kernels = translateModuleToLLVMIR(**lowered, context, "kernels");
  if (!kernels)
    return module.emitError("kernels could not be translated to LLVM IR");
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(error);
  if (!machine)
    return module.emitError(error);
  kernels->setTargetTriple(machine->getTargetTriple().str());
  kernels->setDataLayout(machine->createDataLayout());
  optimize(*kernels, *machine, /*scalarize=*/true);
  SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  printGeometries(module, stream);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return module.emitError("the target emits no text");
  passes.run(*kernels);
  return text.str().str();
}

} // namespace espalier::codegen::cuda
