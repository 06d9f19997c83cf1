// The two tokenizers that need no file, and the selection of a tokenizer by name.
#include "messages/data_error.h"
#include "runtime/tokenizer/tokenizer.h"

#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {

namespace {

class ByteTokenizer final : public Tokenizer {
public:
  void encode(std::string_view text, std::vector<int32_t> &ids) override {
    ids.reserve(ids.size() + text.size());
    for (char c : text)
      ids.push_back(static_cast<uint8_t>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids) {
      if (id < 0 || id > eodToken())
        throw DataError("bytes", fmt::format("id {}, want 0 to {}", id, eodToken()));
      if (id != eodToken())
        text += static_cast<char>(id);
    }
    return text;
  }
  int64_t vocabSize() const override { return 257; }
  int32_t eodToken() const override { return 256; }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<ByteTokenizer>(); }
};

class NullTokenizer final : public Tokenizer {
public:
  explicit NullTokenizer(int64_t ids) : size(ids) {}
  void encode(std::string_view text, std::vector<int32_t> &ids) override {
    size_t at = 0;
    while (true) {
      at = text.find_first_not_of(" \t\r\n", at);
      if (at == std::string_view::npos)
        return;
      size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
      int32_t id = -1;
      auto [rest, fault] = std::from_chars(text.data() + at, text.data() + end, id);
      if (fault != std::errc() || rest != text.data() + end || id < 0 || id >= size)
        throw DataError("null tokenizer", fmt::format("\"{}\" is no id from 0 to {}",
                                                      text.substr(at, std::min<size_t>(end - at, 40)), size - 1));
      ids.push_back(id);
      at = end;
    }
  }
  std::string decode(std::span<const int32_t> ids) const override { return fmt::format("{}", fmt::join(ids, " ")); }
  int64_t vocabSize() const override { return size; }
  int32_t eodToken() const override { return static_cast<int32_t>(size - 1); }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<NullTokenizer>(size); }

private:
  int64_t size;
};

/// A value of Megatron's --tokenizer-type, and the equivalent kind.
struct MegatronName {
  std::string_view name, kind;
  bool addsBos = false;
};
constexpr MegatronName megatronNames[] = {{"GPT2BPETokenizer", "gpt2"},
                                          {"HuggingFaceTokenizer", "hf"},
                                          {"SentencePieceTokenizer", "sentencepiece"},
                                          {"GPTSentencePieceTokenizer", "sentencepiece"},
                                          {"Llama2Tokenizer", "sentencepiece", /*addsBos=*/true}};

} // namespace

TokenizerOptions withOwnKind(TokenizerOptions options) {
  for (const MegatronName &known : megatronNames)
    if (options.kind == known.name) {
      options.kind = known.kind;
      options.addBos |= known.addsBos;
      break;
    }
  return options;
}

std::vector<std::string> tokenizerKinds() {
  std::vector<std::string> kinds = {"gpt2", "hf", "sentencepiece", "tiktoken", "bytes", "null"};
  for (const MegatronName &known : megatronNames)
    kinds.emplace_back(known.name);
  return kinds;
}

std::unique_ptr<Tokenizer> makeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> makeNullTokenizer(int64_t vocabSize) {
  if (vocabSize < 1 || vocabSize > 0x7fffffff)
    throw DataError("null tokenizer", fmt::format("--vocab-size is {}, want 1 to 2147483647", vocabSize));
  return std::make_unique<NullTokenizer>(vocabSize);
}

std::unique_ptr<Tokenizer> openTokenizer(const TokenizerOptions &given) {
  const TokenizerOptions options = withOwnKind(given);
  auto refuse = [&](bool isGiven, const char *option, std::string_view kinds) {
    if (isGiven && kinds.find(options.kind) == std::string_view::npos)
      throw DataError("tokenizer " + options.kind, fmt::format("takes no {}, which is for {}", option, kinds));
  };
  refuse(!options.vocabFile.empty(), "--vocab-file", "gpt2");
  refuse(!options.mergeFile.empty(), "--merge-file", "gpt2");
  refuse(!options.modelFile.empty(), "--tokenizer-model", "hf, sentencepiece and tiktoken");
  refuse(!options.pattern.empty(), "--tiktoken-pattern", "tiktoken");
  refuse(options.vocabSize != 0, "--vocab-size", "null");
  refuse(options.addBos, "--add-bos", "sentencepiece and tiktoken");
  refuse(!options.eodText.empty(), "--eod-token", "hf and tiktoken");
  if (options.kind == "bytes")
    return makeByteTokenizer();
  if (options.kind == "null")
    return makeNullTokenizer(options.vocabSize);
  if (options.kind == "gpt2")
    return openGpt2Tokenizer(options);
  if (options.kind == "hf")
    return openHfTokenizer(options);
  if (options.kind == "sentencepiece")
    return openSentencePieceTokenizer(options);
  if (options.kind == "tiktoken")
    return openTiktokenTokenizer(options);
  throw DataError("tokenizer", fmt::format("kind \"{}\", want {}", options.kind, fmt::join(tokenizerKinds(), ", ")));
}

} // namespace espalier::rt
