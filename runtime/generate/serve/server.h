// OpenAI's API over HTTP: completions, chats and the model; also /health, /metrics and a page for chats at /. HTTP
// threads read, tokenize and write; one thread decodes for all requests. The queue is bounded; beyond the bound the
// server answers 503.
#pragma once

#include "runtime/generate/generator.h"
#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

#include <functional>
#include <string>

namespace espalier::rt {

/// The settings of serve().
struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;                                       ///< 0: any free port
  std::string token;                                  ///< bearer token that clients must send; empty: none
  std::string model;                                  ///< model name in responses
  size_t waiting = 64;                                ///< maximum number of queued texts
  std::vector<std::string> allowedOrigins;            ///< of web pages that may send requests; "*": all
  std::vector<std::string> allowedHosts;              ///< names in the field Host beside those of http::Access
  FoundChatTemplate chat;                             ///< the template of chats, or why the server refuses them
  std::function<int()> stopSignal = [] { return 0; }; ///< polled; the server stops if the result is above 0
};

/// The tokenizers of a server; null: token ids only.
struct ServerTokenizers {
  const Tokenizer *texts = nullptr;
  const Tokenizer *chats = nullptr; ///< turns the tokens of a chat template into their ids and adds none
};

/// Serves until stopSignal() is above 0 and returns this number. Prints `listening on URL` when ready. Throws PlanError
/// if it cannot listen or the options are unsafe, RankFailure if the model fails.
int serve(Decoder &decoder, const ServerTokenizers &tokenizers, const ServerOptions &options);

} // namespace espalier::rt
