#include "runtime/device/cuda/module.h"

#include "runtime/status.h"

#include <array>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

constexpr size_t logBytes = 16 << 10;
constexpr size_t maxArguments = 128;
/// The shared memory that a block may use without an opt-in, in bytes.
constexpr int usualSharedBytes = 48 << 10;

} // namespace

Module::Module(const Context &context, const std::string &text)
    : context(context), driver(context.driver), log(logBytes, '\0') {
  std::array<CUjit_option, 2> options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void *, 2> values = {log.data(), reinterpret_cast<void *>(log.size())};
  CUresult status = driver.cuLibraryLoadData.answer(&library, text.c_str(), options.data(), values.data(),
                                                    options.size(), nullptr, nullptr, 0);
  if (status != CUDA_SUCCESS)
    refuse(status);
}

Module::~Module() {
  if (library)
    driver.cuLibraryUnload.answer(library);
}

void Module::refuse(CUresult status) const {
  std::string words(log.data());
  while (!words.empty() && (words.back() == '\n' || words.back() == ' '))
    words.pop_back();
  throw PlanError(fmt::format("the driver does not compile the plan's kernels for {}: {}{}{}", context.describe(),
                              driver.text(status), words.empty() ? "" : "\n", words));
}

Kernel Module::kernel(const std::string &symbol, uint32_t threads, uint32_t dynamicSharedBytes) const {
  CUkernel handle = nullptr;
  CUresult status = driver.cuLibraryGetKernel.answer(&handle, library, symbol.c_str());
  if (status == CUDA_ERROR_NOT_FOUND)
    throw PlanError(fmt::format("the plan's kernels lack '{}'", symbol));
  Kernel kernel;
  if (status == CUDA_SUCCESS)
    status = driver.cuKernelGetFunction.answer(&kernel.function, handle);
  if (status != CUDA_SUCCESS)
    refuse(status);
  auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    driver.cuFuncGetAttribute(&value, which, kernel.function);
    return value;
  };
  kernel.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.localBytes = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  kernel.sharedBytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  kernel.maxThreads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (threads > static_cast<uint32_t>(kernel.maxThreads))
    throw PlanError(fmt::format("kernel '{}' needs blocks of {} threads, {} runs at most {} of it", symbol, threads,
                                context.describe(), kernel.maxThreads));
  int most = context.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - kernel.sharedBytes;
  if (static_cast<int64_t>(dynamicSharedBytes) > most)
    throw PlanError(fmt::format("kernel '{}' needs {} bytes of dynamic and {} of static shared memory, {} has {} for a "
                                "block",
                                symbol, dynamicSharedBytes, kernel.sharedBytes, context.describe(),
                                most + kernel.sharedBytes));
  if (static_cast<int>(dynamicSharedBytes) + kernel.sharedBytes > usualSharedBytes)
    driver.cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(dynamicSharedBytes));
  return kernel;
}

void launch(Queue &queue, const Kernel &kernel, const Grid &grid, std::span<uint64_t> arguments) {
  std::array<void *, maxArguments> places;
  for (size_t i = 0; i < arguments.size(); ++i)
    places[i] = &arguments[i];
  CUlaunchConfig config = {};
  config.gridDimX = grid.blocksX;
  config.gridDimY = grid.blocksY;
  config.gridDimZ = 1;
  config.blockDimX = grid.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = grid.sharedBytes;
  config.hStream = queue.stream();
  queue.driver.cuLaunchKernelEx(&config, kernel.function, places.data(), nullptr);
}

} // namespace espalier::rt::cuda
