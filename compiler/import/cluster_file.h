// A file of configs/clusters on its own, for those who price without a run file.
#pragma once

#include "compiler/import/diagnostics.h"
#include "compiler/import/run_config.h"
#include "runtime/plan.pb.h"

#include <optional>
#include <string>

namespace espalier {

/// The constants of a cluster by its name or file, with the peak for products of that type. Faults, and constants of a
/// device that are missing, go to `diagnostics`; nothing when there is no such file.
std::optional<ClusterConfig> readClusterFile(const std::string &name, DType compute, Diagnostics &diagnostics);

/// As run files have it: plan.proto's name in lower case.
std::string epilogueName(rt::pb::LibraryCall::Epilogue epilogue);

/// A product by its sizes and types, as matmul_algorithms names it: "BF16 [16384, 2048] by BF16 [8192, 2048]' to BF16,
/// bias". What is stored transposed has a prime.
std::string productName(const rt::pb::Plan &plan, const rt::pb::LibraryCall &call);

} // namespace espalier
