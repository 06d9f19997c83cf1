// Tests the libcuda double through its C interface. Compiled against the real cuda.h if it is installed.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#ifdef ESPALIER_CUDA_HEADER
#include <cuda.h>
#else
#include "test/emulator/cuda_calls.h"
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpy2DAsync cuMemcpy2DAsync_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuGetProcAddress cuGetProcAddress_v2
#endif

namespace espalier::emulator {
__attribute__((visibility("default"))) int forgetFaults();
}

namespace {

using testing::HasSubstr;

// Adds a number to each of n integers; `copies` writes out[i] = in[i].
const char *const text = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out, .param .s64 by, .param .s64 n) .maxntid 64, 1, 1 {
.reg .pred %p<2>;
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
ld.param.u64 %rd1, [out];
ld.param.u64 %rd2, [by];
ld.param.u64 %rd3, [n];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.s32 %r4, %r2, %r3, %r1;
cvt.s64.s32 %rd4, %r4;
setp.ge.s64 %p1, %rd4, %rd3;
@%p1 ret;
mad.wide.s32 %rd5, %r4, 4, %rd1;
ld.global.u32 %r5, [%rd5];
cvt.u32.u64 %r6, %rd2;
add.s32 %r7, %r5, %r6;
st.global.u32 [%rd5], %r7;
ret;
}
)";

class Driver : public testing::Test {
protected:
  CUcontext context = nullptr;
  CUlibrary library = nullptr;
  CUfunction add = nullptr;
  CUstream first = nullptr, second = nullptr;

  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
    CUkernel kernel;
    ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
    ASSERT_EQ(cuKernelGetFunction(&add, kernel), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }

  /// Fails the test if it caused faults that it has not consumed with forgetFaults().
  void TearDown() override {
    EXPECT_EQ(cuStreamDestroy(first), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(second), CUDA_SUCCESS);
    EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(espalier::emulator::forgetFaults(), 0);
  }

  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }

  CUresult launchAdd(CUdeviceptr out, long by, long n, CUstream stream, unsigned threads = 64) {
    void *parameters[] = {&out, &by, &n};
    CUlaunchConfig config = {};
    config.gridDimX = static_cast<unsigned>((n + threads - 1) / threads);
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = threads;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    return cuLaunchKernelEx(&config, add, parameters, nullptr);
  }

  std::vector<int> values(CUdeviceptr from, size_t count) {
    std::vector<int> host(count);
    EXPECT_EQ(cuMemcpyDtoH(host.data(), from, count * 4), CUDA_SUCCESS);
    return host;
  }
};

TEST_F(Driver, ReportsItsProperties) {
  int count = 0, major = 0, version = 0;
  char name[64];
  CUuuid uuid;
  size_t total = 0, free = 0, sum = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "Espalier emulated device");
  EXPECT_EQ(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), CUDA_SUCCESS);
  EXPECT_EQ(major, 8);
  EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetInfo(&free, &sum), CUDA_SUCCESS);
  EXPECT_EQ(total, sum);
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 1), CUDA_ERROR_INVALID_DEVICE);
  const char *words = nullptr;
  EXPECT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &words), CUDA_SUCCESS);
  EXPECT_STREQ(words, "out of memory");
}

