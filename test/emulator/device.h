// The state behind the driver calls: devices, contexts, handles, memory and the queue. There is one per process,
// protected by a lock.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "test/emulator/cuda_calls.h"
#include "test/emulator/emulator.h"
#include "test/emulator/queue.h"

// The functions that other doubles of the emulator may call.
#define EMULATOR_EXPORT __attribute__((visibility("default")))

namespace espalier::emulator {

/// A loaded PTX text and the limits of its kernels.
struct LoadedModule {
  Module module;
  int device;
  std::map<std::string, struct LoadedKernel> kernels;
};
struct LoadedKernel {
  LoadedModule *owner;
  EntryInfo info;
  uint32_t dynamicSharedBytes; // maximum of a launch
};

class Device {
public:
  static Device &instance();

  std::recursive_mutex lock;
  bool isInitialised = false;
  bool isForked = false;           // initialized before a fork of which this is the child; every call fails
  CUresult failure = CUDA_SUCCESS; // the first device fault, returned by every later call
  Memory memory;
  Queue queue;

  int count() const { return static_cast<int>(shown.size()); }
  /// Maps a device number of this process to the machine's device number.
  int physical(int number) const { return shown.at(number); }
  int capability() const { return level; }     // 80 or 90
  int driverVersion() const { return driver; } // 13000: CUDA 13.0
  /// Returns whether the driver supports this PTX version: 8.0 is 80.
  bool understands(uint32_t ptxVersion) const;
  /// Returns the maximum shared memory per block.
  int sharedBytes() const;
  uint64_t totalBytes() const { return memoryBytes; }
  uint64_t usedBytes(int device) const;

  void reserve(int device, int64_t bytes) { reserved[device] += bytes, takenTimes += bytes > 0; }
  CUresult allocate(CUdeviceptr *address, uint64_t bytes, int device);
  CUresult release(CUdeviceptr address);
  CUresult allocateHost(void **address, uint64_t bytes);
  CUresult releaseHost(void *address);
  bool isPinned(const void *address, uint64_t bytes) const;
  /// Returns the number of allocations by all callers.
  uint64_t takings() const { return takenTimes; }
  /// Runs device work with access to this device's memory only. Throws Fault if the work accesses other memory.
  Accesses runOn(int device, const std::function<Accesses()> &work) const;

  std::set<std::unique_ptr<LoadedModule>> modules;
  std::set<std::unique_ptr<Event>> events;
  std::vector<int> contexts; // retain count of each device's primary context

  /// Returns the stream of a handle, or nullptr if invalid.
  Stream *stream(CUstream handle);
  /// Returns the stream on which to enqueue work. A mutant may return another one.
  Stream *workStream(CUstream handle);
  template <class T, class Handle> static T *find(const std::set<std::unique_ptr<T>> &owned, Handle handle) {
    for (const auto &one : owned)
      if (reinterpret_cast<Handle>(one.get()) == handle)
        return one.get();
    return nullptr;
  }
  /// Returns the module that owns the kernel of a handle, or nullptr if invalid.
  LoadedKernel *kernel(const void *handle);

  /// Prints a fault. The process will exit with an error.
  void report(CUresult status, const std::string &what);
  /// For tests that provoke faults: returns the number of faults and resets it.
  int forgetFaults();
  int faultCount() const { return faults; }

private:
  Device();
  struct Allocation {
    std::unique_ptr<std::byte, void (*)(void *)> host;
    uint64_t bytes;
    int device;
  };
  std::map<CUdeviceptr, Allocation> allocations;
  std::map<int, uint64_t> reserved;             // keyed by device: bytes allocated by other libraries
  std::map<const std::byte *, uint64_t> pinned; // host memory by address: bytes
  std::vector<int> shown;                       // the machine's numbers of this process's devices
  int level, driver, faults = 0;
  uint64_t memoryBytes, takenTimes = 0;
};

/// Allocates or frees device memory on behalf of another library.
EMULATOR_EXPORT void reserveFor(int device, int64_t bytes);
/// Enqueues work for another library of the emulator. Returns the driver's error if the stream is invalid.
EMULATOR_EXPORT CUresult enqueueFor(CUstream stream, Operation operation);
/// Advances all work that waits for other devices by one step. Returns whether any exists.
EMULATOR_EXPORT bool carryOn();
/// Returns the host memory behind device memory, during an operation; nullptr if it is not allocated.
EMULATOR_EXPORT std::byte *hostMemory(CUdeviceptr address, uint64_t bytes);
/// Returns the number of device and pinned allocations in this process.
EMULATOR_EXPORT uint64_t timesMemoryWasTaken();
/// Returns the number of faults so far and resets it.
EMULATOR_EXPORT int forgetFaults();

/// The device of the calling thread's current context; -1 for none.
extern thread_local int currentDevice;

/// Runs a driver call under the lock, with the checks common to nearly all calls.
template <class F> CUresult guarded(F call, bool needsContext = true) {
  Device &device = Device::instance();
  if (device.isForked) // checked before locking, because after a fork no thread may be left to unlock
    return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard held(device.lock);
  if (!device.isInitialised)
    return CUDA_ERROR_NOT_INITIALIZED;
  if (device.failure != CUDA_SUCCESS)
    return device.failure;
  if (needsContext && (currentDevice < 0 || !device.contexts[currentDevice]))
    return CUDA_ERROR_INVALID_CONTEXT;
  CUresult status = call(device);
  return device.failure != CUDA_SUCCESS ? device.failure : status;
}

} // namespace espalier::emulator
