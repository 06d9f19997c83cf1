// Requests in, text out, with as many requests at a time as the plan has sequences. A new request takes a free
// sequence, and the next step processes its prompt. The answer does not depend on concurrent requests.
#pragma once

#include "runtime/generate/cache.h"
#include "runtime/generate/decode.h"
#include "runtime/generate/grammar.h"
#include "runtime/generate/request.h"
#include "runtime/generate/text_stream.h"

#include <functional>
#include <list>

namespace espalier::rt {

/// Returns why a request cannot be served; empty if it can.
std::string whyNotServed(const Request &request, const GenerationSizes &sizes);

/// The text, tokens and scores of a request since the previous call of its listener.
struct News {
  std::string text = "";
  std::vector<int32_t> tokens = {};
  std::vector<TokenScore> scores = {}; ///< of generated tokens, if requested
  const Completion *end = nullptr;     ///< the whole completion, at the end
};

/// Continuous batching of requests on a Decoder.
class Generator {
public:
  /// Receives news in order, the last with the end.
  using Listener = std::function<void(News news)>;
  /// Returns whether nobody waits for the request any more.
  using Abandoned = std::function<bool()>;

  /// Without a tokenizer the completions have no text. Both arguments must outlive this object.
  Generator(Decoder &decoder, const Tokenizer *tokenizer)
      : decoder(decoder), tokenizer(tokenizer), slots(decoder.sizes().sequences) {}

  bool isFull() const { return active.size() == decoder.sizes().sequences; }
  bool isIdle() const { return active.empty(); }
  /// Returns the number of requests that have not ended.
  size_t size() const { return active.size(); }

  /// Adds a request. Requires that isFull() is false, that whyNotServed() is empty, and a tokenizer for a grammar. Each
  /// step drops the abandoned requests.
  void add(Request request, Listener listener, Abandoned isAbandoned = [] { return false; });

  /// Decodes one more token of each request, or processes some of the pending prompts, or both if the decoder mixes
  /// them.
  void step();

private:
  struct Active {
    Request request;
    Listener listener;
    Abandoned isAbandoned;
    TextStream text;
    uint32_t sequence;
    Completion completion;
    Grammar::Place place = {};             ///< in the grammar of the request
    size_t toldTokens = 0, toldScores = 0; ///< how many the listener knows

    int64_t promptSize() const { return static_cast<int64_t>(request.prompt.size()); }
    /// Whether the whole answer is known without running the model.
    bool needsNoModel() const { return request.maxTokens == 0 && (!request.scoresPrompt || promptSize() == 1); }
  };

  Feed nextOfPrompt(const Active &one) const;
  Feed nextToken(const Active &one) const;
  /// Uses the logits of a request's last token. Returns whether the request continues.
  bool advance(Active &one);
  bool sample(Active &one);
  /// Returns the next token by the options and the grammar of the request; nothing if the grammar leaves none.
  std::optional<int32_t> choose(Active &one, std::span<const float> logits);
  void tell(Active &one, std::string text);
  void dropAbandoned();
  bool end(Active &one, Finish finish, std::string text);
  /// Whether the request waits for a prefill of its prompt. A prompt with scores is decoded token by token.
  bool isPrefilling(const Active &one) const {
    return !one.request.scoresPrompt && slots.length(one.sequence) < one.promptSize();
  }

  Decoder &decoder;
  const Tokenizer *tokenizer;
  CacheSlots slots;
  std::list<Active> active;
  std::optional<TokenBytes> tokenBytes; ///< made for the first request with a grammar
};

} // namespace espalier::rt
