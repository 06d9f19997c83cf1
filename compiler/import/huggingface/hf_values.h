// Values of a model that its config.json gives.
#pragma once

#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/huggingface/hf_json.h"
#include "compiler/import/huggingface/hf_rules.h"

namespace espalier {

/// Returns the values that a config.json of the model must have.
Json expectedValues(const HfModel &model, const HfRules &rules);

/// Returns `hf_config:` of the model's file. Reports an error to `diagnostics` if there is none.
std::optional<HfRules> rulesOf(const HfModel &model, Diagnostics &diagnostics);

} // namespace espalier
