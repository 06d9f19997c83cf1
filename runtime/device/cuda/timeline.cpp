#include "runtime/device/cuda/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

constexpr size_t spansAtOnce = 8192;

} // namespace

Timeline::Timeline(const Driver &driver, std::string file) : file(std::move(file)) {
  for (size_t i = 0; i < spansAtOnce; ++i)
    spans.push_back({Event(driver, /*isTimed=*/true), Event(driver, /*isTimed=*/true), "", 0});
}

Timeline::~Timeline() {
  try {
    collect();
    write();
  } catch (const CallError &error) {
    fmt::print(stderr, "{}: the times of kernels are lost: {}\n", file, error.what());
  }
}

void Timeline::begin(Queue &queue) {
  if (used == spans.size())
    collect();
  queue.record(spans[used].begin);
}

void Timeline::end(Queue &queue, const std::string &name, double flops) {
  Span &span = spans[used++];
  queue.record(span.end);
  span.name = name;
  span.flops = flops;
}

void Timeline::collect() {
  if (used == 0)
    return;
  spans[used - 1].end.wait();
  for (size_t i = 0; i < used; ++i) {
    double seconds = spans[i].end.secondsSince(spans[i].begin);
    Sum &sum = sums[spans[i].name];
    sum.fastest = sum.count == 0 ? seconds : std::min(sum.fastest, seconds);
    ++sum.count;
    sum.seconds += seconds;
    sum.flops = spans[i].flops;
  }
  elapsed += spans[used - 1].end.secondsSince(spans[0].begin);
  used = 0;
}

void Timeline::write() const {
  double busy = 0;
  std::vector<std::pair<double, std::string>> order;
  for (const auto &[name, sum] : sums) {
    order.emplace_back(-sum.seconds, name);
    busy += sum.seconds;
  }
  std::sort(order.begin(), order.end());
  std::FILE *out = std::fopen(file.c_str(), "w");
  if (!out)
    return fmt::print(stderr, "{}: the times of kernels cannot be written: {}\n", file, std::strerror(errno));
  fmt::print(out, "busy {:.3f} ms of {:.3f} ms\n{:>8} {:>6} {:>10} {:>10} {:>8}  what\n", busy * 1e3, elapsed * 1e3,
             "count", "share", "mean us", "least us", "TF/s");
  for (const auto &[seconds, name] : order) {
    const Sum &sum = sums.at(name);
    std::string rate = sum.flops > 0 ? fmt::format("{:.1f}", sum.flops / sum.fastest * 1e-12) : "";
    fmt::print(out, "{:8} {:5.1f}% {:10.2f} {:10.2f} {:>8}  {}\n", sum.count, 100 * sum.seconds / busy,
               1e6 * sum.seconds / static_cast<double>(sum.count), 1e6 * sum.fastest, rate, name);
  }
  std::fclose(out);
}

} // namespace espalier::rt::cuda
