// Measures tokens per second of decoding, and the limit of memory: each step reads every weight once, so no
// decoder is faster than bytes of weights / bandwidth. The two are measured alternately, so that other load slows both.
// Usage: decode_bench X.plan [THREADS [TEXTS]]. TEXTS are decoded at once; the default is 1. Initial weights are
// sufficient.
#include "runtime/generate/decode.h"
#include "runtime/parameter_block.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numeric>

namespace espalier::rt {
namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Reads as many bytes as a token does, with several threads.
class Reader {
public:
  Reader(double bytes, int threads)
      : memory(static_cast<size_t>(bytes) / sizeof(uint64_t), 1), sums(static_cast<size_t>(threads) * 8) {}

  /// Returns the seconds of one pass.
  double pass() {
    double begin = secondsNow();
    std::vector<std::jthread> pool;
    size_t threads = sums.size() / 8;
    auto length = static_cast<std::ptrdiff_t>(memory.size() / threads);
    for (size_t i = 0; i < threads; ++i)
      pool.emplace_back([&, i] {
        auto first = memory.begin() + length * static_cast<std::ptrdiff_t>(i);
        sums[i * 8] += std::accumulate(first, first + length, uint64_t{0});
      });
    pool.clear();
    return sums[0] > 0 ? secondsNow() - begin : 0;
  }

private:
  std::vector<uint64_t> memory;
  std::vector<uint64_t> sums; ///< one cache line per thread
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Returns the bytes that a token reads: all parameters except tables that are only used for lookups.
double weightBytes(const pb::Plan &plan) {
  double bytes = 0;
  for (const NamedParameter &named : parametersOf(plan))
    bytes += static_cast<double>(named.elements()) * static_cast<double>(elementBytes(named.bucket->type()));
  return bytes;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_bench X.plan [THREADS [TEXTS]]\n");
    return 2;
  }
  pb::Plan plan = readPlan(argv[1]);
  int threads = threadsPerRank(argc > 2 ? std::stoi(argv[2]) : 0, Mesh(plan.mesh()).ranks());
  Program program(std::move(plan), threads);
  Decoder decoder(program, /*weights=*/nullptr, threads);
  std::vector<int32_t> prompt(32, 1);
  int texts = argc > 3 ? std::stoi(argv[3]) : 1;
  if (texts < 1 || static_cast<uint32_t>(texts) > decoder.sizes().sequences) {
    fmt::print(stderr, "TEXTS is {}, the plan has {} at a time\n", texts, decoder.sizes().sequences);
    return 2;
  }
  std::vector<Feed> feeds;
  for (int i = 0; i < texts; ++i)
    feeds.push_back({static_cast<uint32_t>(i), 0, prompt});
  decoder.prefill(feeds);
  double bytes = weightBytes(program.plan());
  Reader reader(bytes, threads * program.mesh().ranks());
  std::vector<double> seconds, reads;
  std::span<const int32_t> token = std::span(prompt).first(1);
  for (int64_t position = 32; position < std::min<int64_t>(96, decoder.sizes().context); ++position) {
    for (Feed &feed : feeds)
      feed = {feed.sequence, position, token};
    double begin = secondsNow();
    decoder.decode(feeds);
    seconds.push_back(secondsNow() - begin);
    reads.push_back(reader.pass());
  }
  double one = median(seconds), read = median(reads);
  fmt::print(
      "{:.1f} tokens/s, {:.2f} ms a step (best {:.2f}); reading {:.0f} MB of weights takes {:.2f} ms (best {:.2f}), "
      "{:.1f} GB/s: {:.0f} % of the bandwidth\n",
      texts / one, one * 1e3, std::ranges::min(seconds) * 1e3, bytes / 1e6, read * 1e3, std::ranges::min(reads) * 1e3,
      bytes / read / 1e9, 100 * read / one);
  return 0;
}

} // namespace
} // namespace espalier::rt

int main(int argc, char **argv) { return espalier::rt::main(argc, argv); }
