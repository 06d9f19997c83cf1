// Requests in, text out, with as many requests at a time as the plan has sequences. A new request takes a free
// sequence, and the next step processes its prompt. The answer does not depend on concurrent requests.
#pragma once

#include "runtime/generate/cache.h"
#include "runtime/generate/decode.h"
#include "runtime/generate/request.h"
#include "runtime/generate/text_stream.h"

#include <functional>
#include <list>

namespace espalier::rt {

/// Returns why a request cannot be served; empty if it can.
std::string whyNotServed(const Request &request, const GenerationSizes &sizes);

/// Continuous batching of requests on a Decoder.
class Generator {
public:
  /// Receives new text and, at the end, the whole completion. Returns false to cancel the request.
  using Listener = std::function<bool(const std::string &text, const Completion *end)>;

  /// Without a tokenizer the completions have no text. Both arguments must outlive this object.
  Generator(Decoder &decoder, const Tokenizer *tokenizer)
      : decoder(decoder), tokenizer(tokenizer), slots(decoder.sizes().sequences) {}

  bool isFull() const { return active.size() == decoder.sizes().sequences; }
  bool isIdle() const { return active.empty(); }

  /// Adds a request. Requires that isFull() is false and whyNotServed() is empty.
  void add(Request request, Listener listener);

  /// Processes some of the pending prompts, or decodes one more token of each request.
  void step();

private:
  struct Active {
    Request request;
    Listener listener;
    TextStream text;
    uint32_t sequence;
    Completion completion;
  };

  std::vector<Active *> prefill();
  std::vector<Active *> decode();
  /// Samples the next token. Returns whether the request continues.
  bool advance(Active &one);
  bool end(Active &one, Finish finish, std::string text);

  Decoder &decoder;
  const Tokenizer *tokenizer;
  CacheSlots slots;
  std::list<Active> active;
};

} // namespace espalier::rt
