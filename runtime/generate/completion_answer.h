// Response bodies of OpenAI's `/v1/completions` and `/v1/chat/completions`, whole or as stream events, and error
// objects.
#pragma once

#include "runtime/generate/completion_body.h"
#include "runtime/generate/generator.h"

#include <span>
#include <string>

namespace espalier::rt {

class Tokenizer;

/// The fields that all parts of a response share.
struct AnswerHead {
  std::string id, model;
  int64_t created = 0; ///< in seconds since 1970
};

/// Writes the response to one request. Without a tokenizer, the text of a token in log probabilities is `token_id:N`.
class CompletionAnswer {
public:
  /// The body and the tokenizer must outlive this object.
  CompletionAnswer(AnswerHead head, const CompletionBody &body, const Tokenizer *tokenizer)
      : head(std::move(head)), body(body), tokenizer(tokenizer), sent(body.choices()), streamed(body.choices()) {
    for (size_t choice = 0; choice < streamed.size(); ++choice)
      streamed[choice] = behindPrompt(choice);
  }

  /// Returns the whole response to a request without streaming. `ends` are the completions of all choices.
  std::string whole(std::span<const Completion> ends) const;
  /// Returns the event of one choice's news.
  std::string event(size_t choice, const News &news);
  /// Returns the first event of a choice of a chat, which has the role.
  std::string firstEvent(size_t choice) const;
  /// Returns the last event of a stream with `include_usage`.
  std::string usageEvent(std::span<const Completion> ends) const;

private:
  using Json = nlohmann::ordered_json;

  Json open(const char *object) const;
  Json usage(std::span<const Completion> ends) const;
  Json wholeChoice(size_t choice, const Completion &end) const;
  /// The tokens of a choice whose log probabilities were written, with the prompt, and the number of characters of
  /// their text. `open` holds the bytes of a character that is not complete.
  struct Written {
    std::vector<int32_t> ids;
    int64_t characters = 0;
    std::string open;
  };
  /// What was sent of a choice of a streamed chat.
  struct Sent {
    std::string text; ///< before it is split
    size_t content = 0, reasoning = 0, calls = 0;
  };

  /// Returns the call number `index` of a choice.
  Json callJson(size_t choice, size_t index, const ToolCall &call) const;
  /// Returns the parts of a streamed answer that were not sent, and sets whether it has calls.
  Json deltaOf(size_t choice, const News &news, bool &hasCalls);
  /// Returns why a text ended, or null if it has not ended.
  static Json reasonOf(const Completion *end, bool hasCalls);

  /// Returns the `logprobs` of scored tokens, and adds the tokens to those written. With `echo`, the first token is
  /// that of the prompt, which has no score.
  Json logProbabilities(std::span<const TokenScore> scores, Written &written, const Prompt *echo = nullptr) const;
  Json chatLogProbabilities(std::span<const TokenScore> scores, Written &written) const;
  /// Returns the text that a token adds to the tokens before it.
  std::string textOf(int32_t token, std::span<const int32_t> before) const;
  /// Returns the tokens of a choice before the first generated token.
  Written behindPrompt(size_t choice) const;

  const AnswerHead head;
  const CompletionBody &body;
  const Tokenizer *const tokenizer;
  std::vector<Sent> sent;
  std::vector<Written> streamed; ///< of the choices of a stream
};

/// Returns {"error": {"message", "type", "param", "code"}}.
std::string errorJson(const std::string &message, const std::string &type);

/// Returns JSON text of a value. Bytes that are not UTF-8 become U+FFFD.
std::string jsonText(const nlohmann::ordered_json &value);

} // namespace espalier::rt
