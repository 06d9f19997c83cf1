// Parses any bytes as the body of a request to the server. Seeds: test/fuzz/seeds/completion_body.
#include "runtime/generate/completion_body.h"
#include "runtime/tokenizer/tokenizer.h"

#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::unique_ptr<espalier::rt::Tokenizer> tokenizer = espalier::rt::makeByteTokenizer();
  std::string_view text(reinterpret_cast<const char *>(data), size);
  try {
    auto body = espalier::rt::parseCompletionBody(text, tokenizer.get());
    espalier::rt::Completion end;
    end.text = body.prompt;
    espalier::rt::completionJson("id", "model", body, &end, {}, 0);
    if (body.request.prompt.size() > size)
      std::abort();
  } catch (const espalier::rt::BodyError &) {
  }
  return 0;
}
