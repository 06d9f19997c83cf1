#include "test/compiler/codegen/cuda/call_machine.h"

#include "compiler/codegen/emit_objects.h"
#include "compiler/codegen/program_builder.h"
#include "compiler/link/emit_programs.h"
#include "compiler/passes.h"
#include "dialects/register.h"
#include "runtime/kernels/dtype.h"
#include "runtime/kernels/kernels.h"
#include "test/compiler/codegen/bare_plan.h"
#include "test/compiler/codegen/declarations.h"
#include "test/emulator/emulator.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace mlir;

namespace espalier::test {

namespace pb = rt::pb;

namespace {

constexpr size_t guardBytes = 256;

size_t sizeOf(pb::DataType type) { return type == pb::BF16 || type == pb::F16 ? 2 : 4; }

pb::DataType typeOf(Type element) {
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

void store(char *place, pb::DataType type, double number) {
  auto put = [&](auto bits) { std::memcpy(place, &bits, sizeof(bits)); };
  if (type == pb::I32)
    put(static_cast<int32_t>(number));
  else if (type == pb::F32)
    put(static_cast<float>(number));
  else if (type == pb::BF16)
    put(rt::floatToBf16(static_cast<float>(number)));
  else
    put(rt::floatToF16(static_cast<float>(number)));
}

template <class T> T get(const char *place) {
  T bits;
  std::memcpy(&bits, place, sizeof(bits));
  return bits;
}

double load(const char *place, pb::DataType type) {
  if (type == pb::I32)
    return get<int32_t>(place);
  if (type == pb::F32)
    return get<float>(place);
  return type == pb::BF16 ? rt::bf16ToFloat(get<uint16_t>(place)) : rt::f16ToFloat(get<uint16_t>(place));
}

int64_t valueOf(const pb::Affine &scalar, const Moment &moment) {
  if (scalar.first() > 0)
    return moment.microBatch == 0 ? 1 : 0;
  int64_t coordinates = scalar.pp() + scalar.dp() + scalar.cp() + scalar.ep() + scalar.tp();
  return scalar.constant() + scalar.layer() * moment.layer + scalar.micro_batch() * moment.microBatch +
         scalar.seed() * moment.seed + coordinates * moment.coordinate;
}

void callLibrary(const pb::Plan &plan, const pb::LibraryCall &call, const std::vector<void *> &buffers,
                 const Moment &moment) {
  std::vector<pb::DataType> types;
  for (const pb::Buffer &buffer : call.buffers())
    types.push_back(plan.values(static_cast<int>(buffer.value())).type());
  std::unique_ptr<rt::LibraryKernel> kernel = rt::makeLibraryKernel(call, types, 1);
  std::vector<int64_t> scalars;
  for (const pb::Affine &scalar : call.scalars())
    scalars.push_back(valueOf(scalar, moment));
  auto room = [](size_t bytes) { return static_cast<char *>(std::aligned_alloc(64, (bytes / 64 + 1) * 64)); };
  std::unique_ptr<char, void (*)(void *)> shared(room(kernel->sharedScratchBytes()), std::free);
  std::unique_ptr<char, void (*)(void *)> own(room(kernel->scratchBytesPerThread()), std::free);
  rt::CallArguments arguments{.buffers = buffers.data(),
                              .scalars = scalars.data(),
                              .adds = call.store() == pb::ADD ||
                                      (call.store() == pb::ADD_UNLESS_FIRST && moment.microBatch > 0),
                              .scratch = shared.get(),
                              .seed = static_cast<uint32_t>(moment.seed)};
  for (int64_t part = 0; part < kernel->parts(); ++part)
    kernel->run(arguments, part, own.get());
  kernel->finish(arguments);
}

} // namespace

CallMachine::CallMachine(const std::string &source) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  auto lower = [&](bool isCuda, pb::Plan &plan) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(source, &context);
    if (!module)
      throw std::runtime_error("the module does not parse");
    if (isCuda)
      (*module)->setAttr("exec.target", StringAttr::get(&context, "cuda"));
    auto function = *module->getOps<func::FuncOp>().begin();
    BareLayout().layOut(function);
    auto place = [&](DictionaryAttr attributes, Type type) {
      std::string name = attributes.getAs<StringAttr>("model.name").str();
      std::string role = attributes.getAs<StringAttr>("model.role").str();
      auto tensor = cast<RankedTensorType>(type);
      exec::Region region = role == "saved"     ? exec::Region::Saved
                            : role == "counter" ? exec::Region::Cache
                                                : exec::Region::Gradients;
      int64_t offset = attributes.getAs<IntegerAttr>("exec.offset").getInt();
      tensors.try_emplace(name, Tensor{region, static_cast<uint64_t>(offset), typeOf(tensor.getElementType()),
                                       std::vector<double>(static_cast<size_t>(tensor.getNumElements()))});
    };
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      place(function.getArgAttrDict(i), function.getArgument(i).getType());
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      place(function.getResultAttrDict(i), function.getResultTypes()[i]);
    putInBuckets(function);
    addQueues(plan);
    PassManager passes(&context);
    passes.addPass(createLowerToExec());
    passes.addPass(createPlanBuffers());
    if (failed(passes.run(*module)))
      throw std::runtime_error("the module does not lower");
    emitPrograms(*module, plan);
    if (isCuda && failed(codegen::emitObjects(*module, plan)))
      throw std::runtime_error("the module has no code for GPUs");
    EXPECT_EQ(undeclared(plan), "");
  };
  lower(/*isCuda=*/false, cpuPlan);
  lower(/*isCuda=*/true, cudaPlan);
}

