// Metrics in Prometheus' text format 0.0.4, which `espalier serve` and `espalier run --prometheus` answer.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

namespace espalier::rt {

/// The content type of the text.
inline constexpr const char *prometheusType = "text/plain; version=0.0.4";

/// Builds the text. Names come without the prefix `espalier_`, which all metrics have.
class PrometheusText {
public:
  /// The names and values of a sample's labels.
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Begins a metric. `type` is gauge, counter or summary. `help` is one line.
  void head(const char *name, const char *type, const char *help) {
    text += fmt::format("# HELP espalier_{} {}\n# TYPE espalier_{} {}\n", name, help, name, type);
  }
  /// Adds a sample. Numbers keep all their digits; NaN and the infinities are legal.
  template <typename Number> void sample(const char *name, Number value, const Labels &labels = {}) {
    text += fmt::format("espalier_{}{} {}\n", name, textOf(labels), value);
  }
  /// Adds a metric with one sample.
  template <typename Number> void single(const char *name, const char *type, const char *help, Number value) {
    head(name, type, help);
    sample(name, value);
  }

  /// Returns the text of all metrics.
  const std::string &str() const { return text; }

private:
  static std::string textOf(const Labels &labels);
  std::string text;
};

} // namespace espalier::rt
