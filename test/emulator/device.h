// The state behind the driver's calls: devices, contexts, handles, memory, and the queue. One per process, behind one
// lock.
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

// What another double of the emulator may call.
#define EMULATOR_EXPORT __attribute__((visibility("default")))

namespace espalier::emulator {

/// A loaded text and its kernels' limits.
struct LoadedModule {
  Module module;
  int device;
  std::map<std::string, struct LoadedKernel> kernels;
};
struct LoadedKernel {
  LoadedModule *owner;
  EntryInfo info;
  uint32_t dynamicSharedBytes; // that a launch may ask for
};

class Device {
public:
  static Device &instance();

  std::recursive_mutex lock;
  bool isInitialised = false;
  bool isForked = false; // it was initialised before a fork, of which this is the child: nothing works any more
  CUresult failure = CUDA_SUCCESS; // the first fault of the device's work: every later call ends with it
  Memory memory;
  Queue queue;

  int count() const { return static_cast<int>(shown.size()); }
  /// The machine's number of a device that this process counts as `number`.
  int physical(int number) const { return shown.at(number); }
  int capability() const { return level; } // 80 or 90
  int driverVersion() const { return driver; } // 13000: CUDA 13.0
  /// The version of PTX that came with this driver, or an older one: 8.0 is 80.
  bool understands(uint32_t ptxVersion) const;
  /// That a block may have.
  int sharedBytes() const;
  uint64_t totalBytes() const { return memoryBytes; }
  uint64_t usedBytes(int device) const;

  void reserve(int device, int64_t bytes) { reserved[device] += bytes, takenTimes += bytes > 0; }
  CUresult allocate(CUdeviceptr *address, uint64_t bytes, int device);
  CUresult release(CUdeviceptr address);
  CUresult allocateHost(void **address, uint64_t bytes);
  CUresult releaseHost(void *address);
  bool isPinned(const void *address, uint64_t bytes) const;
  /// How often memory was taken, by whomever.
  uint64_t takings() const { return takenTimes; }
  /// Runs work of a device that has access to its own memory alone. Throws Fault where it has touched another one's.
  Accesses runOn(int device, const std::function<Accesses()> &work) const;

  std::set<std::unique_ptr<LoadedModule>> modules;
  std::set<std::unique_ptr<Event>> events;
  std::vector<int> contexts; // how often each device's primary context is retained

  /// The stream behind a handle; nullptr where it is none.
  Stream *stream(CUstream handle);
  /// The same, for work: a mutant puts it elsewhere.
  Stream *workStream(CUstream handle);
  template <class T, class Handle> static T *find(const std::set<std::unique_ptr<T>> &owned, Handle handle) {
    for (const auto &one : owned)
      if (reinterpret_cast<Handle>(one.get()) == handle)
        return one.get();
    return nullptr;
  }
  /// The module that owns the kernel behind a handle; nullptr where it is none.
  LoadedKernel *kernel(const void *handle);

  /// Prints what went wrong; the process will not end well.
  void report(CUresult status, const std::string &what);
  /// For tests that provoke faults: how many there were, and none from now on.
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
  std::map<int, uint64_t> reserved;             // of each device, by other libraries
  std::map<const std::byte *, uint64_t> pinned; // host memory of ours: address, bytes
  std::vector<int> shown; // the machine's numbers of this process' devices
  int level, driver, faults = 0;
  uint64_t memoryBytes, takenTimes = 0;
};

/// What another library takes of a device's memory, or gives back.
EMULATOR_EXPORT void reserveFor(int device, int64_t bytes);
/// Puts work into a stream for another library of the emulator; the driver's own errors where the stream is none.
EMULATOR_EXPORT CUresult enqueueFor(CUstream stream, Operation operation);
/// One step for all work that waits for other devices; whether there is any.
EMULATOR_EXPORT bool carryOn();
/// Host memory behind device memory, for the time of an operation; nullptr where it is no allocation.
EMULATOR_EXPORT std::byte *hostMemory(CUdeviceptr address, uint64_t bytes);
/// How often memory of devices, or pinned one, was taken in this process.
EMULATOR_EXPORT uint64_t timesMemoryWasTaken();
/// Number of faults so far, which are forgotten.
EMULATOR_EXPORT int forgetFaults();

/// The device whose context the calling thread has set; -1 for none.
extern thread_local int currentDevice;

/// Runs a call of the driver under its lock, with what holds for nearly all of them.
template <class F> CUresult guarded(F call, bool needsContext = true) {
  Device &device = Device::instance();
  if (device.isForked) // before the lock, which nobody may be left to release
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
