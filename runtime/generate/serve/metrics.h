// Counters of the server, written in Prometheus' text format.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace espalier::rt {

/// The counters. All functions may be called by any thread.
class ServerMetrics {
public:
  /// Counts a response. `path` is a known path, so that strangers cannot add rows.
  void countResponse(const std::string &path, int status);
  /// Counts the tokens of a request, and the seconds until its first output and until its end.
  void countCompletion(size_t promptTokens, size_t tokens, double firstSeconds, double seconds);

  /// Returns the text. `running` and `waiting` are the texts in work and in the queue now.
  std::string text(size_t running, size_t waiting) const;

private:
  struct Seconds {
    double sum = 0;
    uint64_t count = 0;
  };

  mutable std::mutex mutex;
  std::map<std::pair<std::string, int>, uint64_t> responses; ///< by path and status
  uint64_t promptTokens = 0, tokens = 0;
  Seconds first, whole;
};

} // namespace espalier::rt
