// Loads the driver, cuBLASLt and NCCL at run time. The runtime is not linked against them, so the same binary starts on
// machines without a GPU.
#pragma once

#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/status.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// An opened shared library. It stays open until the process ends, because drivers do not support dlclose().
class Library {
public:
  /// Tries each of `names` in the loader's search path, then in each of `folders`. `what` names the library in
  /// messages. Throws PlanError if no file is found.
  Library(std::string what, std::span<const std::string> names, std::span<const std::string> folders);

  /// Returns null if the symbol is missing.
  void *find(const char *symbol) const;
  /// Throws PlanError if the symbol is missing.
  void *resolve(const char *symbol) const;
  /// Returns the path of the opened file.
  const std::string &path() const { return file; }

private:
  std::string what, file;
  void *handle = nullptr;
};

/// Returns the folders outside of the loader's search path in which pip, conda and NVIDIA's packages install libraries:
/// toolkit folders, and site-packages of each python found in PATH.
std::vector<std::string> libraryFolders();

#define DRIVER_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
/// The driver's functions for error texts, and its status type.
struct DriverTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = CUresult;
  static constexpr Status success = CUDA_SUCCESS;
  std::string text(Status status) const;
};

#define DRIVER(symbol, parameters) Call<DriverTexts, void parameters> symbol;
/// The driver's functions. Throws PlanError if the driver is missing or too old.
struct Driver : DriverTexts {
  explicit Driver(std::span<const std::string> names = {});
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  int version = 0; ///< 13000: CUDA 13.0
};

/// Returns the cuBLASLt names usable with this CUDA version, newest first. Later major versions need a newer driver.
std::vector<std::string> cublasLtNames(int driverVersion);

#define CUBLASLT_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
/// cuBLASLt's functions for error texts, and its status type.
struct CublasLtTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = cublasStatus_t;
  static constexpr Status success = CUBLAS_STATUS_SUCCESS;
  std::string text(Status status) const;
};

#define CUBLASLT(symbol, parameters) Call<CublasLtTexts, void parameters> symbol;
/// cuBLASLt's functions. Throws PlanError if it is missing or too old.
struct CublasLt : CublasLtTexts {
  explicit CublasLt(std::span<const std::string> names = {});
  CublasLt(const CublasLt &) = delete;
  CublasLt &operator=(const CublasLt &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  size_t version = 0; ///< 130100: 13.1.0
};

#define NCCL_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
/// NCCL's functions for error texts, and its status type.
struct NcclTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = ncclResult_t;
  static constexpr Status success = ncclSuccess;
  std::string text(Status status) const;
};

#define NCCL(symbol, parameters) Call<NcclTexts, void parameters> symbol;
/// NCCL's functions, for plans of several ranks. The constructor sets environment defaults: one summation order, and
/// operations of all communicators in issue order. Throws PlanError if NCCL is missing or too old.
struct Nccl : NcclTexts {
  explicit Nccl(std::span<const std::string> names = {});
  Nccl(const Nccl &) = delete;
  Nccl &operator=(const Nccl &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  int version = 0; ///< 22809: 2.28.9
};

/// The first NCCL version that lets several ranks use one device.
inline constexpr int oldestSharingNccl = 23000;

/// Formats a version number of cuBLASLt or NCCL: "13.1.0" for 130100.
std::string versionText(size_t version);

} // namespace espalier::rt::cuda
