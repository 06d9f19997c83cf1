// Requests in, text out: as many at once as the plan has sequences. A request that comes while others are decoded takes
// a free sequence; its prompt is taken in the next step, and what it says does not depend on its neighbours.
#pragma once

#include "runtime/generate/cache.h"
#include "runtime/generate/decode.h"
#include "runtime/generate/request.h"
#include "runtime/generate/text_stream.h"

#include <functional>
#include <list>

namespace espalier::rt {

/// Why a request cannot be served; empty where it can.
std::string whyNotServed(const Request &request, const GenerationSizes &sizes);

class Generator {
public:
  /// Hears of new text, and at the end of the whole completion; false: nobody wants the rest.
  using Listener = std::function<bool(const std::string &text, const Completion *end)>;

  /// The tokenizer may be null: then there is no text. Both outlive this.
  Generator(Decoder &decoder, const Tokenizer *tokenizer)
      : decoder(decoder), tokenizer(tokenizer), slots(decoder.sizes().sequences) {}

  bool isFull() const { return active.size() == decoder.sizes().sequences; }
  bool isIdle() const { return active.empty(); }

  /// Only where it is not full, and whyNotServed() says nothing.
  void add(Request request, Listener listener);

  /// Takes some of the prompts that are not in yet, or one token more of each request.
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
  /// Chooses the token that follows; whether the request goes on.
  bool advance(Active &one);
  bool end(Active &one, Finish finish, std::string text);

  Decoder &decoder;
  const Tokenizer *tokenizer;
  CacheSlots slots;
  std::list<Active> active;
};

} // namespace espalier::rt
