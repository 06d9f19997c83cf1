// The state and the bounds of one rendering. A template is a program of strangers, so each step, byte and level counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>

namespace espalier::rt::jinja {

/// An error of a template or of its values. what() is a reason without a location.
class Fault : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The most that a rendering may take.
struct Bounds {
  int64_t steps = 20'000'000; ///< evaluated nodes, iterations, and 64 bytes of text each
  int64_t bytes = 256 << 20;  ///< of all values that the template makes, and of its output
  double seconds = 10;
  int levels = 1000; ///< nested expressions, statements, and calls
};

/// The largest number of levels in a value, and of nested expressions or statements in a template.
inline constexpr int mostNesting = 200;

/// Counts what a rendering takes.
class Run {
public:
  explicit Run(const Bounds &bounds, std::time_t now = 0) : now(now), bounds(bounds) {}
  Run(const Run &) = delete;

  /// Count work, or the memory of a value with the work to write it. Throw Fault beyond a bound.
  void step(int64_t count = 1) {
    steps += count;
    if (steps > bounds.steps)
      throw Fault("the template takes more than " + std::to_string(bounds.steps) + " steps");
    sinceClock += count;
    if (sinceClock > 100'000)
      checkClock();
  }
  void take(size_t count) {
    if (count > static_cast<size_t>(bounds.bytes - bytes))
      throw Fault("the template makes more than " + std::to_string(bounds.bytes >> 20) + " MB of values");
    bytes += static_cast<int64_t>(count);
    step(1 + static_cast<int64_t>(count / 64));
  }

  /// A level of nesting while it lives.
  class Level {
  public:
    explicit Level(Run &run) : run(run) {
      if (run.levels >= run.bounds.levels)
        throw Fault("the template nests its calls more than " + std::to_string(run.bounds.levels) + " levels deep");
      ++run.levels;
    }
    ~Level() { --run.levels; }
    Level(const Level &) = delete;

  private:
    Run &run;
  };

  const std::time_t now; ///< the time that strftime_now() writes

private:
  void checkClock() {
    sinceClock = 0;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > bounds.seconds)
      throw Fault("the template takes more than " + std::to_string(static_cast<int>(bounds.seconds)) + " s");
  }

  const Bounds bounds;
  int64_t steps = 0, sinceClock = 0, bytes = 0;
  int levels = 0;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

} // namespace espalier::rt::jinja
