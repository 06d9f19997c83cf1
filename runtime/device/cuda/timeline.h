// How long each kernel and call took on the device, for whoever tunes them. Off unless asked for: the events that
// measure cost a little themselves.
#pragma once

#include "runtime/device/cuda/queue.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

class Timeline {
public:
  /// Writes `file` when it goes.
  Timeline(const Driver &driver, std::string file);
  ~Timeline();
  Timeline(const Timeline &) = delete;
  Timeline &operator=(const Timeline &) = delete;

  /// The work that `queue` is given from begin to end counts as `name`. `flops`: of the work, 0 if of no interest.
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

  /// Adds up the spans so far, which waits for them.
  void collect();
  void write() const;

  const std::string file;
  std::vector<Span> spans; ///< used from the first on, again after each collect()
  size_t used = 0;
  std::map<std::string, Sum> sums;
  double elapsed = 0; ///< from the first begin to the last end of each lot of spans
};

} // namespace espalier::rt::cuda
