// GPT-2's tokenizer from vocab.json and merges.txt. As in Megatron, "<|endoftext|>" in a document is plain text and
// becomes seven ids. With `specialTokens` it becomes one id, as in HF's tokenizers.
#include "messages/data_error.h"
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/byte_level_encoder.h"
#include "runtime/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

namespace {

constexpr uint64_t largestModelFile = uint64_t{1} << 30;
constexpr std::string_view endOfText = "<|endoftext|>";

class Gpt2Tokenizer final : public Tokenizer {
public:
  Gpt2Tokenizer(std::shared_ptr<const BpeVocabulary> tables, std::string file, bool special)
      : vocabulary(std::move(tables)), fileName(std::move(file)), recognizesSpecial(special),
        encoder(vocabulary, /*takesWholeWords=*/false) {}

  void encode(std::string_view text, std::vector<int32_t> &ids) override {
    size_t at = 0;
    while (recognizesSpecial && eodToken() >= 0) {
      size_t found = text.find(endOfText, at);
      if (found == std::string_view::npos)
        break;
      encoder.encodeText(text.substr(at, found - at), ids);
      ids.push_back(eodToken());
      at = found + endOfText.size();
    }
    encoder.encodeText(text.substr(at), ids);
  }
  std::string decode(std::span<const int32_t> ids) const override {
    return decodeByteLevel(*vocabulary, ids, fileName);
  }
  int64_t vocabSize() const override { return vocabulary->size(); }
  bool hasToken(int32_t id) const override { return vocabulary->hasToken(id); }
  int32_t eodToken() const override { return vocabulary->idOf(std::string(endOfText)); }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<Gpt2Tokenizer>(vocabulary, fileName, recognizesSpecial);
  }

private:
  std::shared_ptr<const BpeVocabulary> vocabulary;
  std::string fileName;
  bool recognizesSpecial;
  ByteLevelEncoder encoder;
};

} // namespace

std::unique_ptr<Tokenizer> openGpt2Tokenizer(const TokenizerOptions &options) {
  if (options.vocabFile.empty() || options.mergeFile.empty())
    throw DataError("tokenizer gpt2", "needs --vocab-file and --merge-file");
  std::string text = readWholeFile(options.vocabFile, largestModelFile);
  auto vocabulary = std::make_shared<BpeVocabulary>(
      BpeVocabulary::fromJson(options.vocabFile, parseJsonFile(options.vocabFile, text)));
  vocabulary->addMergeLines(options.mergeFile, readWholeFile(options.mergeFile, largestModelFile));
  std::array<int32_t, 256> bytes = vocabulary->byteIds();
  for (int byte = 0; byte < 256; ++byte)
    if (bytes[byte] < 0)
      throw DataError(options.vocabFile,
                      fmt::format("no token for byte {:#04x}; this is no byte-level vocabulary", byte));
  return std::make_unique<Gpt2Tokenizer>(std::move(vocabulary), options.vocabFile, options.specialTokens);
}

} // namespace espalier::rt
