#include "test/emulator/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "test/emulator/mutant.h"

namespace espalier::emulator {

thread_local int currentDevice = -1;

namespace {

/// The granularity of device allocations.
constexpr uint64_t pageBytes = 2 << 20;

uint64_t inPages(uint64_t bytes) { return (bytes + pageBytes - 1) / pageBytes * pageBytes; }

uint64_t setting(const char *name, uint64_t otherwise) {
  const char *value = std::getenv(name);
  return value && *value ? std::strtoull(value, nullptr, 10) : otherwise;
}

/// Returns the devices of CUDA_VISIBLE_DEVICES, as "1,0", up to the first invalid one; all devices if unset.
std::vector<int> shownDevices() {
  int count = static_cast<int>(setting("ESPALIER_EMULATOR_DEVICES", 1));
  std::vector<int> devices;
  const char *wanted = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !wanted && i < count; ++i)
    devices.push_back(i);
  while (wanted && *wanted) {
    char *end = nullptr;
    long number = std::strtol(wanted, &end, 10);
    if (end == wanted || number < 0 || number >= count)
      break;
    devices.push_back(static_cast<int>(number));
    wanted = *end == ',' ? end + 1 : "";
  }
  return devices;
}

CUresult statusOf(const std::exception &error) {
  const auto *fault = dynamic_cast<const Fault *>(&error);
  if (fault && fault->check == Fault::Check::bounds)
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (fault && fault->check == Fault::Check::alignment)
    return CUDA_ERROR_MISALIGNED_ADDRESS;
  return CUDA_ERROR_LAUNCH_FAILED;
}

/// Ends the process with an error after a fault, so that a program that ignores status codes does not exit
/// successfully.
void endBadly(int status, void *) {
  int faults = Device::instance().faultCount();
  if (!faults)
    return;
  std::fprintf(stderr, "espalier emulator: %d fault%s in this process\n", faults, faults == 1 ? "" : "s");
  std::fflush(nullptr);
  if (status == 0)
    _exit(70); // EX_SOFTWARE
}

} // namespace

Device &Device::instance() {
  static Device *device = new Device; // never destroyed, because threads may still call while the process exits
  return *device;
}

Device::Device()
    : queue(setting("ESPALIER_EMULATOR_SEED", 0)), shown(shownDevices()),
      level(static_cast<int>(setting("ESPALIER_EMULATOR_CAPABILITY", 80))),
      driver(static_cast<int>(setting("ESPALIER_EMULATOR_DRIVER", 13000))),
      memoryBytes(setting("ESPALIER_EMULATOR_MEMORY", uint64_t(2) << 30)) {
  contexts.resize(shown.size());
  queue.onFault = [this](const std::exception &error) { report(statusOf(error), error.what()); };
  queue.onRace = [this](const Race &race) {
    auto did = [](const std::string &name, bool writes) { return name + (writes ? " writes" : " reads"); };
    report(CUDA_ERROR_LAUNCH_FAILED, "race: " + did(race.first, race.firstWrites) + " and " +
                                         did(race.second, race.secondWrites) + " " +
                                         std::to_string(race.bytes.end - race.bytes.begin) + " bytes at " +
                                         memory.describe(race.bytes.begin) + ", neither waits for the other");
  };
  // Ranks may be threads of one process, so other threads continue meanwhile.
  queue.onIdle = [this] {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  };
  on_exit(endBadly, nullptr);
  pthread_atfork(nullptr, nullptr, [] { instance().isForked = instance().isInitialised; });
}

void Device::report(CUresult status, const std::string &what) {
  ++faults;
  if (failure == CUDA_SUCCESS)
    failure = status;
  std::fprintf(stderr, "espalier emulator: %s\n", what.c_str());
}

int Device::forgetFaults() {
  failure = CUDA_SUCCESS;
  queue.mend();
  return std::exchange(faults, 0);
}

uint64_t Device::usedBytes(int device) const {
  auto others = reserved.find(device);
  uint64_t used = others == reserved.end() ? 0 : others->second;
  for (const auto &[address, allocation] : allocations)
    used += allocation.device == device ? inPages(allocation.bytes) : 0;
  return used;
}

bool Device::understands(uint32_t ptxVersion) const {
  static constexpr uint32_t ofCuda12[] = {80, 81, 82, 83, 84, 85, 85, 86, 87, 88};
  uint32_t minor = driver % 1000 / 10;
  uint32_t newest = driver >= 13000 ? 90 + minor : driver >= 12000 ? ofCuda12[std::min(minor, 9u)] : 78;
  return ptxVersion <= newest;
}

// Limits of the CUDA programming guide: 163, 99 and 227 KiB.
int Device::sharedBytes() const {
  bool isSmall = level == 86 || level == 89 || level >= 120;
  return (level >= 90 && !isSmall ? 227 : isSmall ? 99 : 163) * 1024;
}

