// The files of a tokenizer under the names of transformers, so that they are kept beside data and weights. The kind of
// tokenizer follows from the names.
#pragma once

#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// A small file that is kept beside others.
struct SideFile {
  std::string name; ///< relative to its folder, with at most one folder: "models/llama.yaml"
  std::string bytes;
};

/// Returns the names of the files of tokenizers, and of generation_config.json.
std::span<const char *const> tokenizerFileNames();

/// Returns the files of a folder that have these names. Throws DataError if one is unreadable.
std::vector<SideFile> tokenizerFilesIn(const std::filesystem::path &folder);

/// Returns the options of the tokenizer whose files a folder holds, or nothing if it holds none. Text is encoded as
/// transformers encodes it: `add_bos_token` of tokenizer_config.json decides about tokens that begin a text.
std::optional<TokenizerOptions> tokenizerIn(const std::filesystem::path &folder);

/// Returns the files of a tokenizer. tokenizer_config.json gets what the tokenizer's own file lacks for transformers,
/// the template of `chat` if one is given, and the way in which `options` begin a text. Returns nothing for the kind
/// null. Throws DataError.
std::vector<SideFile> tokenizerFilesOf(const TokenizerOptions &options, const ChatTemplatePtr &chat = nullptr);

/// Returns the files of a tokenizer whose first 256 ids are the bytes. `endsDocuments`: id 256 is <|endoftext|>.
std::vector<SideFile> byteTokenizerFiles(bool endsDocuments);

/// Returns the folder of the tokenizer that made an indexed dataset.
std::filesystem::path tokenizerFolderOf(const std::string &dataPrefix);

/// Writes files into a folder, which may exist; its other files of these names are removed. Throws DataError.
void writeTokenizerFolder(const std::filesystem::path &folder, const std::vector<SideFile> &files);

} // namespace espalier::rt
