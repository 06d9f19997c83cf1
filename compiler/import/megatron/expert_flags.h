// Converts Megatron-LM's mixture-of-experts flags to keys of a run file.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

namespace espalier {

/// Writes parallel_config.expert_parallel. `replicas` is the number of model replicas, over which experts are
/// distributed. Returns the ranks of our ep axis, which divide `replicas`; 1 if the flags are refused.
int64_t writeExpertSplit(GivenFlags &given, RunFileWriter &yaml, int64_t tensorRanks, int64_t replicas);

/// Returns whether the script has the router of DeepSeek-V3, whose architectures here are glm4_moe and deepseek_v3.
bool hasBiasedRouter(const GivenFlags &given);

/// Writes moe_config: experts, routing and load balancing. Megatron's defaults are written only if `statesModel`;
/// otherwise those of the base apply. A feature that is not implemented is an error at its flag.
void writeRouting(GivenFlags &given, RunFileWriter &yaml, int64_t layers, bool statesModel);

} // namespace espalier