Accesses Device::runOn(int device, const std::function<Accesses()> &work) const {
  Accesses touched = work();
  for (const Ranges *ranges : {&touched.reads, &touched.writes})
    for (const Range &range : *ranges) {
      auto after = allocations.upper_bound(range.begin);
      if (after != allocations.begin() && std::prev(after)->second.device != device &&
          range.begin - std::prev(after)->first < std::prev(after)->second.bytes)
        throw Fault(Fault::Check::bounds, "", 0,
                    "work of device " + std::to_string(device) + " touches memory of device " +
                        std::to_string(std::prev(after)->second.device) + ": " + memory.describe(range.begin));
    }
  return touched;
}

CUresult Device::allocate(CUdeviceptr *address, uint64_t bytes, int device) {
  if (!address || !bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (uint64_t used = usedBytes(device); used > memoryBytes || inPages(bytes) > memoryBytes - used)
    return CUDA_ERROR_OUT_OF_MEMORY;
  ++takenTimes;
  std::unique_ptr<std::byte, void (*)(void *)> host(
      static_cast<std::byte *>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), std::free);
  if (!host)
    return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(host.get(), 0xff, bytes); // NaN, so that missing writes show
  *address = memory.add(host.get(), bytes, "device memory " + std::to_string(allocations.size()));
  allocations.emplace(*address, Allocation{std::move(host), bytes, device});
  return CUDA_SUCCESS;
}

/// Frees memory after all earlier work has ended, as the driver does.
CUresult Device::release(CUdeviceptr address) {
  if (!address)
    return CUDA_SUCCESS;
  auto found = allocations.find(address);
  if (found == allocations.end())
    return CUDA_ERROR_INVALID_VALUE;
  queue.finishAll(found->second.device);
  queue.forget({address, address + found->second.bytes});
  memory.remove(address);
  allocations.erase(found);
  return CUDA_SUCCESS;
}

CUresult Device::allocateHost(void **address, uint64_t bytes) {
  if (!address || !bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*address)
    return CUDA_ERROR_OUT_OF_MEMORY;
  ++takenTimes;
  pinned[static_cast<std::byte *>(*address)] = bytes;
  return CUDA_SUCCESS;
}

CUresult Device::releaseHost(void *address) {
  auto found = pinned.find(static_cast<std::byte *>(address));
  if (found == pinned.end())
    return CUDA_ERROR_INVALID_VALUE;
  queue.finishAll(currentDevice);
  uint64_t begin = reinterpret_cast<uint64_t>(address);
  queue.forget({begin, begin + found->second});
  pinned.erase(found);
  std::free(address);
  return CUDA_SUCCESS;
}

bool Device::isPinned(const void *address, uint64_t bytes) const {
  auto after = pinned.upper_bound(static_cast<const std::byte *>(address));
  if (after == pinned.begin())
    return false;
  const auto &[begin, size] = *std::prev(after);
  uint64_t offset = static_cast<const std::byte *>(address) - begin;
  return offset <= size && bytes <= size - offset;
}

Stream *Device::stream(CUstream handle) {
  if (!handle || handle == legacyStream || handle == perThreadStream)
    return queue.legacy();
  auto *stream = reinterpret_cast<Stream *>(handle);
  return queue.owns(stream) ? stream : nullptr;
}

Stream *Device::workStream(CUstream handle) {
  Stream *meant = stream(handle);
  return meant && meant->device == 0 && isMutant("swap_queues") ? queue.neighbour(meant) : meant;
}

LoadedKernel *Device::kernel(const void *handle) {
  for (const auto &module : modules)
    for (auto &[name, kernel] : module->kernels)
      if (&kernel == handle)
        return &kernel;
  return nullptr;
}

void reserveFor(int device, int64_t bytes) {
  Device &all = Device::instance();
  std::lock_guard held(all.lock);
  all.reserve(device, bytes);
}

CUresult enqueueFor(CUstream stream, Operation operation) {
  return guarded([&](Device &device) {
    Stream *target = device.workStream(stream);
    if (!target || target->device != currentDevice)
      return CUDA_ERROR_INVALID_HANDLE;
    operation.run = [&device, number = currentDevice, run = std::move(operation.run)] {
      return device.runOn(number, run);
    };
    device.queue.enqueue(target, std::move(operation));
    return CUDA_SUCCESS;
  });
}

bool carryOn() {
  Device &device = Device::instance();
  std::lock_guard held(device.lock);
  return device.queue.carryOn();
}

std::byte *hostMemory(CUdeviceptr address, uint64_t bytes) { return Device::instance().memory.find(address, bytes); }

uint64_t timesMemoryWasTaken() {
  Device &device = Device::instance();
  std::lock_guard held(device.lock);
  return device.takings();
}

int forgetFaults() {
  Device &device = Device::instance();
  std::lock_guard held(device.lock);
  return device.forgetFaults();
}

} // namespace espalier::emulator
