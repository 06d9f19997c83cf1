#include "runtime/generate/serve/metrics.h"

#include "runtime/prometheus_text.h"

#include <string>

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
  PrometheusText text;
  text.head("responses_total", "counter", "HTTP responses by path and status.");
  for (const auto &[key, count] : responses)
    text.sample("responses_total", count, {{"path", key.first}, {"status", std::to_string(key.second)}});
  text.single("prompt_tokens_total", "counter", "Tokens of the prompts of completed requests.", promptTokens);
  text.single("generated_tokens_total", "counter", "Tokens that completed requests generated.", tokens);
  text.single("texts_running", "gauge", "Texts that are decoded now.", running);
  text.single("texts_waiting", "gauge", "Texts that wait for a place in the batch.", waiting);
  auto summary = [&](const std::string &name, const char *help, const Seconds &seconds) {
    text.head(name.c_str(), "summary", help);
    text.sample((name + "_sum").c_str(), seconds.sum);
    text.sample((name + "_count").c_str(), seconds.count);
  };
  summary("first_output_seconds", "Time from a request to its first output.", first);
  summary("request_seconds", "Time from a request to the end of its answer.", whole);
  return text.str();
}

} // namespace espalier::rt
