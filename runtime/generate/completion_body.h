// Request and response bodies of OpenAI's `/v1/completions`. A request is validated completely before use.
#pragma once

#include "runtime/generate/request.h"

#include <optional>
#include <stdexcept>

namespace espalier::rt {

class Tokenizer;

/// An invalid request body, an error of the client.
class BodyError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// A parsed request body.
struct CompletionBody {
  Request request;
  std::string prompt; ///< the prompt text, if given as text
  bool stream = false, echo = false;
};

/// Limits of a request body.
struct BodyLimits {
  size_t bytes = 1 << 20;
  size_t stops = 4, stopBytes = 256;
  int64_t tokens = 1 << 20; ///< in a prompt
};

/// Parses a request body. Throws BodyError. Unknown keys are an error unless their value is a no-op. Without a
/// tokenizer, a prompt must be a list of token ids.
CompletionBody parseCompletionBody(std::string_view text, Tokenizer *tokenizer, const BodyLimits &limits = {});

/// Returns a whole response, or one stream event if `piece` is given. The last event has the finish reason.
std::string completionJson(const std::string &id, const std::string &model, const CompletionBody &body,
                           const Completion *end, const std::optional<std::string> &piece, int64_t created);
/// Returns {"error": {"message", "type"}}.
std::string errorJson(const std::string &message, const std::string &type);

} // namespace espalier::rt
