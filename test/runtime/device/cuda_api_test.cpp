// Compares api.h and symbols.def with NVIDIA's headers: values, layouts and signatures. Most assertions are checked
// when this file is compiled.
#include <cublasLt.h>
#include <cuda.h>
#ifdef ESPALIER_NCCL_HEADER
#include <nccl.h>
#endif

#include "runtime/device/cuda/api.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <type_traits>

namespace espalier::rt::cuda {
namespace {

template <typename Type>
concept IsComplete = requires { sizeof(Type); };

/// Whether a caller can use two types interchangeably: numbers of equal size, structs of equal size, and pointers to
/// such types. A type that is declared but not defined on our side agrees with any struct.
template <typename Ours, typename Theirs> struct Agree {
  static constexpr bool isNumber =
      (std::is_enum_v<Ours> || std::is_integral_v<Ours>) && (std::is_enum_v<Theirs> || std::is_integral_v<Theirs>);
  static constexpr bool sizes() {
    if constexpr (IsComplete<Ours> && IsComplete<Theirs>)
      return sizeof(Ours) == sizeof(Theirs);
    return IsComplete<Theirs>;
  }
  static constexpr bool value = std::is_same_v<Ours, Theirs> || (isNumber && sizes()) ||
                                (std::is_class_v<Ours> && std::is_class_v<Theirs> && sizes());
};
template <typename Ours, typename Theirs> struct Agree<Ours *, Theirs *> {
  static constexpr bool value = std::is_const_v<Ours> == std::is_const_v<Theirs> &&
                                Agree<std::remove_const_t<Ours>, std::remove_const_t<Theirs>>::value;
};
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
struct Agree<OurResult(Ours...), TheirResult(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return Agree<OurResult, TheirResult>::value && (Agree<Ours, Theirs>::value && ...);
    return false;
  }();
};

#ifdef ESPALIER_NCCL_HEADER
/// Our struct may be shorter, because it ends where the struct of the oldest supported library ends.
template <> struct Agree<ncclConfig_t, ::ncclConfig_t> {
  static constexpr bool value = sizeof(ncclConfig_t) <= sizeof(::ncclConfig_t);
};
#endif

// The assertions detect differences.
static_assert(!Agree<int(int), int(int, int)>::value);
static_assert(!Agree<int(unsigned), int(size_t)>::value);
static_assert(!Agree<int(const char *), int(char *)>::value);
static_assert(!Agree<int(CUstream), int(CUevent)>::value);
static_assert(!Agree<CUDA_MEMCPY2D *, CUlaunchConfig *>::value);

#define DRIVER_TEXT(symbol, result, parameters) static_assert(Agree<result parameters, decltype(::symbol)>::value);
#define DRIVER(symbol, parameters) static_assert(Agree<CUresult parameters, decltype(::symbol)>::value);
#define CUBLASLT_TEXT(symbol, result, parameters) static_assert(Agree<result parameters, decltype(::symbol)>::value);
#define CUBLASLT(symbol, parameters) static_assert(Agree<cublasStatus_t parameters, decltype(::symbol)>::value);
#define CONSTANT(type, name, value) static_assert(static_cast<long>(::name) == value);
#ifdef ESPALIER_NCCL_HEADER
#define NCCL_TEXT(symbol, result, parameters) static_assert(Agree<result parameters, decltype(::symbol)>::value);
#define NCCL(symbol, parameters) static_assert(Agree<ncclResult_t parameters, decltype(::symbol)>::value);
#define NCCL_CONSTANT(type, name, value) static_assert(static_cast<long>(::name) == value);
#endif
#include "runtime/device/cuda/symbols.def"

#define SAME_PLACE(type, field)                                                                                        \
  static_assert(offsetof(type, field) == offsetof(::type, field) && sizeof(type::field) == sizeof(::type::field));

SAME_PLACE(CUDA_MEMCPY2D, srcXInBytes)
SAME_PLACE(CUDA_MEMCPY2D, srcY)
SAME_PLACE(CUDA_MEMCPY2D, srcMemoryType)
SAME_PLACE(CUDA_MEMCPY2D, srcHost)
SAME_PLACE(CUDA_MEMCPY2D, srcDevice)
SAME_PLACE(CUDA_MEMCPY2D, srcArray)
SAME_PLACE(CUDA_MEMCPY2D, srcPitch)
SAME_PLACE(CUDA_MEMCPY2D, dstXInBytes)
SAME_PLACE(CUDA_MEMCPY2D, dstY)
SAME_PLACE(CUDA_MEMCPY2D, dstMemoryType)
SAME_PLACE(CUDA_MEMCPY2D, dstHost)
SAME_PLACE(CUDA_MEMCPY2D, dstDevice)
SAME_PLACE(CUDA_MEMCPY2D, dstArray)
SAME_PLACE(CUDA_MEMCPY2D, dstPitch)
SAME_PLACE(CUDA_MEMCPY2D, WidthInBytes)
SAME_PLACE(CUDA_MEMCPY2D, Height)
SAME_PLACE(CUlaunchConfig, gridDimX)
SAME_PLACE(CUlaunchConfig, gridDimY)
SAME_PLACE(CUlaunchConfig, gridDimZ)
SAME_PLACE(CUlaunchConfig, blockDimX)
SAME_PLACE(CUlaunchConfig, blockDimY)
SAME_PLACE(CUlaunchConfig, blockDimZ)
SAME_PLACE(CUlaunchConfig, sharedMemBytes)
SAME_PLACE(CUlaunchConfig, hStream)
SAME_PLACE(CUlaunchConfig, attrs)
SAME_PLACE(CUlaunchConfig, numAttrs)
SAME_PLACE(cublasLtMatmulAlgo_t, data)
SAME_PLACE(cublasLtMatmulHeuristicResult_t, algo)
SAME_PLACE(cublasLtMatmulHeuristicResult_t, workspaceSize)
SAME_PLACE(cublasLtMatmulHeuristicResult_t, state)
SAME_PLACE(cublasLtMatmulHeuristicResult_t, wavesCount)
SAME_PLACE(cublasLtMatmulHeuristicResult_t, reserved)
#ifdef ESPALIER_NCCL_HEADER
SAME_PLACE(ncclConfig_t, size)
SAME_PLACE(ncclConfig_t, magic)
SAME_PLACE(ncclConfig_t, version)
SAME_PLACE(ncclConfig_t, blocking)
SAME_PLACE(ncclConfig_t, cgaClusterSize)
SAME_PLACE(ncclConfig_t, minCTAs)
SAME_PLACE(ncclConfig_t, maxCTAs)
SAME_PLACE(ncclConfig_t, netName)
SAME_PLACE(ncclConfig_t, splitShare)
SAME_PLACE(ncclUniqueId, internal)
#endif

constexpr const char *driverSymbols[] = {
#define DRIVER_TEXT(symbol, result, parameters) #symbol,
#define DRIVER(symbol, parameters) #symbol,
#include "runtime/device/cuda/symbols.def"
};
constexpr const char *cublasLtSymbols[] = {
#define CUBLASLT_TEXT(symbol, result, parameters) #symbol,
#define CUBLASLT(symbol, parameters) #symbol,
#include "runtime/device/cuda/symbols.def"
};
constexpr const char *ncclSymbols[] = {
#define NCCL_TEXT(symbol, result, parameters) #symbol,
#define NCCL(symbol, parameters) #symbol,
#include "runtime/device/cuda/symbols.def"
};

/// Skips the test if the toolkit does not contain the library.
void expectSymbols(const char *file, std::span<const char *const> symbols) {
  void *library = dlopen((std::string(CUDA_HEADERS) + "/../" + file).c_str(), RTLD_LAZY);
  if (!library)
    GTEST_SKIP() << dlerror();
  for (const char *symbol : symbols)
    EXPECT_TRUE(dlsym(library, symbol)) << symbol;
  EXPECT_FALSE(dlsym(library, "cuLibraryLoadDatum"));
}

TEST(CudaApi, TheDriverExportsEverySymbol) { expectSymbols("lib64/stubs/libcuda.so", driverSymbols); }

TEST(CudaApi, CublasLtExportsEverySymbol) { expectSymbols("lib64/libcublasLt.so", cublasLtSymbols); }

TEST(CudaApi, NcclExportsEverySymbol) { expectSymbols("lib/libnccl.so.2", ncclSymbols); }

} // namespace
} // namespace espalier::rt::cuda
