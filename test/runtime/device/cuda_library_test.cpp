// Tests the errors if the driver, cuBLASLt or NCCL is missing, too old or incomplete.
#include "runtime/device/cuda/library.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/status.h"

#include <gmock/gmock.h>

namespace espalier::rt::cuda {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Returns the PlanError that `work` throws, or an empty string.
template <typename Work> std::string errorOf(Work work) {
  try {
    work();
  } catch (const PlanError &error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> doubleOf(const char *name) {
  return {std::string(ESPALIER_BINARY_DIR) + "/test/lib/" + name + ".so"};
}

template <typename Opened> std::string opening(const std::vector<std::string> &names) {
  return errorOf([&] { Opened{names}; });
}

TEST(CudaLibrary, ReportsAMissingDriverWithTheLoadersError) {
  EXPECT_THAT(opening<Driver>({"libno_driver.so.1"}),
              StartsWith("the plan is for CUDA and needs the NVIDIA driver: libno_driver.so.1: cannot open"));
}

TEST(CudaLibrary, ReportsAMissingCublasLtWithTheSearchedFolders) {
  std::vector<std::string> names = {"libno_blas.so.13", "libno_blas.so.12"}, folders = {"/none", "/nowhere"};
  EXPECT_THAT(errorOf([&] { Library("cuBLASLt", names, folders); }),
              AllOf(StartsWith("the plan is for CUDA and needs cuBLASLt: libno_blas.so.13: cannot open"),
                    EndsWith("; nor is it in /none, /nowhere")));
}

/// A library of CUDA 13 does not start on a driver for CUDA 12, but a library of CUDA 12 starts on a driver for CUDA
/// 13.
TEST(CudaLibrary, CublasLtIsNoNewerThanTheDriver) {
  EXPECT_THAT(cublasLtNames(12040), testing::ElementsAre("libcublasLt.so.12"));
  EXPECT_THAT(cublasLtNames(13010), testing::ElementsAre("libcublasLt.so.13", "libcublasLt.so.12"));
  EXPECT_THAT(cublasLtNames(14000), testing::ElementsAre("libcublasLt.so.13", "libcublasLt.so.12"));
}

TEST(CudaLibrary, TriesTheSecondNameAndTheFolders) {
  std::vector<std::string> names = {"libno_blas.so.13", "cuda_old_driver.so"};
  std::vector<std::string> folders = {"/none", std::string(ESPALIER_BINARY_DIR) + "/test/lib"};
  EXPECT_THAT(Library("cuBLASLt", names, folders).path(), EndsWith("/test/lib/cuda_old_driver.so"));
}

TEST(CudaLibrary, RejectsAnOldDriverWithBothVersions) {
  EXPECT_THAT(opening<Driver>(doubleOf("cuda_old_driver")),
              EndsWith("is for CUDA 11.4, the plan needs one for CUDA 12.0 or newer"));
}

TEST(CudaLibrary, RejectsAnOldCublasLtWithBothVersions) {
  EXPECT_THAT(opening<CublasLt>(doubleOf("cuda_old_driver")),
              EndsWith("has version 110400, the plan needs 120000 or newer"));
}

TEST(CudaLibrary, RejectsAnOldNcclWithBothVersions) {
  EXPECT_THAT(opening<Nccl>(doubleOf("cuda_old_driver")),
              EndsWith("cuda_old_driver.so) has version 2.20.80, the plan needs 2.26.0 or newer"));
}

TEST(CudaLibrary, ReportsAMissingNccl) {
  EXPECT_THAT(opening<Nccl>({"libno_nccl.so.2"}),
              StartsWith("the plan is for CUDA and needs NCCL: libno_nccl.so.2: cannot open"));
}

TEST(CudaLibrary, ReportsNcclsErrorWithoutAVersion) {
  EXPECT_THAT(opening<Nccl>(doubleOf("cuda_broken_driver")),
              EndsWith("does not report its version: out of order: a link is down"));
}

TEST(CudaLibrary, ReportsTheDriversErrorWithoutAVersion) {
  EXPECT_THAT(opening<Driver>(doubleOf("cuda_broken_driver")), EndsWith("does not report its version: out of order"));
}

TEST(CudaLibrary, ReportsAMissingSymbol) {
  EXPECT_THAT(opening<Driver>(doubleOf("cuda_empty_driver")),
              AllOf(HasSubstr("cuda_empty_driver.so) lacks cuInit"), StartsWith("the NVIDIA driver")));
  EXPECT_THAT(opening<CublasLt>(doubleOf("cuda_empty_driver")), HasSubstr("lacks cublasLtCreate"));
  EXPECT_THAT(opening<Nccl>(doubleOf("cuda_new_nccl")), HasSubstr("lacks ncclGetUniqueId"));
}

// Errors name epilogues as users write them.
TEST(CudaLibrary, NamesEpiloguesAsPlansDo) {
  for (int number = 0; number < pb::LibraryCall::Epilogue_ARRAYSIZE; ++number) {
    auto epilogue = static_cast<Epilogue>(number);
    EXPECT_STRCASEEQ(nameOf(epilogue), pb::LibraryCall::Epilogue_Name(epilogue).c_str());
  }
}

} // namespace
} // namespace espalier::rt::cuda
