// Parses any bytes as the body of both kinds of requests to the server. Seeds: test/fuzz/seeds/completion_body.
#include "runtime/generate/completion_answer.h"
#include "runtime/tokenizer/tokenizer.h"

#include <cstdlib>
#include <string_view>

namespace {

using namespace espalier::rt;

/// Parses a body and writes an answer to it.
template <typename Parse> void answer(const Parse &parse, Tokenizer *tokenizer, size_t mostTokens) {
  try {
    CompletionBody body = parse();
    std::vector<Completion> ends(body.choices());
    for (const Prompt &prompt : body.prompts) {
      if (prompt.ids.size() > mostTokens)
        std::abort();
      if (prompt.ids.empty()) // is not served
        return;
    }
    (void)CompletionAnswer({"id", "model"}, body, tokenizer).whole(ends);
  } catch (const BodyError &) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = makeByteTokenizer();
  std::string_view text(reinterpret_cast<const char *>(data), size);
  answer([&] { return parseCompletionBody(text, tokenizer.get()); }, tokenizer.get(), size);
  constexpr size_t mostMarks = 64; // bytes that a template adds per message, which has more bytes than one in JSON
  static const ChatTemplatePtr chat = chatTemplateNamed("chatml");
  answer([&] { return parseChatBody(text, *tokenizer, *chat, /*context=*/128); }, tokenizer.get(),
         (size + 1) * mostMarks);
  return 0;
}
