// Each step maps a list of token texts to another list. The remaining texts are concatenated, with spaces between them
// if the file has no decoder.
#include "runtime/tokenizer/hf_decoder.h"

#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/hf_json.h"

#include <cstdlib>
#include <numeric>

namespace espalier::rt {

namespace {

void replaceAll(std::string &text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Returns the byte of a token such as "<0x0A>", or -1.
int byteOf(const std::string &token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return -1;
  char *end = nullptr;
  long value = std::strtol(token.c_str() + 3, &end, 16);
  return end == token.c_str() + 5 ? static_cast<int>(value) : -1;
}

void stripText(std::string &text, const std::string &mark, size_t start, size_t stop) {
  for (size_t k = 0; k < start && text.starts_with(mark); ++k)
    text.erase(0, mark.size());
  for (size_t k = 0; k < stop && text.ends_with(mark); ++k)
    text.resize(text.size() - mark.size());
}

/// Removes the spaces before punctuation and English contractions, as BERT's decoder does.
void cleanUp(std::string &text) {
  constexpr std::pair<const char *, const char *> replaced[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto &[from, to] : replaced)
    replaceAll(text, from, to);
}

/// Joins a token to the text before it, unless it starts a word.
void decodeWordPiece(std::string &token, const std::string &prefix, bool isFirst, bool cleansUp) {
  if (!isFirst && token.starts_with(prefix))
    token.erase(0, prefix.size());
  else if (!isFirst)
    token.insert(0, " ");
  if (cleansUp)
    cleanUp(token);
}

} // namespace

void HfDecoder::add(const std::string &file, const nlohmann::json &step, int depth) {
  std::string type = requiredField<std::string>(file, step, "type");
  if (type == "Sequence" && depth < deepestSequence && step.contains("decoders") && step["decoders"].is_array()) {
    for (const nlohmann::json &one : step["decoders"])
      add(file, one, depth + 1);
  } else if (type == "ByteLevel") {
    steps.push_back({Kind::byteLevel, "", ""});
  } else if (type == "ByteFallback") {
    steps.push_back({Kind::byteFallback, "", ""});
  } else if (type == "Fuse") {
    steps.push_back({Kind::fuse, "", ""});
  } else if (type == "Replace" && !readPattern(file, step).isRegex && !readPattern(file, step).text.empty()) {
    steps.push_back({Kind::replace, readPattern(file, step).text, requiredField<std::string>(file, step, "content")});
  } else if (type == "Strip") {
    auto count = [&](const char *name) {
      return static_cast<size_t>(std::max<int64_t>(0, fieldOr<int64_t>(file, step, name, 0)));
    };
    std::string mark = fieldOr<std::string>(file, step, "content", " ");
    if (mark.empty())
      throw DataError(file, "a Strip decoder without content");
    steps.push_back({Kind::strip, mark, "", count("start"), count("stop")});
  } else if (type == "Metaspace") {
    bool adds = fieldOr(file, step, "add_prefix_space", true);
    std::string scheme = fieldOr<std::string>(file, step, "prepend_scheme", adds ? "always" : "never");
    std::string mark = fieldOr<std::string>(file, step, "replacement", "\xE2\x96\x81");
    if (mark.empty())
      throw DataError(file, "a Metaspace decoder without replacement");
    steps.push_back({Kind::metaspace, mark, " ", scheme == "never" ? size_t{0} : size_t{1}});
  } else if (type == "WordPiece") {
    steps.push_back({Kind::wordPiece, fieldOr<std::string>(file, step, "prefix", "##"), "",
                     fieldOr(file, step, "cleanup", true) ? size_t{1} : size_t{0}});
  } else {
    throw DataError(file, fmt::format("decoder \"{}\" is not read, only ByteLevel, ByteFallback, Fuse, "
                                      "Replace of a string, Strip, Metaspace, WordPiece and Sequence are",
                                      type));
  }
}

HfDecoder HfDecoder::read(const std::string &file, const nlohmann::json &field) {
  HfDecoder decoder;
  if (!field.is_null())
    decoder.add(file, field, 0);
  return decoder;
}

std::string HfDecoder::decode(std::vector<std::string> tokens) const {
  for (const Step &step : steps) {
    bool isFirst = true;
    for (std::string &token : tokens) {
      int byte = step.kind == Kind::byteFallback ? byteOf(token) : -1;
      if (byte >= 0)
        token.assign(1, static_cast<char>(byte));
      if (step.kind == Kind::byteLevel)
        token = fromByteLevel(token).value_or(token);
      if (step.kind == Kind::metaspace && isFirst)
        stripText(token, step.from, step.start, 0);
      if (step.kind == Kind::replace || step.kind == Kind::metaspace)
        replaceAll(token, step.from, step.to);
      if (step.kind == Kind::wordPiece)
        decodeWordPiece(token, step.from, isFirst, step.start == 1);
      if (step.kind == Kind::strip)
        stripText(token, step.from, step.start, step.stop);
      isFirst = false;
    }
    if (step.kind == Kind::fuse)
      tokens = {std::accumulate(tokens.begin(), tokens.end(), std::string())};
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i)
    text += (steps.empty() && i > 0 ? " " : "") + tokens[i];
  return text;
}

} // namespace espalier::rt
