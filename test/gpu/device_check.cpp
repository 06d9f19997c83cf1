// The CUDA back end on hardware, as far as no plan is needed: what the device is, what the driver makes of kernels, and
// whether products are right, repeatable and fast. Ends with 1 if anything is wrong.
//
//   device_check [--small] [KERNELS.ptx ...]        --small: no speeds, for the emulated device
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/cuda/movement.h"
#include "runtime/status.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>

using namespace espalier::rt;
using namespace espalier::rt::cuda;

namespace {

constexpr int repetitions = 20;
/// Outputs up to this size are compared whole, of larger ones elements at random.
constexpr int64_t comparedWhole = 1 << 18;
constexpr int64_t comparedAtRandom = 2000;
/// Outputs up to this size are read back after each repetition, larger ones after the first and the last two.
constexpr size_t readEachTime = 64 << 20;

struct Case {
  MatmulShape shape;
  bool isTimed = false;
};

float toFloat(const std::byte *data, Storage storage, int64_t index) {
  if (storage == Storage::F32) {
    float value;
    std::memcpy(&value, data + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * index, 2);
  return storage == Storage::BF16 ? bf16ToFloat(bits) : f16ToFloat(bits);
}

/// Values of a normal distribution; those of large matrices repeat with a period that no dimension divides.
std::vector<std::byte> randomValues(int64_t elements, Storage storage, unsigned seed) {
  constexpr int64_t period = 1048573; // prime
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  size_t width = bytesOf(storage);
  std::vector<std::byte> data(elements * width);
  for (int64_t i = 0; i < std::min(elements, period); ++i) {
    float value = normal(generator);
    uint16_t half = storage == Storage::BF16 ? floatToBf16(value) : floatToF16(value);
    std::memcpy(&data[i * width], storage == Storage::F32 ? static_cast<void *>(&value) : &half, width);
  }
  for (int64_t i = period; i < elements; i += period)
    std::memcpy(&data[i * width], data.data(), std::min(period, elements - i) * width);
  return data;
}

/// A product on the device, its operands on the host beside it.
class Trial {
public:
  Trial(const Context &context, Matmuls &matmuls, const Case &test)
      : shape(test.shape), matmuls(matmuls), product(matmuls.prepare(shape)), queue(context.driver),
        staging(context.driver), a(randomValues(shape.batch * shape.m * shape.k, shape.a, 1)),
        b(randomValues(shape.batch * shape.k * shape.n, shape.b, 2)),
        c(randomValues(shape.batch * shape.m * shape.n, shape.c, 3)),
        memory(context, queue, roundUp(a.size()) + roundUp(b.size()) + c.size(), Matmuls::workspaceBytes) {
    operands = {memory.at(0), memory.at(roundUp(a.size())), memory.at(roundUp(a.size()) + roundUp(b.size()))};
    staging.copyIn(queue, operands.a, a.data(), a.size());
    staging.copyIn(queue, operands.b, b.data(), b.size());
  }

  std::vector<std::byte> run(bool accumulates) {
    staging.copyIn(queue, operands.c, c.data(), c.size());
    matmuls.run(queue, product, operands, accumulates, memory.workspace());
    std::vector<std::byte> result(c.size());
    staging.copyOut(queue, result.data(), operands.c, result.size());
    return result;
  }

  /// Largest error of an element, as a part of what it may be.
  double error(const std::vector<std::byte> &result, bool accumulates) const {
    int64_t elements = shape.batch * shape.m * shape.n;
    double worst = 0;
    std::mt19937_64 generator(4);
    for (int64_t i = 0; i < std::min(elements, elements <= comparedWhole ? elements : comparedAtRandom); ++i) {
      int64_t index = elements <= comparedWhole ? i : static_cast<int64_t>(generator() % elements);
      double sum = accumulates ? toFloat(c.data(), shape.c, index) : 0, squares = sum * sum;
      int64_t matrix = index / (shape.m * shape.n), row = index / shape.n % shape.m, column = index % shape.n;
      for (int64_t k = 0; k < shape.k; ++k) {
        int64_t inA = matrix * shape.m * shape.k + (shape.transposeA ? k * shape.m + row : row * shape.k + k);
        int64_t inB = matrix * shape.k * shape.n + (shape.transposeB ? column * shape.k + k : k * shape.n + column);
        double term = static_cast<double>(toFloat(a.data(), shape.a, inA)) * toFloat(b.data(), shape.b, inB);
        sum += term;
        squares += term * term;
      }
      double difference = std::abs(toFloat(result.data(), shape.c, index) - sum) / allowed(sum, std::sqrt(squares));
      worst = std::max(worst, std::isnan(difference) ? INFINITY : difference);
    }
    return worst;
  }

  /// Number of repetitions whose bits differ from the first's.
  int unequalRuns() {
    std::vector<std::byte> first = run(/*accumulates=*/false);
    int unequal = 0;
    for (int i = 1; i < repetitions; ++i) {
      if (first.size() > readEachTime && i < repetitions - 2)
        matmuls.run(queue, product, operands, /*accumulates=*/false, memory.workspace());
      else
        unequal += run(/*accumulates=*/false) != first;
    }
    return unequal;
  }

  /// Of one product, many being in the queue.
  double seconds() {
    Event begin(queue.driver, /*isTimed=*/true), end(queue.driver, /*isTimed=*/true);
    for (int i = 0; i < repetitions + 3; ++i) {
      if (i == 3) // the first ones load kernels and wake the clocks
        queue.record(begin);
      matmuls.run(queue, product, operands, /*accumulates=*/false, memory.workspace());
    }
    queue.record(end);
    end.wait();
    return end.secondsSince(begin) / repetitions;
  }

private:
  static size_t roundUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

  /// What one element may be off: a rounding to the result's type, and one of f32 per addition, at the size that
  /// partial sums of random terms come to (`spread`, the root of the sum of their squares). Tensor cores cut off where
  /// others round, hence k and not its root.
  double allowed(double sum, double spread) const {
    double unit = shape.c == Storage::BF16 ? 0x1p-8 : shape.c == Storage::F16 ? 0x1p-11 : 0x1p-24;
    return unit * std::abs(sum) + 0x1p-24 * static_cast<double>(shape.k + 16) * spread;
  }

  const MatmulShape shape;
  Matmuls &matmuls;
  const Matmuls::Product &product;
  Queue queue;
  Staging staging;
  std::vector<std::byte> a, b, c;
  Memory memory;
  MatmulOperands operands;
};

bool check(const Context &context, Matmuls &matmuls, const Case &test) {
  Trial trial(context, matmuls, test);
  double overwriting = trial.error(trial.run(/*accumulates=*/false), /*accumulates=*/false);
  double adding = trial.error(trial.run(/*accumulates=*/true), /*accumulates=*/true);
  int unequal = trial.unequalRuns();
  bool isRight = std::max(overwriting, adding) <= 1 && unequal == 0;
  std::string speed;
  if (test.isTimed) {
    double seconds = trial.seconds();
    speed = fmt::format("  {:9.1f} us {:7.1f} TF/s", seconds * 1e6, test.shape.flops() / seconds * 1e-12);
  }
  fmt::print("{:5} {:62} error {:5.2f} adding {:5.2f} of what is allowed  {} of {} runs differ{}\n",
             isRight ? "ok" : "WRONG", test.shape.describe(), overwriting, adding, unequal, repetitions, speed);
  std::fflush(stdout);
  return isRight;
}

MatmulShape shapeOf(int64_t m, int64_t n, int64_t k, Storage inputs, Storage output, int layout, int64_t batch = 1) {
  MatmulShape shape = {.m = m, .n = n, .k = k, .batch = batch, .a = inputs, .b = inputs, .c = output};
  shape.transposeA = layout == 2; // gradient of weights: x [tokens, in] transposed by dy [tokens, out]
  shape.transposeB = layout == 1; // gradient of inputs: dy [tokens, out] by w [in, out] transposed
  return shape;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  using enum Storage;
  const std::pair<Storage, Storage> types[] = {{F32, F32}, {BF16, BF16}, {BF16, F32}, {F16, F16}, {F16, F32}};
  for (auto [inputs, output] : types)
    for (int layout : {0, 1, 2}) {
      all.push_back({shapeOf(128, 96, 64, inputs, output, layout)});
      all.push_back({shapeOf(40, 24, 56, inputs, output, layout, /*batch=*/3)});
      MatmulShape odd = shapeOf(37, 29, 51, inputs, output, layout);
      odd.alignments.fill(static_cast<uint32_t>(bytesOf(inputs))); // what odd rows leave
      all.push_back({odd});
    }
  for (auto [inputs, output] : {std::pair{BF16, BF16}, std::pair{F32, F32}})
    all.push_back({shapeOf(8192, 8192, 8192, inputs, output, 0), /*isTimed=*/true});
  // A layer of GPT-2 124M and its head: 16 sequences of 1,024 tokens.
  constexpr int64_t tokens = 16384, hidden = 768, vocabulary = 50304;
  for (int64_t width : {3 * hidden, hidden, 4 * hidden, vocabulary}) {
    all.push_back({shapeOf(tokens, width, hidden, BF16, BF16, 0), /*isTimed=*/true});
    all.push_back({shapeOf(tokens, hidden, width, BF16, BF16, 1), /*isTimed=*/true});
    all.push_back({shapeOf(hidden, width, tokens, BF16, F32, 2), /*isTimed=*/true});
  }
  all.push_back({shapeOf(tokens, 8192, 2048, BF16, BF16, 0), /*isTimed=*/true});
  all.push_back({shapeOf(2048, 8192, tokens, BF16, F32, 2), /*isTimed=*/true});
  return all;
}

void showKernels(const Context &context, const char *file) {
  std::ifstream stream(file);
  std::stringstream words;
  words << stream.rdbuf();
  std::string text = words.str();
  if (text.empty())
    throw PlanError(fmt::format("{}: cannot be read, or is empty", file));
  Module module(context, text);
  std::set<std::string> symbols;
  std::regex entry(R"(\.entry\s+([\w$]+))");
  for (std::sregex_iterator match(text.begin(), text.end(), entry), end; match != end; ++match)
    symbols.insert((*match)[1]);
  fmt::print("\n{}: {} kernels\n{:>9} {:>10} {:>8} {:>7}  kernel\n", file, symbols.size(), "registers", "local bytes",
             "shared", "threads");
  for (const std::string &symbol : symbols) {
    Kernel kernel = module.kernel(symbol);
    fmt::print("{:9} {:10} {:8} {:7}  {}{}\n", kernel.registers, kernel.localBytes, kernel.sharedBytes,
               kernel.maxThreads, symbol, kernel.localBytes > 0 ? "  (spills or local arrays)" : "");
  }
}

/// Bytes per second that the memory and the way to it bear.
void showSpeeds(const Context &context) {
  constexpr size_t bytes = 1 << 30;
  Queue queue(context.driver);
  Staging staging(context.driver);
  Memory memory(context, queue, 2 * bytes, 0);
  std::vector<std::byte> host(bytes);
  auto measure = [&](const char *what, double moved, auto work) {
    work(); // wakes the clocks
    Event begin(context.driver, /*isTimed=*/true), end(context.driver, /*isTimed=*/true);
    queue.record(begin);
    for (int i = 0; i < repetitions; ++i)
      work();
    queue.record(end);
    end.wait();
    fmt::print("{:11} {:8.1f} GB/s\n", what, moved * repetitions / end.secondsSince(begin) * 1e-9);
  };
  measure("copy", 2.0 * bytes, [&] { copy(queue, memory.at(bytes), memory.at(0), {.blocks = 1, .bytes = bytes}); });
  measure("clear", bytes, [&] { zero(queue, memory.at(0), bytes); });
  measure("copy in", bytes, [&] { staging.copyIn(queue, memory.at(0), host.data(), bytes); });
  measure("copy out", bytes, [&] { staging.copyOut(queue, host.data(), memory.at(0), bytes); });
}

int checkDevice(std::span<char *> files, bool isSmall) {
  Driver driver;
  Context context(driver, /*ordinal=*/0);
  Context::Bytes bytes = context.memory();
  fmt::print("device      {}, {} multiprocessors\n", context.describe(),
             context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  fmt::print("memory      {:.2f} GiB free of {:.2f} GiB\n", static_cast<double>(bytes.free) / (1 << 30),
             static_cast<double>(bytes.total) / (1 << 30));
  fmt::print("driver      CUDA {}.{} in {}\n", driver.version / 1000, driver.version % 1000 / 10,
             driver.library.path());
  if (!isSmall)
    showSpeeds(context);
  for (const char *file : files)
    showKernels(context, file);
  CublasLt cublas;
  fmt::print("\ncuBLASLt    {} in {}\n", cublas.version, cublas.library.path());
  std::fflush(stdout);
  Matmuls matmuls(context, cublas);
  int wrong = 0;
  for (const Case &test : cases())
    wrong += !(isSmall && test.isTimed) && !check(context, matmuls, test);
  fmt::print("{} products wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  try {
    bool isSmall = argc > 1 && std::string_view(argv[1]) == "--small";
    int first = isSmall ? 2 : 1;
    return checkDevice({argv + first, static_cast<size_t>(argc - first)}, isSmall);
  } catch (const std::exception &error) {
    fmt::print(stderr, "device_check: {}\n", error.what());
    return 1;
  }
}
