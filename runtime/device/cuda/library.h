// Finds the driver, cuBLASLt and NCCL at run time: nothing here is linked against them, so that the same binary starts
// on machines without a GPU.
#pragma once

#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/status.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// An opened shared library. It stays open to the end of the process: drivers do not survive being closed.
class Library {
public:
  /// Tries each of `names` where the loader looks, then in each of `folders`. Throws PlanError: `what` names the
  /// library to people.
  Library(std::string what, std::span<const std::string> names, std::span<const std::string> folders);

  /// Null where it has no such symbol.
  void *find(const char *symbol) const;
  /// Throws PlanError where it has no such symbol.
  void *resolve(const char *symbol) const;
  /// The file that was opened.
  const std::string &path() const { return file; }

private:
  std::string what, file;
  void *handle = nullptr;
};

/// Where pip, conda and NVIDIA's packages put libraries, besides the loader's own places: the folders of the toolkit,
/// and site-packages of each python found through PATH.
std::vector<std::string> libraryFolders();

#define DRIVER_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
struct DriverTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = CUresult;
  static constexpr Status success = CUDA_SUCCESS;
  std::string text(Status status) const;
};

#define DRIVER(symbol, parameters) Call<DriverTexts, void parameters> symbol;
/// The driver's functions. Throws PlanError where it is missing or too old.
struct Driver : DriverTexts {
  explicit Driver(std::span<const std::string> names = {});
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  int version = 0; ///< 13000: CUDA 13.0
};

/// Of the libraries that run on a driver for that version of CUDA, newest first: one of a later major version does not.
std::vector<std::string> cublasLtNames(int driverVersion);

#define CUBLASLT_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
struct CublasLtTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = cublasStatus_t;
  static constexpr Status success = CUBLAS_STATUS_SUCCESS;
  std::string text(Status status) const;
};

#define CUBLASLT(symbol, parameters) Call<CublasLtTexts, void parameters> symbol;
/// cuBLASLt's functions. Throws PlanError where it is missing or too old.
struct CublasLt : CublasLtTexts {
  explicit CublasLt(std::span<const std::string> names = {});
  CublasLt(const CublasLt &) = delete;
  CublasLt &operator=(const CublasLt &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  size_t version = 0; ///< 130100: 13.1.0
};

#define NCCL_TEXT(symbol, result, parameters) result(*symbol) parameters = nullptr;
struct NcclTexts {
#include "runtime/device/cuda/symbols.def"
  using Status = ncclResult_t;
  static constexpr Status success = ncclSuccess;
  std::string text(Status status) const;
};

#define NCCL(symbol, parameters) Call<NcclTexts, void parameters> symbol;
/// NCCL's functions, for plans of several ranks. Throws PlanError where it is missing or too old. It is told to sum in
/// one order and to start what its communicators do in the order of issue, unless the environment says otherwise.
struct Nccl : NcclTexts {
  explicit Nccl(std::span<const std::string> names = {});
  Nccl(const Nccl &) = delete;
  Nccl &operator=(const Nccl &) = delete;
#include "runtime/device/cuda/symbols.def"
  Library library;
  int version = 0; ///< 22809: 2.28.9
};

/// The first NCCL that lets several ranks use one device.
inline constexpr int oldestSharingNccl = 23000;

/// As cuBLASLt and NCCL count: "13.1.0" for 130100.
std::string versionText(size_t version);

} // namespace espalier::rt::cuda
