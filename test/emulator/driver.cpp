// A test double of libcuda.so.1: devices, contexts, streams and events. driver_memory.cpp has memory, driver_launch.cpp
// has modules and launches.
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sys/stat.h>

#include "test/emulator/device.h"
#include "test/emulator/mutant.h"

using namespace espalier::emulator;

namespace {

struct ErrorText {
  const char *name, *text;
};
const std::map<int, ErrorText> errorTexts = {
    {CUDA_SUCCESS, {"CUDA_SUCCESS", "no error"}},
    {CUDA_ERROR_INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {CUDA_ERROR_OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {CUDA_ERROR_NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {CUDA_ERROR_NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {CUDA_ERROR_INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {CUDA_ERROR_INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {CUDA_ERROR_NO_BINARY_FOR_GPU,
     {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {CUDA_ERROR_INVALID_PTX, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
     {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {CUDA_ERROR_INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {CUDA_ERROR_NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {CUDA_ERROR_NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {CUDA_ERROR_ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {CUDA_ERROR_MISALIGNED_ADDRESS, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {CUDA_ERROR_LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {CUDA_ERROR_NOT_SUPPORTED, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {CUDA_ERROR_UNKNOWN, {"CUDA_ERROR_UNKNOWN", "unknown error"}}};

/// Returns the number of the host. Emulated hosts on one machine are network namespaces.
uint64_t hostNumber() {
  struct stat space = {};
  return stat("/proc/self/ns/net", &space) == 0 ? space.st_ino : 0;
}

CUresult errorText(CUresult error, const char **text, const char *ErrorText::*member) {
  auto found = errorTexts.find(error);
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = found == errorTexts.end() ? nullptr : found->second.*member;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const std::map<int, int> deviceAttributes = {{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
                                             {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
                                             {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
                                             {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
                                             {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
                                             {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
                                             {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
                                             {CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX},
                                             {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
                                             {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
                                             {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
                                             {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
                                             {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 1024},
                                             {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
                                             {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                                             {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
                                             {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536}};

/// Runs a call about a device, which needs no context.
template <class F> CUresult aboutDevice(CUdevice number, F call) {
  return guarded(
      [&](Device &device) { return number < 0 || number >= device.count() ? CUDA_ERROR_INVALID_DEVICE : call(device); },
      /*needsContext=*/false);
}

template <class F> CUresult withStream(CUstream handle, F call) {
  return guarded([&](Device &device) {
    Stream *stream = device.stream(handle);
    return stream ? call(device, stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}
template <class F> CUresult withEvent(CUevent handle, F call) {
  return guarded([&](Device &device) {
    Event *event = Device::find(device.events, handle);
    return event ? call(device, *event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUcontext contextOf(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device + 1)); }

} // namespace

extern "C" {

EMULATOR_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
  return errorText(error, text, &ErrorText::text);
}
EMULATOR_EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
  return errorText(error, text, &ErrorText::name);
}

EMULATOR_EXPORT CUresult cuDriverGetVersion(int *version) {
  if (!version)
    return CUDA_ERROR_INVALID_VALUE;
  *version = Device::instance().driverVersion();
  return CUDA_SUCCESS;
}

EMULATOR_EXPORT CUresult cuInit(unsigned flags) {
  Device &device = Device::instance();
  if (device.isForked)
    return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard held(device.lock);
  if (flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device.count())
    return CUDA_ERROR_NO_DEVICE;
  device.isInitialised = true;
  return CUDA_SUCCESS;
}

EMULATOR_EXPORT CUresult cuDeviceGetCount(int *count) {
  return guarded([&](Device &device) { return *count = device.count(), CUDA_SUCCESS; }, /*needsContext=*/false);
}
EMULATOR_EXPORT CUresult cuDeviceGet(CUdevice *handle, int number) {
  return aboutDevice(number, [&](Device &) { return *handle = number, CUDA_SUCCESS; });
}
EMULATOR_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice number) {
  return aboutDevice(number, [&](Device &) {
    if (!name || length <= 0)
      return CUDA_ERROR_INVALID_VALUE;
    std::strncpy(name, "Espalier emulated device", length);
    name[length - 1] = '\0';
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice number) {
  return aboutDevice(number, [&](Device &device) {
    if (!uuid)
      return CUDA_ERROR_INVALID_VALUE;
    uint64_t words[] = {hostNumber(), static_cast<uint64_t>(device.physical(number))};
    std::memcpy(uuid->bytes, words, sizeof words);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice number) {
  return aboutDevice(number, [&](Device &device) { return *bytes = device.totalBytes(), CUDA_SUCCESS; });
}
EMULATOR_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice number) {
  return aboutDevice(number, [&](Device &device) {
    auto found = deviceAttributes.find(attribute);
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
      *value = device.capability() / 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
      *value = device.capability() % 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
      *value = device.sharedBytes();
    else if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
      *value = device.sharedBytes() + 1024;
    else if (found != deviceAttributes.end())
      *value = found->second;
    else
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

EMULATOR_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice number) {
  return aboutDevice(number, [&](Device &device) {
    ++device.contexts[number];
    *context = contextOf(number);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
  return aboutDevice(number, [&](Device &device) {
    if (!device.contexts[number])
      return CUDA_ERROR_INVALID_CONTEXT;
    --device.contexts[number];
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  return guarded(
      [&](Device &device) {
        int number = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
        if (number >= device.count() || (number >= 0 && !device.contexts[number]))
          return CUDA_ERROR_INVALID_CONTEXT;
        currentDevice = number;
        return CUDA_SUCCESS;
      },
      /*needsContext=*/false);
}
EMULATOR_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  return guarded(
      [&](Device &) { return *context = currentDevice < 0 ? nullptr : contextOf(currentDevice), CUDA_SUCCESS; },
      /*needsContext=*/false);
}
EMULATOR_EXPORT CUresult cuCtxGetDevice(CUdevice *number) {
  return guarded([&](Device &) { return *number = currentDevice, CUDA_SUCCESS; });
}
EMULATOR_EXPORT CUresult cuCtxSynchronize() {
  return guarded([&](Device &device) { return device.queue.finishAll(currentDevice), CUDA_SUCCESS; });
}

EMULATOR_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return guarded([&](Device &device) {
    if (flags & ~CU_STREAM_NON_BLOCKING)
      return CUDA_ERROR_INVALID_VALUE;
    *stream = reinterpret_cast<CUstream>(device.queue.open(/*isBlocking=*/!flags, currentDevice));
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
EMULATOR_EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  return withStream(handle, [&](Device &device, Stream *stream) {
    if (stream == device.queue.legacy())
      return CUDA_ERROR_INVALID_HANDLE;
    device.queue.close(stream);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuStreamQuery(CUstream handle) {
  return withStream(handle, [&](Device &device, Stream *stream) {
    return !stream->last || device.queue.advance(stream->last) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
EMULATOR_EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  return withStream(handle, [&](Device &device, Stream *stream) {
    if (stream->last)
      device.queue.finish(stream->last);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return withStream(handle, [&](Device &device, Stream *stream) {
    Event *recorded = Device::find(device.events, event);
    if (flags || !recorded)
      return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    if (stream->device != 0 || !isMutant("drop_wait"))
      device.queue.wait(stream, *recorded);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
  return withStream(handle, [&](Device &device, Stream *stream) {
    device.queue.enqueue(stream, {"host function", [=] { return function(data), Accesses(); }});
    return CUDA_SUCCESS;
  });
}

EMULATOR_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
  return guarded([&](Device &device) {
    if (flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
      return CUDA_ERROR_INVALID_VALUE;
    bool hasTiming = !(flags & CU_EVENT_DISABLE_TIMING);
    auto fresh = std::make_unique<Event>(Event{.hasTiming = hasTiming, .device = currentDevice});
    *event = reinterpret_cast<CUevent>(fresh.get());
    device.events.insert(std::move(fresh));
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
  return withEvent(handle, [&](Device &device, Event &event) {
    std::erase_if(device.events, [&](const auto &owned) { return owned.get() == &event; });
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return withEvent(handle, [&](Device &device, Event &event) {
    Stream *target = device.stream(stream);
    if (!target || (target != device.queue.legacy() && target->device != event.device))
      return CUDA_ERROR_INVALID_HANDLE;
    device.queue.record(event, target);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuEventQuery(CUevent handle) {
  return withEvent(handle, [&](Device &device, Event &event) {
    return !event.recorded || device.queue.advance(event.recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
EMULATOR_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  return withEvent(handle, [&](Device &device, Event &event) {
    if (event.recorded)
      device.queue.finish(event.recorded);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent second) {
  return withEvent(first, [&](Device &device, Event &start) {
    Event *end = Device::find(device.events, second);
    if (!end || !start.hasTiming || !end->hasTiming || !start.recorded || !end->recorded)
      return CUDA_ERROR_INVALID_HANDLE;
    if (!start.recorded->isDone || !end->recorded->isDone)
      return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(end->recorded->doneAt - start.recorded->doneAt).count();
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent second) {
  return cuEventElapsedTime_v2(milliseconds, first, second);
}

EMULATOR_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int, uint64_t,
                                             CUdriverProcAddressQueryResult *found) {
  Dl_info self;
  dladdr(reinterpret_cast<void *>(&cuInit), &self);
  void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = library ? dlsym(library, (std::string(symbol) + "_v2").c_str()) : nullptr;
  if (!*function && library)
    *function = dlsym(library, symbol);
  if (library)
    dlclose(library);
  if (found)
    *found = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

} // extern "C"