TEST_F(Driver, RunsAKernelBetweenCopies) {
  CUdeviceptr data = allocate(400);
  std::vector<int> host(100, 7);
  EXPECT_EQ(cuMemcpyHtoDAsync(data, host.data(), 400, first), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 5, 100, first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoHAsync(host.data(), data, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_EQ(host, std::vector<int>(100, 12));
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, WorkRunsOnlyWhenWaitedFor) {
  CUdeviceptr data = allocate(4);
  void *pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 4, 0), CUDA_SUCCESS);
  int *number = static_cast<int *>(pinned);
  *number = 1;
  EXPECT_EQ(cuMemcpyHtoDAsync(data, number, 4, first), CUDA_SUCCESS);
  *number = 2; // too early: the copy has not run
  EXPECT_EQ(cuStreamQuery(first), CUDA_SUCCESS);
  *number = 3;
  EXPECT_EQ(values(data, 1)[0], 2);
  EXPECT_EQ(launchAdd(data, 1, 1, first), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 1, 1, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, EventsOrderStreams) {
  CUdeviceptr data = allocate(400);
  CUevent event, end;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&end, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(data, 0, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 3, 100, second), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(end, second), CUDA_SUCCESS);
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, event, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, event, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(values(data, 100), std::vector<int>(100, 3));
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(end), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, AMissingWaitIsARace) {
  CUdeviceptr data = allocate(400);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuMemsetD8Async(data, 0, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 3, 100, second), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("race: kernel add writes and fill of 400 bytes writes 400 bytes at byte 0 of device memory"));
  EXPECT_EQ(cuStreamSynchronize(second), CUDA_ERROR_LAUNCH_FAILED); // the fault persists
  EXPECT_EQ(espalier::emulator::forgetFaults(), 1);
  // Synchronization by the host also orders the operations.
  EXPECT_EQ(cuMemsetD8Async(data, 0, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 3, 100, second), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, ReadersMayBeUnorderedWritersNot) {
  CUdeviceptr data = allocate(400), other = allocate(800);
  EXPECT_EQ(cuMemcpyDtoDAsync(other, data, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoDAsync(other + 400, data, 400, second), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuMemcpyDtoDAsync(other, data, 400, first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(data + 399, 0, 1, second), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("race: "), HasSubstr("copy of 400 bytes on the device reads"),
                             HasSubstr("fill of 1 bytes writes"), HasSubstr("1 bytes at byte 399 of")));
  EXPECT_EQ(espalier::emulator::forgetFaults(), 1);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(other), CUDA_SUCCESS);
}