std::vector<std::string> CallMachine::kernels() const {
  std::vector<std::string> shapes;
  for (const pb::Instruction &instruction : cudaPlan.subprograms(0).instructions())
    if (instruction.has_launch())
      shapes.push_back(cudaPlan.kernels(instruction.launch().kernel()).shape());
  return shapes;
}

void CallMachine::launch(const pb::Plan &plan, const pb::Launch &launch, Regions &regions, const Moment &moment) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  const pb::Geometry &geometry = plan.objects(0).geometry(static_cast<int>(launch.kernel()));
  emulator::Memory memory;
  std::vector<uint64_t> arguments;
  for (const pb::Buffer &buffer : launch.buffers())
    arguments.push_back(memory.add(regions.at(buffer.region()).data() + buffer.offset(), buffer.bytes(),
                                   plan.values(static_cast<int>(buffer.value())).name()));
  for (const pb::Affine &scalar : launch.scalars())
    arguments.push_back(static_cast<uint64_t>(valueOf(scalar, moment)));
  arguments.push_back(static_cast<uint64_t>(launch.extent()));
  auto blocks = [](int64_t extent, int64_t perBlock) {
    return static_cast<uint32_t>((extent + perBlock - 1) / perBlock);
  };
  uint32_t y =
      geometry.columns_per_block() > 0 ? blocks(valueOf(launch.scalars(0), moment), geometry.columns_per_block()) : 1;
  static std::map<std::string, emulator::Module> modules; // caches parsed modules
  auto module = modules.find(ptx());
  if (module == modules.end())
    module = modules.emplace(ptx(), emulator::Module::parse(ptx())).first;
  executed += module->second
                  .launch({.entry = kernel.symbol(),
                           .grid = {blocks(launch.extent(), geometry.extent_per_block()), y},
                           .block = {geometry.threads()},
                           .sharedBytes = geometry.shared_bytes(),
                           .arguments = arguments,
                           .reportsUndefined = true},
                          memory)
                  .instructions;
}

CallMachine::Results CallMachine::runPlan(const pb::Plan &plan, const Moment &moment) {
  const pb::Subprogram &subprogram = plan.subprograms(0);
  Regions regions;
  auto makeRoom = [&](uint32_t region, uint64_t end) {
    if (regions[region].size() < end + guardBytes)
      regions[region].resize(end + guardBytes, 0x7f);
  };
  for (const pb::Instruction &instruction : subprogram.instructions())
    for (const auto *buffers : {&instruction.launch().buffers(), &instruction.call().buffers()})
      for (const pb::Buffer &buffer : *buffers)
        makeRoom(buffer.region(), buffer.offset() + buffer.bytes());
  for (const auto &[name, tensor] : tensors) {
    auto region = static_cast<uint32_t>(tensor.region);
    makeRoom(region, tensor.offset + tensor.values.size() * sizeOf(tensor.type));
    for (size_t i = 0; i < tensor.values.size(); ++i)
      store(regions[region].data() + tensor.offset + i * sizeOf(tensor.type), tensor.type, tensor.values[i]);
  }
  auto scalars = static_cast<uint32_t>(exec::Region::Scalars);
  makeRoom(scalars, sizeof(slots));
  std::memcpy(regions[scalars].data(), slots.data(), sizeof(slots));
  store(regions[scalars].data() + 4 * rt::Step, pb::I32, static_cast<double>(moment.step));
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    if (instruction.has_launch()) {
      launch(plan, instruction.launch(), regions, moment);
      continue;
    }
    std::vector<void *> buffers;
    for (const pb::Buffer &buffer : instruction.call().buffers())
      buffers.push_back(regions.at(buffer.region()).data() + buffer.offset());
    callLibrary(plan, instruction.call(), buffers, moment);
  }
  Results results;
  for (const auto &[name, tensor] : tensors)
    for (size_t i = 0; i < tensor.values.size(); ++i)
      results[name].push_back(load(
          regions[static_cast<uint32_t>(tensor.region)].data() + tensor.offset + i * sizeOf(tensor.type), tensor.type));
  for (size_t slot = 0; slot < slots.size(); ++slot)
    results["slots"].push_back(load(regions[scalars].data() + 4 * slot, pb::F32));
  return results;
}

void CallMachine::run(const Moment &moment) {
  onCpu = runPlan(cpuPlan, moment);
  onCuda = runPlan(cudaPlan, moment);
}

} // namespace espalier::test
