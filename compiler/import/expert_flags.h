// The flags of Megatron-LM's mixtures of experts as keys of a run file.
#pragma once

#include "compiler/import/given_flags.h"
#include "compiler/import/run_file_writer.h"

namespace espalier {

/// parallel_config.expert_parallel. `replicas` are those of the whole model, among which experts are spread.
void writeExpertSplit(GivenFlags &given, RunFileWriter &yaml, int64_t tensorRanks, int64_t replicas);

/// moe_config: experts, how tokens choose among them and how they are balanced. Megatron's defaults are written only if
/// `statesModel`; otherwise those of the base hold. What is not built is an error at its flag.
void writeRouting(GivenFlags &given, RunFileWriter &yaml, int64_t layers, bool statesModel);

} // namespace espalier
