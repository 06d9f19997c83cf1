// Bodies of OpenAI's `/v1/completions`: what comes in is checked before anything of it is used, what goes out is JSON.
#pragma once

#include "runtime/generate/request.h"

#include <optional>
#include <stdexcept>

namespace espalier::rt {

class Tokenizer;

/// What is wrong with a body; the caller's fault.
class BodyError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct CompletionBody {
  Request request;
  std::string prompt; ///< as text, where it came as text
  bool stream = false, echo = false;
};

/// Bounds of what a body may ask for.
struct BodyLimits {
  size_t bytes = 1 << 20;
  size_t stops = 4, stopBytes = 256;
  int64_t tokens = 1 << 20; ///< of a prompt
};

/// Throws BodyError. Keys that are not known are refused unless they ask for nothing. The tokenizer may be null: then a
/// prompt is a list of ids.
CompletionBody parseCompletionBody(std::string_view text, Tokenizer *tokenizer, const BodyLimits &limits = {});

/// A whole answer, or with `piece` one event of a stream; the last event has the reason.
std::string completionJson(const std::string &id, const std::string &model, const CompletionBody &body,
                           const Completion *end, const std::optional<std::string> &piece, int64_t created);
/// {"error": {"message", "type"}}.
std::string errorJson(const std::string &message, const std::string &type);

} // namespace espalier::rt
