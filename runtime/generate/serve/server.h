// OpenAI's `/v1/completions` and `/health` over HTTP. HTTP threads read, tokenize and write; one thread decodes, for
// all of them at once. What waits is bounded: beyond it the answer is 503.
#pragma once

#include "runtime/generate/generator.h"

#include <functional>
#include <string>

namespace espalier::rt {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;         ///< 0: any free one
  std::string token;    ///< that callers must show; empty: none
  std::string model;    ///< its name in answers
  size_t waiting = 64;  ///< requests behind those that are decoded
  std::function<int()> stopSignal = [] { return 0; }; ///< asked often: above 0 ends it
};

/// Whether a host is this machine alone.
bool isLoopback(const std::string &host);

/// Serves until the stop signal, which it returns. Says `listening on URL` on standard output once it does. Throws
/// PlanError where it cannot listen, or the options are unsafe; RankFailure where the model fails.
int serve(Decoder &decoder, const Tokenizer *tokenizer, const ServerOptions &options);

} // namespace espalier::rt
