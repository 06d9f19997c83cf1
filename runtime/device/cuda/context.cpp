#include "runtime/device/cuda/context.h"

#include "runtime/status.h"

#include <cstdlib>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

constexpr int oldestMajor = 8; // the plan's PTX targets sm_80

std::string gibibytes(uint64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

} // namespace

std::string visibleDevices() {
  const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", visible) : "";
}

// The driver reports an error if there is no device.
int countDevices(const Driver &driver) {
  if (CUresult status = driver.cuInit.answer(0); status == CUDA_ERROR_NO_DEVICE)
    return 0;
  else if (status != CUDA_SUCCESS)
    throw PlanError(
        fmt::format("the NVIDIA driver ({}) does not start: {}", driver.library.path(), driver.text(status)));
  int count = 0;
  driver.cuDeviceGetCount(&count);
  return count;
}

DeviceFacts::DeviceFacts(const Driver &driver, int ordinal) : driver(driver), ordinal(ordinal) {
  int count = countDevices(driver);
  if (ordinal >= count)
    throw PlanError(
        fmt::format("the plan needs CUDA device {}, this machine shows {}{}", ordinal, count, visibleDevices()));
  driver.cuDeviceGet(&device, ordinal);
  char text[256] = {};
  driver.cuDeviceGetName(text, sizeof(text), device);
  name = text;
  major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (major < oldestMajor)
    throw PlanError(fmt::format("CUDA device {} ({}) has compute capability {}.{}, the plan needs {}.0 or newer",
                                ordinal, name, major, minor, oldestMajor));
}

int DeviceFacts::attribute(CUdevice_attribute which) const {
  int value = 0;
  driver.cuDeviceGetAttribute(&value, which, device);
  return value;
}

std::string DeviceFacts::uuid() const {
  CUuuid uuid = {};
  driver.cuDeviceGetUuid_v2(&uuid, device);
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

Context::Context(const Driver &driver, int ordinal) : DeviceFacts(driver, ordinal) {
  driver.cuDevicePrimaryCtxRetain(&context, device);
  makeCurrent();
}

Context::~Context() {
  if (context)
    driver.cuDevicePrimaryCtxRelease_v2.answer(device);
}

Context::Bytes Context::memory() const {
  Bytes bytes;
  driver.cuMemGetInfo_v2(&bytes.free, &bytes.total);
  return bytes;
}

void Context::requireFree(uint64_t arenaBytes, uint64_t workspaceBytes) const {
  if (arenaBytes + workspaceBytes > memory().free)
    lackMemory(arenaBytes, workspaceBytes);
}

void Context::lackMemory(uint64_t arenaBytes, uint64_t workspaceBytes) const {
  Bytes device = memory();
  throw MemoryError(fmt::format("the plan needs {} of device memory (arena of {} bytes, workspace of {} bytes), CUDA "
                                "device {} ({}) has {} free of {}{}",
                                gibibytes(arenaBytes + workspaceBytes), arenaBytes, workspaceBytes, ordinal, describe(),
                                gibibytes(device.free), gibibytes(device.total),
                                arenaBytes + workspaceBytes > device.free ? "" : ", but not in one piece"));
}

void Context::makeCurrent() const { driver.cuCtxSetCurrent(context); }

} // namespace espalier::rt::cuda
