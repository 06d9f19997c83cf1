// Measures how long each kernel and library call takes on the device. Off by default, because the events cost time.
#pragma once

#include "runtime/device/cuda/queue.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// The measured times of one rank.
class Timeline {
public:
  /// Collects times; the destructor writes `file`.
  Timeline(const Driver &driver, std::string file);
  ~Timeline();
  Timeline(const Timeline &) = delete;
  Timeline &operator=(const Timeline &) = delete;

  /// Attributes the work enqueued on `queue` between begin() and end() to `name`. `flops` of the work, 0 if not
  /// relevant.
  void begin(Queue &queue);
  void end(Queue &queue, const std::string &name, double flops = 0);

private:
  struct Span {
    Event begin, end;
    std::string name;
    double flops = 0;
  };
  struct Sum {
    int64_t count = 0;
    double seconds = 0, fastest = 0, flops = 0;
  };

  /// Adds up all spans recorded so far. Waits for them.
  void collect();
  void write() const;

  const std::string file;
  std::vector<Span> spans; ///< reused from the first after each collect()
  size_t used = 0;
  std::map<std::string, Sum> sums;
  double elapsed = 0; ///< sum over batches of spans of last end minus first begin
};

} // namespace espalier::rt::cuda