TEST_F(Driver, TheLegacyStreamWaitsForBlockingOnes) {
  CUdeviceptr data = allocate(400);
  CUstream blocking;
  ASSERT_EQ(cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(data, 0, 400, blocking), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 1, 100, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(launchAdd(data, 1, 100, blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 2), std::vector<int>(2, 2));
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, KernelsThatLeaveTheirMemoryBreakTheContext) {
  CUdeviceptr data = allocate(256);
  testing::internal::CaptureStderr();
  EXPECT_EQ(launchAdd(data, 1, 65, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("kernel add, line 19: ld.global.u32 (block 1,0,0, thread 0) reads 4 bytes at"));
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(espalier::emulator::forgetFaults(), 1);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, RefusesWhatTheRealOneRefuses) {
  CUdeviceptr data = allocate(256);
  size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc(&more, free + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&more, 1), CUDA_SUCCESS); // allocates a whole page
  size_t left = 0;
  EXPECT_EQ(cuMemGetInfo(&left, &total), CUDA_SUCCESS);
  EXPECT_EQ(free - left, size_t(2) << 20);
  EXPECT_EQ(cuMemFree(more), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&more, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(data + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launchAdd(data, 1, 10, first, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launchAdd(data, 1, 0, first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launchAdd(data, 1, 10, reinterpret_cast<CUstream>(&data)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemsetD8Async(data, 0, 257, first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(data + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(first)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_VALUE); // already freed
}

TEST_F(Driver, LoadsTextsAndReportsTheirErrors) {
  std::string bad = text;
  bad.replace(bad.find("add.s32 %r7"), 7, "foo.s32");
  char log[200] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *settings[] = {log, reinterpret_cast<void *>(sizeof log)};
  CUlibrary other = nullptr;
  EXPECT_EQ(cuLibraryLoadData(&other, bad.c_str(), options, settings, 2, nullptr, nullptr, 0), CUDA_ERROR_INVALID_PTX);
  EXPECT_STREQ(log, "kernel add, line 21: opcode foo.s32 is not known");
  bad = text;
  bad.replace(bad.find(".version 8.0"), 12, ".version 9.1");
  EXPECT_EQ(cuLibraryLoadData(&other, bad.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  bad = text;
  bad.replace(bad.find("sm_80"), 5, "sm_90");
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, bad.c_str(), 0, nullptr, nullptr), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuModuleLoadDataEx(&module, text, 0, nullptr, nullptr), CUDA_SUCCESS);
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module, "none"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
  int threads = 0;
  EXPECT_EQ(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function), CUDA_SUCCESS);
  EXPECT_EQ(threads, 64);
  EXPECT_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 163 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 163 * 1024 + 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(Driver, LargeSharedMemoryNeedsAnAttribute) {
  CUdeviceptr data = allocate(256);
  long by = 0, n = 1;
  void *parameters[] = {&data, &by, &n};
  EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 65536, first, parameters, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 65536, first, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, CopiesRows) {
  CUdeviceptr data = allocate(64);
  std::vector<int> host = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(cuMemsetD32(data, 9, 16), CUDA_SUCCESS);
  CUDA_MEMCPY2D plan = {};
  plan.srcMemoryType = CU_MEMORYTYPE_HOST;
  plan.srcHost = host.data();
  plan.srcPitch = 12;
  plan.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plan.dstDevice = data;
  plan.dstPitch = 16;
  plan.dstXInBytes = 4;
  plan.dstY = 1;
  plan.WidthInBytes = 12;
  plan.Height = 2;
  EXPECT_EQ(cuMemcpy2DAsync(&plan, first), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 16), (std::vector<int>{9, 9, 9, 9, 9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
  for (size_t pitch : {size_t(8), size_t(1) << 31}) {
    plan.dstPitch = pitch;
    EXPECT_EQ(cuMemcpy2DAsync(&plan, first), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, CopiesThatOverlapAreAFault) {
  CUdeviceptr data = allocate(64);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuMemcpyDtoDAsync(data + 8, data, 8, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoDAsync(data + 4, data, 8, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(first), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("copy of 8 bytes on the device: what it writes overlaps what it reads"));
  EXPECT_EQ(espalier::emulator::forgetFaults(), 1);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(Driver, FindsItsCallsByName) {
  void *call = nullptr;
  CUdriverProcAddressQueryResult found;
  EXPECT_EQ(cuGetProcAddress("cuMemAlloc", &call, 13000, 0, &found), CUDA_SUCCESS);
  EXPECT_EQ(call, reinterpret_cast<void *>(&cuMemAlloc));
  EXPECT_EQ(cuGetProcAddress("cuNothing", &call, 13000, 0, &found), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

// As with the real driver, state from before a fork is lost in the child.
TEST_F(Driver, DoesNotSurviveAFork) {
  pid_t child = fork();
  if (child == 0)
    _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuCtxSetCurrent(context) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

// Devices share neither memory nor streams nor code. Using another device's objects is an error or a fault. The program
// is restarted, because this process has only one device.
TEST(DriverOfTwoDevices, KeepsThemApart) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto program = [] {
    setenv("ESPALIER_EMULATOR_DEVICES", "2", /*overwrite=*/1);
    CUcontext contexts[2];
    CUstream streams[2];
    CUevent event;
    CUlibrary library;
    CUkernel kernel;
    CUfunction add;
    CUdeviceptr data;
    cuInit(0);
    for (int number : {0, 1}) {
      cuDevicePrimaryCtxRetain(&contexts[number], number);
      cuCtxSetCurrent(contexts[number]);
      cuStreamCreate(&streams[number], CU_STREAM_NON_BLOCKING);
    }
    cuCtxSetCurrent(contexts[0]);
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    cuMemAlloc(&data, 8);
    cuMemsetD8Async(data, 0, 8, streams[0]);
    cuStreamSynchronize(streams[0]);
    EXPECT_EQ(cuEventRecord(event, streams[1]), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventRecord(event, streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(streams[1], event, 0), CUDA_SUCCESS);
    cuCtxSetCurrent(contexts[1]);
    cuLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0);
    cuLibraryGetKernel(&kernel, library, "add");
    cuKernelGetFunction(&add, kernel);
    long by = 1, n = 2;
    void *parameters[] = {&data, &by, &n};
    EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, streams[0], parameters, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, streams[1], parameters, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(streams[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(program(), testing::ExitedWithCode(70), "work of device 1 touches memory of device 0: byte 0 of");
}

// A program that ignores status codes still fails. The program is restarted, because the fault would disable this
// driver.
TEST(DriverAtExit, FaultsEndTheProcessBadly) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto program = [] {
    CUcontext context;
    CUdeviceptr data;
    CUstream streams[2];
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuMemAlloc(&data, 8);
    for (CUstream &stream : streams) {
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      cuMemsetD8Async(data, 0, 8, stream);
    }
    cuCtxSynchronize();
    std::exit(0);
  };
  EXPECT_EXIT(program(), testing::ExitedWithCode(70), "1 fault in this process");
}

} // namespace
