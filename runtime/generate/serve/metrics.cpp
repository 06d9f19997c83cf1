#include "runtime/generate/serve/metrics.h"

#include <fmt/format.h>

namespace espalier::rt {

void ServerMetrics::countResponse(const std::string &path, int status) {
  std::lock_guard lock(mutex);
  ++responses[{path, status}];
}

void ServerMetrics::countCompletion(size_t promptSize, size_t generated, double firstSeconds, double seconds) {
  std::lock_guard lock(mutex);
  promptTokens += promptSize;
  tokens += generated;
  first = {first.sum + firstSeconds, first.count + 1};
  whole = {whole.sum + seconds, whole.count + 1};
}

std::string ServerMetrics::text(size_t running, size_t waiting) const {
  std::lock_guard lock(mutex);
  std::string text;
  auto head = [&](const char *name, const char *type, const char *help) {
    text += fmt::format("# HELP espalier_{} {}\n# TYPE espalier_{} {}\n", name, help, name, type);
  };
  head("responses_total", "counter", "HTTP responses by path and status.");
  for (const auto &[key, count] : responses)
    text += fmt::format("espalier_responses_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  auto number = [&](const char *name, const char *type, const char *help, uint64_t value) {
    head(name, type, help);
    text += fmt::format("espalier_{} {}\n", name, value);
  };
  number("prompt_tokens_total", "counter", "Tokens of the prompts of completed requests.", promptTokens);
  number("generated_tokens_total", "counter", "Tokens that completed requests generated.", tokens);
  number("texts_running", "gauge", "Texts that are decoded now.", running);
  number("texts_waiting", "gauge", "Texts that wait for a place in the batch.", waiting);
  auto summary = [&](const char *name, const char *help, const Seconds &seconds) {
    head(name, "summary", help);
    text += fmt::format("espalier_{}_sum {}\nespalier_{}_count {}\n", name, seconds.sum, name, seconds.count);
  };
  summary("first_output_seconds", "Time from a request to its first output.", first);
  summary("request_seconds", "Time from a request to the end of its answer.", whole);
  return text;
}

} // namespace espalier::rt
