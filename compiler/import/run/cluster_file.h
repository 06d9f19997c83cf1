// Reads a file of configs/clusters without a run file.
#pragma once

#include "compiler/import/run/run_config.h"
#include "compiler/import/yaml/diagnostics.h"
#include "format/plan.pb.h"

#include <optional>
#include <string>

namespace espalier {

/// Returns the constants of a cluster by its name or file, with the peak for matrix products of type `compute`. Reports
/// errors and missing device constants to `diagnostics`. Returns nothing if there is no such file.
std::optional<ClusterConfig> readClusterFile(const std::string &name, DType compute, Diagnostics &diagnostics);

/// Returns an epilogue's name in run files: plan.proto's name in lower case.
std::string epilogueName(rt::pb::LibraryCall::Epilogue epilogue);

/// Returns the name of a product in matmul_algorithms: its sizes and types, such as "BF16 [16384, 2048] by BF16 [8192,
/// 2048]' to BF16, bias". A prime marks an operand that is stored transposed.
std::string productName(const rt::pb::Plan &plan, const rt::pb::LibraryCall &call);

} // namespace espalier
