// A test double of libcuda.so.1: PTX texts, kernels, launches.
#include <algorithm>
#include <cstring>

#include "test/emulator/device.h"

using namespace espalier::emulator;

namespace {

/// Writes the compiler's log to the caller's buffer.
void tellError(const std::string &text, const CUjit_option *options, void **values, unsigned count) {
  char *buffer = nullptr;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
      buffer = static_cast<char *>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      bytes = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]));
  }
  if (!buffer || !bytes)
    return;
  std::strncpy(buffer, text.c_str(), bytes);
  buffer[bytes - 1] = '\0';
}

CUresult load(LoadedModule *&loaded, const void *image, const CUjit_option *options, void **values, unsigned count) {
  return guarded([&](Device &device) {
    if (!image)
      return CUDA_ERROR_INVALID_VALUE;
    try {
      auto fresh = std::make_unique<LoadedModule>(Module::parse(static_cast<const char *>(image)), currentDevice);
      if (!device.understands(fresh->module.version()))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
      if (fresh->module.target() > static_cast<uint32_t>(device.capability()))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
      for (const EntryInfo &info : fresh->module.entries())
        fresh->kernels[info.name] = {fresh.get(), info, 48 * 1024 - std::min(info.sharedBytes, 48u * 1024)};
      loaded = fresh.get();
      device.modules.insert(std::move(fresh));
      return CUDA_SUCCESS;
    } catch (const Fault &fault) {
      tellError(fault.what(), options, values, count);
      return CUDA_ERROR_INVALID_PTX;
    }
  });
}

template <class Handle> CUresult unload(Handle handle) {
  return guarded([&](Device &device) {
    LoadedModule *module = Device::find(device.modules, handle);
    if (!module)
      return CUDA_ERROR_INVALID_HANDLE;
    device.queue.finishAll(currentDevice);
    std::erase_if(device.modules, [&](const auto &owned) { return owned.get() == module; });
    return CUDA_SUCCESS;
  });
}

template <class Handle, class Result> CUresult findKernel(Result *kernel, Handle handle, const char *name) {
  return guarded([&](Device &device) {
    LoadedModule *module = Device::find(device.modules, handle);
    if (!module)
      return CUDA_ERROR_INVALID_HANDLE;
    auto found = module->kernels.find(name);
    if (found == module->kernels.end())
      return CUDA_ERROR_NOT_FOUND;
    *kernel = reinterpret_cast<Result>(&found->second);
    return CUDA_SUCCESS;
  });
}

CUresult launch(const void *handle, Launch launch, CUstream streamHandle, void **parameters, void **extra) {
  return guarded([&](Device &device) {
    LoadedKernel *kernel = device.kernel(handle);
    Stream *stream = device.workStream(streamHandle);
    bool isLegacy = stream == device.queue.legacy();
    if (!kernel || !stream || kernel->owner->device != currentDevice || (!isLegacy && stream->device != currentDevice))
      return CUDA_ERROR_INVALID_HANDLE;
    if (extra || (!parameters && !kernel->info.parameterBytes.empty()) ||
        launch.sharedBytes > kernel->dynamicSharedBytes)
      return CUDA_ERROR_INVALID_VALUE;
    // Arguments are read now, because the caller may change them after the call.
    for (size_t i = 0; i < kernel->info.parameterBytes.size(); ++i) {
      uint64_t value = 0;
      std::memcpy(&value, parameters[i], std::min(kernel->info.parameterBytes[i], 8u));
      launch.arguments.push_back(value);
    }
    launch.entry = kernel->info.name;
    const Module &module = kernel->owner->module;
    try {
      module.check(launch);
    } catch (const Fault &) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto run = [&device, &module, launch, number = currentDevice] {
      return device.runOn(number, [&] {
        Report report = module.launch(launch, device.memory);
        return Accesses{std::move(report.reads), std::move(report.writes)};
      });
    };
    device.queue.enqueue(stream, {"kernel " + launch.entry, run});
    return CUDA_SUCCESS;
  });
}

} // namespace

extern "C" {

EMULATOR_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                                           unsigned count, CUlibraryOption *, void **, unsigned libraryOptions) {
  if (libraryOptions)
    return CUDA_ERROR_NOT_SUPPORTED;
  LoadedModule *loaded = nullptr;
  CUresult status = load(loaded, code, options, values, count);
  *library = reinterpret_cast<CUlibrary>(loaded);
  return status;
}
EMULATOR_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                                            void **values) {
  LoadedModule *loaded = nullptr;
  CUresult status = load(loaded, image, options, values, count);
  *module = reinterpret_cast<CUmodule>(loaded);
  return status;
}
EMULATOR_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
EMULATOR_EXPORT CUresult cuLibraryUnload(CUlibrary library) { return unload(library); }
EMULATOR_EXPORT CUresult cuModuleUnload(CUmodule module) { return unload(module); }

EMULATOR_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  return findKernel(kernel, library, name);
}
EMULATOR_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return findKernel(function, module, name);
}
EMULATOR_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  return guarded([&](Device &device) {
    LoadedKernel *found = device.kernel(kernel);
    if (!found)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->owner->device != currentDevice) // the real driver compiles it for that device, too
      return CUDA_ERROR_NOT_SUPPORTED;
    *function = reinterpret_cast<CUfunction>(found);
    return CUDA_SUCCESS;
  });
}

EMULATOR_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  return guarded([&](Device &device) {
    LoadedKernel *kernel = device.kernel(function);
    if (!kernel)
      return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kernel->info.maxThreads ? kernel->info.maxThreads : 1024;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = kernel->info.sharedBytes;
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = kernel->info.localBytes;
      break;
    // The double does not allocate registers, so it returns a number with which any block fits.
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = kernel->owner->module.target();
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = device.capability();
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = kernel->dynamicSharedBytes;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return guarded([&](Device &device) {
    LoadedKernel *kernel = device.kernel(function);
    if (!kernel)
      return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value + static_cast<int>(kernel->info.sharedBytes) > device.sharedBytes())
      return CUDA_ERROR_INVALID_VALUE;
    kernel->dynamicSharedBytes = value;
    return CUDA_SUCCESS;
  });
}

EMULATOR_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                                        unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                                        CUstream stream, void **parameters, void **extra) {
  return launch(function,
                {.grid = {gridX, gridY, gridZ}, .block = {blockX, blockY, blockZ}, .sharedBytes = sharedBytes}, stream,
                parameters, extra);
}
EMULATOR_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                                          void **extra) {
  if (!config || config->numAttrs)
    return config ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  const CUlaunchConfig &c = *config;
  return cuLaunchKernel(function, c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ,
                        c.sharedMemBytes, c.hStream, parameters, extra);
}

} // extern "C"
