// GGUF, the file of llama.cpp: keys with typed values, then tensors whose fastest axis comes first.
#pragma once

#include "runtime/checkpoint/convert/convert.h"

#include <variant>

namespace espalier::rt {

/// The element types that are written. The values are those of the format.
enum class GgufType : uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

/// A value of a key.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

/// Writes a file, completely or not at all. Matrices have elements of `type`; vectors and the router have f32, and
/// matrices whose rows are not a multiple of 32 have f16 in place of q8_0.
void writeGguf(const std::filesystem::path &file, GgufKeys keys, std::span<const WrittenTensor> tensors, GgufType type);

/// Returns the keys of a tokenizer: its model, tokens, types, merges or scores, special tokens and chat template.
/// `rows` is the number of rows of the token table; rows without a token are filled up. Without files, the keys say
/// that the file has no tokenizer. Throws PlanError for a tokenizer that llama.cpp does not have.
GgufKeys ggufTokenizer(const std::vector<SideFile> &files, int64_t rows);

/// Returns the regular expression of a pre-tokenizer that llama.cpp names, or nothing.
std::string ggufPattern(const std::string &preTokenizer);

/// Returns the files of the tokenizer that a GGUF file holds, under the names of transformers. If it holds none or one
/// that is not known, prints a note and returns nothing. Throws PlanError if its keys contradict each other.
std::vector<SideFile> tokenizerFilesInGguf(const std::filesystem::path &file);

/// The rules of a model for GGUF.
struct GgufRules {
  std::string architecture; ///< llama.cpp's name
  std::vector<NameRule> tensors;
  bool normsFromOne = false; ///< weights of norms have 1 added
};
/// Throws PlanError for a model that llama.cpp does not have.
GgufRules ggufRules(const ConvertedModel &model);

/// Writes the weights of a checkpoint as one file of llama.cpp. `config` is the text of config.json. Throws PlanError
/// for a model that llama.cpp does not have or that it would compute otherwise.
void convertToGguf(const ConvertedModel &model, const std::filesystem::path &source,
                   const std::filesystem::path &target, const std::string &config, const std::vector<SideFile> &files,
                   GgufType type);

} // namespace espalier::rt
