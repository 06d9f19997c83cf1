// Tokens per second of decoding with one text, beside what the memory allows: each token reads every weight once, so no
// decoder is faster than bytes of weights / bandwidth. Usage: decode_bench X.plan [THREADS]; initial weights do.
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

/// Bytes per second of reading memory with so many threads: the best of several passes over 1 GiB.
double readBandwidth(int threads) {
  std::vector<uint64_t> memory((size_t{1} << 30) / sizeof(uint64_t), 1);
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    double begin = secondsNow();
    std::vector<std::jthread> pool;
    for (int i = 0; i < threads; ++i)
      pool.emplace_back([&, i] {
        size_t part = memory.size() / static_cast<size_t>(threads);
        auto length = static_cast<std::ptrdiff_t>(part);
        auto first = memory.begin() + length * i;
        sums[static_cast<size_t>(i) * 8] += std::accumulate(first, first + length, uint64_t{0});
      });
    pool.clear();
    best = std::max(best, static_cast<double>(memory.size() * sizeof(uint64_t)) / (secondsNow() - begin));
  }
  return sums[0] > 0 ? best : 0;
}

/// Bytes that a token reads: all parameters but tables that are only looked up in.
double weightBytes(const pb::Plan &plan) {
  double bytes = 0;
  for (const NamedParameter &named : parametersOf(plan))
    bytes += static_cast<double>(named.elements()) * static_cast<double>(elementBytes(named.bucket->type()));
  return bytes;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_bench X.plan [THREADS]\n");
    return 2;
  }
  pb::Plan plan = readPlan(argv[1]);
  int threads = threadsPerRank(argc > 2 ? std::stoi(argv[2]) : 0, Mesh(plan.mesh()).ranks());
  Program program(std::move(plan), threads);
  Decoder decoder(program, {}, threads);
  std::vector<int32_t> prompt(32, 1);
  Feed feed = {0, 0, prompt};
  decoder.prefill({&feed, 1});
  std::vector<double> seconds;
  std::span<const int32_t> token = std::span(prompt).first(1);
  for (int64_t position = 32; position < std::min<int64_t>(96, decoder.context()); ++position) {
    feed = {0, position, token};
    double begin = secondsNow();
    decoder.decode({&feed, 1});
    seconds.push_back(secondsNow() - begin);
  }
  std::ranges::sort(seconds);
  double median = seconds[seconds.size() / 2], bytes = weightBytes(program.plan());
  double bandwidth = readBandwidth(threads * program.mesh().ranks());
  fmt::print("{:.1f} tokens/s, {:.2f} ms each (best {:.2f}); {:.0f} MB of weights at {:.1f} GB/s are {:.2f} ms: {:.0f} "
             "% of the bandwidth\n",
             1 / median, median * 1e3, seconds[0] * 1e3, bytes / 1e6, bandwidth / 1e9, bytes / bandwidth * 1e3,
             100 * bytes / bandwidth / median);
  return 0;
}

} // namespace
} // namespace espalier::rt

int main(int argc, char **argv) { return espalier::rt::main(argc, argv); }
