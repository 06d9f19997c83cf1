// Checks the CUDA back end on hardware without a plan: reports the device and the driver's compilation of kernels, and
// checks that products are correct, repeatable and fast. Exits with 1 if anything is wrong.
//
//   device_check [--small] [KERNELS.ptx ...]        --small: no timings, for the emulated device
//   device_check --epilogues                        lists the epilogues that cuBLASLt lacks, one per line
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/cuda/movement.h"
#include "runtime/status.h"

#include <algorithm>
#include <array>
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
/// Outputs up to this size are compared completely. Larger outputs are compared at random elements.
constexpr int64_t comparedWhole = 1 << 18;
constexpr int64_t comparedAtRandom = 2000;
/// Limits the number of compared columns of a bias gradient: the columns have at most this many terms.
constexpr int64_t comparedTerms = 1 << 24;
/// Outputs up to this size are read back after each repetition. Larger outputs are read back after the first and the
/// last two.
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

/// Returns normally distributed values. Large matrices repeat the values with a prime period, which divides no
/// dimension.
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

float gelu(float x) { return x / 2 * (1 + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x))); }

float geluSlope(float x) {
  float t = std::tanh(0.7978845608F * (x + 0.044715F * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608F * (1 + 3 * 0.044715F * x * x);
}

/// A product on the device, with its operands on the host for comparison.
class Trial {
public:
  enum Operand { A, B, C, Row, Matrix, Operands };
  using Host = std::array<std::vector<std::byte>, Operands>;

  Trial(const Context &context, Matmuls &matmuls, const Case &test)
      : shape(test.shape), matmuls(matmuls), product(matmuls.prepare(shape)), queue(context.driver),
        staging(context.driver), host({randomValues(shape.batch * shape.m * shape.k, shape.a, 1),
                                       randomValues(shape.batch * shape.k * shape.n, shape.b, 2),
                                       randomValues(shape.batch * shape.m * shape.n, shape.c, 3),
                                       randomValues(shape.bytesOfRow() / bytesOf(shape.c), shape.c, 4),
                                       randomValues(shape.bytesOfMatrix() / bytesOf(shape.c), shape.c, 5)}),
        memory(context, queue, placeOf(Operands), Matmuls::workspaceBytes) {
    operands = {at(A), at(B), at(C), at(Row), at(Matrix)};
    copyIn({A, B});
  }

  /// Runs the product and returns its outputs: c, the row and the matrix.
  Host run(bool accumulates) {
    copyIn({C, Row, Matrix});
    matmuls.run(queue, product, operands, accumulates, memory.workspace());
    Host result;
    for (int i : {C, Row, Matrix}) {
      result[i].resize(host[i].size());
      if (!result[i].empty())
        staging.copyOut(queue, result[i].data(), at(i), result[i].size());
    }
    return result;
  }

  /// Returns the largest error of an element relative to its allowed error.
  double error(const Host &result, bool accumulates) const {
    int64_t elements = shape.batch * shape.m * shape.n;
    double worst = 0;
    auto add = [&](double difference) { worst = std::max(worst, std::isnan(difference) ? INFINITY : difference); };
    std::mt19937_64 generator(4);
    for (int64_t i = 0; i < std::min(elements, elements <= comparedWhole ? elements : comparedAtRandom); ++i) {
      int64_t index = elements <= comparedWhole ? i : static_cast<int64_t>(generator() % elements);
      Sum sum = productAt(index);
      double rounded = accumulates ? std::abs(sum.value) : 0;
      if (accumulates)
        sum.add(toFloat(host[C].data(), shape.c, index));
      if (shape.hasBias())
        sum.add(toFloat(host[Row].data(), shape.c, index % shape.n));
      if (shape.adds())
        sum.add(toFloat(host[Matrix].data(), shape.c, index));
      double value = sum.value, slack = 0;
      if (shape.epilogue == pb::LibraryCall::BIAS_GELU && shape.keepsOperand)
        add(std::abs(toFloat(result[Matrix].data(), shape.c, index) - value) / allowed(value, sum.spread()));
      if (shape.epilogue == pb::LibraryCall::BIAS_GELU) {
        value = gelu(static_cast<float>(value));
        slack = approximation * std::abs(sum.value);
      } else if (shape.epilogue == pb::LibraryCall::GELU_GRADIENT) {
        value *= geluSlope(toFloat(host[Matrix].data(), shape.c, index));
        slack = approximation * std::abs(sum.value);
      }
      slack += unit() * rounded;
      add(std::abs(toFloat(result[C].data(), shape.c, index) - value) / (allowed(value, 1.2 * sum.spread()) + slack));
    }
    int64_t step = 1 + shape.k * shape.n / comparedTerms;
    for (int64_t column = 0; shape.epilogue == pb::LibraryCall::BIAS_GRADIENT && column < shape.n; column += step) {
      Sum sum;
      for (int64_t k = 0; k < shape.k; ++k)
        sum.add(toFloat(host[B].data(), shape.b, k * shape.n + column));
      add(std::abs(toFloat(result[Row].data(), shape.c, column) - sum.value) / allowed(sum.value, sum.spread()));
    }
    return worst;
  }

  /// Returns the number of repetitions whose bits differ from the first.
  int unequalRuns() {
    Host first = run(/*accumulates=*/false);
    int unequal = 0;
    for (int i = 1; i < repetitions; ++i) {
      if (first[C].size() > readEachTime && i < repetitions - 2)
        matmuls.run(queue, product, operands, /*accumulates=*/false, memory.workspace());
      else
        unequal += run(/*accumulates=*/false) != first;
    }
    return unequal;
  }

  /// Returns the time of one product in a sequence of products.
  double seconds() {
    Event begin(queue.driver, /*isTimed=*/true), end(queue.driver, /*isTimed=*/true);
    for (int i = 0; i < repetitions + 3; ++i) {
      if (i == 3) // the first runs load kernels and raise the clock
        queue.record(begin);
      matmuls.run(queue, product, operands, /*accumulates=*/false, memory.workspace());
    }
    queue.record(end);
    end.wait();
    return end.secondsSince(begin) / repetitions;
  }

private:
  /// The relative error of gelu and its derivative. The hardware's tanh has an error of 2^-11, which the derivative
  /// multiplies by up to 5.
  static constexpr double approximation = 0x1p-8;

  /// A sum in double precision, and the square root of the sum of its squared terms.
  struct Sum {
    double value = 0, squares = 0;
    void add(double term) { value += term, squares += term * term; }
    double spread() const { return std::sqrt(squares); }
  };

  Sum productAt(int64_t index) const {
    Sum sum;
    int64_t matrix = index / (shape.m * shape.n), row = index / shape.n % shape.m, column = index % shape.n;
    for (int64_t k = 0; k < shape.k; ++k) {
      int64_t inA = matrix * shape.m * shape.k + (shape.transposeA ? k * shape.m + row : row * shape.k + k);
      int64_t inB = matrix * shape.k * shape.n + (shape.transposeB ? column * shape.k + k : k * shape.n + column);
      sum.add(static_cast<double>(toFloat(host[A].data(), shape.a, inA)) * toFloat(host[B].data(), shape.b, inB));
    }
    return sum;
  }

  /// Returns the allowed error of one element: the rounding to the result's type, plus one f32 rounding per addition.
  /// `spread`, the root of the sum of squared terms, is the magnitude of partial sums of random terms. Tensor cores
  /// truncate instead of rounding, so the bound grows with k instead of its square root.
  double allowed(double sum, double spread) const {
    return unit() * std::abs(sum) + 0x1p-24 * static_cast<double>(shape.k + 16) * spread;
  }

  /// Returns the relative error of one rounding to the type of c. If c is 16 bits wide and also the addend, Hopper's
  /// kernels round the product before the memory system adds it.
  double unit() const { return shape.c == Storage::BF16 ? 0x1p-8 : shape.c == Storage::F16 ? 0x1p-11 : 0x1p-24; }

  /// Returns the offset of an operand. Operands are stored one after the other.
  uint64_t placeOf(int operand) const {
    uint64_t place = 0;
    for (int i = 0; i < operand; ++i)
      place += (host[i].size() + 255) / 256 * 256;
    return place;
  }

  CUdeviceptr at(int operand) const { return memory.at(placeOf(operand)); }

  void copyIn(std::initializer_list<int> which) {
    for (int i : which)
      if (!host[i].empty())
        staging.copyIn(queue, at(i), host[i].data(), host[i].size());
  }

  const MatmulShape shape;
  Matmuls &matmuls;
  const Matmuls::Product &product;
  Queue queue;
  Staging staging;
  const Host host;
  Memory memory;
  MatmulOperands operands;
};

/// Returns whether cuBLASLt has an algorithm for the product.
bool has(Matmuls &matmuls, const MatmulShape &shape) { return !matmuls.recommend(shape, /*most=*/1).empty(); }

bool check(const Context &context, Matmuls &matmuls, const Case &test) {
  if (!has(matmuls, test.shape)) {
    fmt::print("{:5} {:62} no algorithm\n", "NONE", test.shape.describe());
    return false;
  }
  Trial trial(context, matmuls, test);
  bool isAdded = test.shape.epilogue == pb::LibraryCall::NONE || test.shape.epilogue == pb::LibraryCall::BIAS_GRADIENT;
  double overwriting = trial.error(trial.run(/*accumulates=*/false), /*accumulates=*/false);
  double adding = isAdded ? trial.error(trial.run(/*accumulates=*/true), /*accumulates=*/true) : 0;
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

/// Returns the shapes that plans use. In 16 bits: all epilogues, for small sizes and those of GPT-2 124M and 1.3B. In
/// f32: sums and biases.
std::vector<MatmulShape> shapesWithEpilogues() {
  using enum Storage;
  std::vector<MatmulShape> all;
  auto add = [&](MatmulShape shape, std::initializer_list<Epilogue> epilogues) {
    for (Epilogue epilogue : epilogues) {
      shape.epilogue = epilogue;
      all.push_back(shape);
    }
  };
  add(shapeOf(128, 96, 64, F32, F32, 0), {pb::LibraryCall::BIAS, pb::LibraryCall::ADD, pb::LibraryCall::BIAS_ADD});
  for (Storage half : {BF16, F16})
    for (auto [tokens, hidden] : {std::pair<int64_t, int64_t>{128, 64}, {16384, 768}, {16384, 2048}})
      if (half == BF16 || hidden == 64) {
        add(shapeOf(tokens, 4 * hidden, hidden, half, half, 0), {pb::LibraryCall::BIAS, pb::LibraryCall::BIAS_GELU});
        MatmulShape forward = shapeOf(tokens, 4 * hidden, hidden, half, half, 0);
        forward.keepsOperand = false;
        add(forward, {pb::LibraryCall::BIAS_GELU});
        add(shapeOf(tokens, hidden, 4 * hidden, half, half, 0), {pb::LibraryCall::BIAS_ADD});
        add(shapeOf(tokens, 4 * hidden, hidden, half, half, 1), {pb::LibraryCall::GELU_GRADIENT, pb::LibraryCall::ADD});
        add(shapeOf(hidden, 4 * hidden, tokens, half, F32, 2), {pb::LibraryCall::BIAS_GRADIENT});
      }
  return all;
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
      odd.alignments.fill(static_cast<uint32_t>(bytesOf(inputs))); // the alignment that odd row lengths leave
      all.push_back({odd});
    }
  for (auto [inputs, output] : {std::pair{BF16, BF16}, std::pair{F32, F32}})
    all.push_back({shapeOf(8192, 8192, 8192, inputs, output, 0), /*isTimed=*/true});
  // Products of a layer of GPT-2 124M and of its head, for 16 sequences of 1,024 tokens.
  constexpr int64_t tokens = 16384, hidden = 768, vocabulary = 50304;
  for (int64_t width : {3 * hidden, hidden, 4 * hidden, vocabulary}) {
    all.push_back({shapeOf(tokens, width, hidden, BF16, BF16, 0), /*isTimed=*/true});
    all.push_back({shapeOf(tokens, hidden, width, BF16, BF16, 1), /*isTimed=*/true});
    all.push_back({shapeOf(hidden, width, tokens, BF16, F32, 2), /*isTimed=*/true});
  }
  all.push_back({shapeOf(tokens, 8192, 2048, BF16, BF16, 0), /*isTimed=*/true});
  all.push_back({shapeOf(2048, 8192, tokens, BF16, F32, 2), /*isTimed=*/true});
  for (const MatmulShape &shape : shapesWithEpilogues())
    all.push_back({shape, /*isTimed=*/shape.m * shape.k >= hidden * tokens});
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

/// Prints the bandwidth of the device memory and of the link to the host.
void showSpeeds(const Context &context) {
  constexpr size_t bytes = 1 << 30;
  Queue queue(context.driver);
  Staging staging(context.driver);
  Memory memory(context, queue, 2 * bytes, 0);
  std::vector<std::byte> host(bytes);
  auto measure = [&](const char *what, double moved, auto work) {
    work(); // raises the clock
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

/// Prints the epilogues that cuBLASLt lacks for some product. Plans must be compiled without them.
int showMissingEpilogues() {
  Driver driver;
  Context context(driver, /*ordinal=*/0);
  CublasLt cublas;
  Matmuls matmuls(context, cublas);
  std::set<std::string> missing;
  for (const MatmulShape &shape : shapesWithEpilogues())
    if (!has(matmuls, shape))
      missing.insert(nameOf(shape.epilogue));
  for (const std::string &name : missing)
    fmt::print("{}\n", name);
  return 0;
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
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // output before a hang is not lost
    if (argc > 1 && std::string_view(argv[1]) == "--epilogues")
      return showMissingEpilogues();
    bool isSmall = argc > 1 && std::string_view(argv[1]) == "--small";
    int first = isSmall ? 2 : 1;
    return checkDevice({argv + first, static_cast<size_t>(argc - first)}, isSmall);
  } catch (const std::exception &error) {
    fmt::print(stderr, "device_check: {}\n", error.what());
    return 1;
  }
}
