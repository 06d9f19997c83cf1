// A parsed tokenizer.json, or the equivalent of another file.
#pragma once

#include "runtime/tokenizer/hf_model.h"
#include "runtime/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <set>

namespace espalier::rt {

/// The parsed file, shared between threads. Steps hold scratch memory, so each thread builds its own steps from `json`.
struct HfFile {
  std::string name;
  nlohmann::json json; // without the model, which is in `model`
  HfModel model;
  int32_t eodId = -1;
  std::set<int32_t> marks;             // the special tokens
  std::vector<int32_t> prefix, suffix; // tokens that the post-processor adds
};

/// Creates a tokenizer. With `addsFrame`, a text gets `prefix` and `suffix`. Throws DataError.
std::unique_ptr<Tokenizer> makeHfTokenizer(std::shared_ptr<const HfFile> file, bool addsFrame);

} // namespace espalier::rt
