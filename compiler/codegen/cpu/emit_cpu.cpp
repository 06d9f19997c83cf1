// Lowers exec.kernel -> llvm dialect -> LLVM IR -> object -> shared object. All kernels of a level are one LLVM module,
// and the levels are compiled in parallel. The result does not depend on the machine that compiles.
#include "compiler/codegen/cpu/emit_cpu.h"

#include "compiler/codegen/cpu/kernel_builder.h"
#include "compiler/codegen/cpu/kernel_cache.h"
#include "compiler/codegen/llvm_pipeline.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <array>
#include <map>
#include <mutex>
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
  // Without these attributes, LLVM would split vectors of 16 lanes at the v4 level.
  auto width = [&](StringRef name) {
    return builder.getArrayAttr({builder.getStringAttr(name), builder.getStringAttr(Twine(32 * target.lanes))});
  };
  function.setPassthroughAttr(
      builder.getArrayAttr({width("prefer-vector-width"), width("min-legal-vector-width"),
                            builder.getStringAttr("nounwind"), builder.getStringAttr("no-builtins")}));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.addEntryBlock(builder));
  CpuLanes lanes(builder, target);
  auto read = [&](Type element, unsigned argument, unsigned index) -> Value {
    Value place = builder.create<LLVM::GEPOp>(pointer, element, function.getArgument(argument),
                                              ArrayRef<LLVM::GEPArg>{int32_t(index)});
    return builder.create<LLVM::LoadOp>(element, place);
  };
  auto arguments = KernelArguments::read(
      shape, [&](unsigned i) { return read(pointer, 0, i); }, [&](unsigned i) { return read(integer, 1, i); });
  Evaluator evaluator(shape, lanes, std::move(arguments));
  auto build = shape.kind == "row"    ? buildRowKernel
               : shape.kind == "flat" ? buildFlatKernel
               : shape.hasRowWork()   ? buildSummingRowKernel
                                      : buildColumnKernel;
  build(evaluator, shape, lanes, function.getArgument(2), function.getArgument(3));
  builder.create<LLVM::ReturnOp>(ValueRange());
}

namespace {

const std::array<VectorTarget, 3> levels = {VectorTarget{"x86-64", 4, false}, VectorTarget{"x86-64-v3", 8, true},
                                            VectorTarget{"x86-64-v4", 16, true}};

/// Returns all kernels as functions of the llvm dialect.
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
  if (failed(convertToLlvm(*lowered)))
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

/// Compiles `lowered` to relocatable object code. Returns an error text, or an empty string on success.
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

/// Links `object` to a shared object. Returns an error text, or an empty string on success.
std::string link(ArrayRef<char> object, std::string &linked) {
  // Prefers a linker that is installed next to this executable.
  std::string folder = llvm::sys::path::parent_path(llvm::sys::fs::getMainExecutable(nullptr, nullptr)).str();
  llvm::ErrorOr<std::string> linker = llvm::sys::findProgramByName("ld.lld", {folder});
  if (!linker)
    linker = llvm::sys::findProgramByName("ld.lld-19");
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

using Digest = std::array<uint8_t, 32>;

Digest digestOf(ModuleOp lowered, StringRef level) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << level << '\n';
  lowered.print(stream, OpPrintingFlags().assumeVerified());
  return llvm::SHA256::hash(llvm::arrayRefFromStringRef(stream.str()));
}

/// Compiles and links one level. Plans that one process compiles, such as those of an elastic run, often have equal
/// kernels: the function keeps up to `mostKept` objects, and those of other processes in the kernel cache, and returns
/// those of equal kernels. Returns an error text, or an empty string on success.
std::string compileLevel(ModuleOp lowered, const VectorTarget &target, std::string &bytes) {
  constexpr size_t mostKept = 256;
  static std::mutex mutex;
  static std::map<Digest, std::string> kept;
  Digest key = digestOf(lowered, target.level);
  {
    std::lock_guard lock(mutex);
    if (auto found = kept.find(key); found != kept.end()) {
      bytes = found->second;
      return "";
    }
  }
  std::string name = llvm::toHex(key);
  if (std::optional<std::string> code = findCode(name)) {
    bytes = std::move(*code);
  } else {
    SmallVector<char> object;
    std::string error = compileObject(lowered, target, object);
    if (error.empty())
      error = link(object, bytes);
    if (!error.empty())
      return error;
    keepCode(name, bytes);
  }
  std::lock_guard lock(mutex);
  if (kept.size() == mostKept)
    kept.clear();
  kept.emplace(key, bytes);
  return "";
}

} // namespace

FailureOr<std::vector<CpuObject>> emitCpuObjects(ModuleOp module, StringRef onlyLevel) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  prepareContext(*module.getContext());
  std::vector<VectorTarget> targets;
  llvm::copy_if(levels, std::back_inserter(targets),
                [&](const VectorTarget &target) { return onlyLevel.empty() || target.level == onlyLevel; });
  if (targets.empty())
    return module.emitError("no instruction set level is named '") << onlyLevel << "'";
  std::vector<OwningOpRef<ModuleOp>> lowered;
  for (const VectorTarget &target : targets) {
    auto kernels = lowerKernels(module, target);
    if (failed(kernels))
      return failure();
    lowered.push_back(std::move(*kernels));
  }
  std::vector<CpuObject> objects(targets.size());
  std::vector<std::string> errors(targets.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < targets.size(); ++i)
    threads.emplace_back([&, i] {
      objects[i].level = targets[i].level;
      errors[i] = compileLevel(*lowered[i], targets[i], objects[i].bytes);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    if (!error.empty())
      return module.emitError(error);
  if (!onlyLevel.empty()) {
    objects.assign(levels.size(), objects.front());
    for (auto [object, target] : llvm::zip_equal(objects, levels))
      object.level = target.level;
  }
  return objects;
}

} // namespace espalier::codegen
