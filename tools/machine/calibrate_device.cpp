// Measures one stream of the first device. Collectives use one thread per device, as ranks do.
#include "tools/machine/calibrate_device.h"

#include "compiler/import/run/cluster_file.h"
#include "compiler/import/yaml/run_file_writer.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/movement.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/status.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <thread>

namespace espalier {

namespace {

using namespace rt::cuda;
using rt::Storage;

constexpr int fewestSamples = 5;
/// Number of algorithms to try per product.
constexpr int mostAlgorithms = 16;

/// Problem sizes, for hardware and for the emulator.
struct Sizes {
  std::vector<int64_t> products; ///< rows, columns and depth
  int64_t tokens, hidden;        ///< a layer's product, whose shape is less favourable
  size_t copied;
  int launches;
  int64_t reduced; ///< f32 elements
};

Sizes sizesFor(bool isEmulated) {
  if (isEmulated)
    return {.products = {16, 32}, .tokens = 32, .hidden = 16, .copied = 1 << 16, .launches = 10, .reduced = 1 << 10};
  return {.products = {2048, 4096, 8192},
          .tokens = 16384,
          .hidden = 2048,
          .copied = 1 << 30,
          .launches = 1000,
          .reduced = 1 << 26};
}

/// Returns the seconds of one `work` on the stream: the fastest of samples that take at least `seconds` in total. The
/// first call warms up.
double timeOnce(Queue &queue, double seconds, const std::function<void()> &work) {
  work();
  double best = INFINITY, sum = 0;
  for (int samples = 0; samples < fewestSamples || sum < seconds; ++samples) {
    Event begin(queue.driver, /*isTimed=*/true), end(queue.driver, /*isTimed=*/true);
    queue.record(begin);
    work();
    queue.record(end);
    end.wait();
    double taken = end.secondsSince(begin);
    best = std::min(best, taken);
    sum += std::max(taken, 1e-6); // the clock of events has a finite resolution
  }
  return std::max(best, 1e-9);
}

/// Byte offsets of consecutive operands.
struct Places {
  explicit Places(const MatmulShape &shape)
      : b(roundUp(shape.bytesOfA())), c(b + roundUp(shape.bytesOfB())), row(c + roundUp(shape.bytesOfC())),
        matrix(row + roundUp(shape.bytesOfRow())), end(matrix + roundUp(shape.bytesOfMatrix())) {}
  static uint64_t roundUp(int64_t bytes) { return (static_cast<uint64_t>(bytes) + 255) / 256 * 256; }
  const uint64_t b, c, row, matrix, end;
};

/// The distinct products of plans by productName(), for aligned operands.
using Products = std::map<std::string, MatmulShape>;

Products productsOf(std::span<const rt::pb::Plan> plans) {
  using rt::pb::LibraryCall;
  Products products;
  for (const rt::pb::Plan &plan : plans)
    for (const rt::pb::Subprogram &program : plan.subprograms())
      for (const rt::pb::Instruction &instruction : program.instructions()) {
        const LibraryCall &call = instruction.call();
        if (!instruction.has_call() || call.function() != LibraryCall::MATMUL)
          continue;
        auto typeOf = [&](int buffer) {
          return static_cast<Storage>(plan.values(static_cast<int>(call.buffers(buffer).value())).type());
        };
        MatmulShape shape{.m = call.sizes(0),
                          .n = call.sizes(1),
                          .k = call.sizes(2),
                          .batch = call.sizes(3),
                          .a = typeOf(0),
                          .b = typeOf(1),
                          .c = typeOf(2)};
        shape.transposeA = call.transpose_a();
        shape.transposeB = call.transpose_b();
        shape.epilogue = call.epilogue();
        shape.keepsOperand = call.epilogue() != LibraryCall::BIAS_GELU || call.buffers_size() > 4;
        products.emplace(productName(plan, call), shape);
      }
  return products;
}

/// Measures the first device while the other devices are idle.
class Trial {
public:
  /// Allocates memory for the products of `products`.
  Trial(const Driver &driver, const CublasLt &cublas, double seconds, bool isEmulated, const Products &products)
      : context(driver, 0), sizes(sizesFor(isEmulated)), seconds(isEmulated ? 0 : seconds), queue(driver),
        matmuls(context, cublas), memory(context, queue, roomBytes(products), Matmuls::workspaceBytes) {}

  double productSeconds(const MatmulShape &shape, const MatmulAlgorithm &algorithm, double least) {
    const Matmuls::Product &product = matmuls.prepare(shape, algorithm);
    Places places(shape);
    return timeOnce(queue, least, [&] {
      matmuls.run(
          queue, product,
          {memory.at(0), memory.at(places.b), memory.at(places.c), memory.at(places.row), memory.at(places.matrix)},
          /*accumulates=*/false, memory.workspace());
    });
  }

  double productFlops(Storage inputs, int64_t m, int64_t n, int64_t k) {
    MatmulShape shape{.m = m, .n = n, .k = k, .a = inputs, .b = inputs, .c = inputs};
    return shape.flops() / productSeconds(shape, /*algorithm=*/{}, seconds);
  }

  MatmulAlgorithms fastestAlgorithms(const Products &products) {
    MatmulAlgorithms result{.library = matmuls.library(), .products = {}};
    for (const auto &[name, shape] : products) {
      double least = INFINITY;
      for (const MatmulAlgorithm &algorithm : matmuls.recommend(shape, mostAlgorithms))
        if (double taken = productSeconds(shape, algorithm, seconds / 10); taken < least) {
          least = taken;
          std::string &digits = result.products[name];
          digits.clear();
          for (unsigned char byte : algorithm)
            digits += fmt::format("{:02x}", byte);
        }
    }
    return result;
  }

  double fastestProduct(Storage inputs) {
    double fastest = 0;
    for (int64_t size : sizes.products)
      fastest = std::max(fastest, productFlops(inputs, size, size, size));
    return fastest;
  }

  double copyRate() {
    StridedCopy all{.blocks = 1, .bytes = static_cast<int64_t>(sizes.copied)};
    double taken = timeOnce(queue, seconds, [&] { copy(queue, memory.at(sizes.copied), memory.at(0), all); });
    return 2.0 * static_cast<double>(sizes.copied) / taken;
  }

  double launchTime() {
    return timeOnce(queue, seconds,
                    [&] {
                      for (int i = 0; i < sizes.launches; ++i)
                        zero(queue, memory.at(0), 64);
                    }) /
           sizes.launches;
  }

  const Context context;
  const Sizes sizes;

private:
  /// Products and copies share one allocation. It holds zeros, which draw less power than random numbers. If the
  /// device's clocks depend on power, the rates are upper bounds.
  uint64_t roomBytes(const Products &products) const {
    uint64_t largest = 0;
    for (const auto &[name, shape] : products)
      largest = std::max(largest, Places(shape).end);
    auto squared = [](int64_t size) { return static_cast<uint64_t>(size) * static_cast<uint64_t>(size) * 4; };
    uint64_t layer = 4 * static_cast<uint64_t>(sizes.tokens) * 5 * sizes.hidden + squared(2 * sizes.hidden);
    return std::max({3 * squared(sizes.products.back()), layer, uint64_t{2} * sizes.copied, largest}) + 1024;
  }

  const double seconds;
  Queue queue;
  Matmuls matmuls;
  Memory memory;
};

/// Returns the seconds of one all-reduce of `elements` f32 over all devices.
double allReduceSeconds(const Driver &driver, const Nccl &nccl, int devices, int64_t elements, double seconds) {
  ncclUniqueId id = {};
  nccl.ncclGetUniqueId(&id);
  int samples = seconds > 0 ? 20 : 1;
  double taken = 0;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(devices));
  auto takePart = [&](int rank) {
    Context context(driver, rank);
    Queue queue(driver);
    Memory memory(context, queue, static_cast<uint64_t>(elements) * sizeof(float), 0);
    NcclGroups groups(nccl, id, devices, rank, [] {});
    std::vector<int> members(static_cast<size_t>(devices));
    std::iota(members.begin(), members.end(), 0);
    groups.join({members, /*number=*/1});
    uint32_t joined = groups.find({members, /*number=*/1});
    rt::TransferShape shape = {.kind = rt::pb::Transfer::ALL_REDUCE, .members = members};
    shape.shape = {.kind = rt::pb::Transfer::ALL_REDUCE, .elements = {elements}};
    shape.bytes = {static_cast<size_t>(elements) * sizeof(float)};
    CUdeviceptr place = memory.at(0);
    Event begin(driver, /*isTimed=*/true), end(driver, /*isTimed=*/true);
    for (int i = 0; i <= samples; ++i) {
      if (i == 1) // the first call connects the ranks
        queue.record(begin);
      groups.start(joined, shape, {&place, 1}, {&place, 1}, queue.stream());
    }
    queue.record(end);
    end.wait();
    if (rank == 0)
      taken = end.secondsSince(begin) / samples;
    groups.leave();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < devices; ++rank)
    threads.emplace_back([&, rank] {
      try {
        takePart(rank);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  threads.clear(); // joins
  for (const std::exception_ptr &failure : failures)
    if (failure)
      std::rethrow_exception(failure);
  return taken;
}

/// Fits the cost model's ring, 2 (n - 1) / n B / W + 2 (n - 1) hops, to a small and a large buffer.
void measureLink(const Driver &driver, const Nccl &nccl, const Sizes &sizes, double seconds, MeasuredDevice &result) {
  double n = result.devices, bytes = 4.0 * static_cast<double>(sizes.reduced);
  double small = allReduceSeconds(driver, nccl, result.devices, 16, seconds);
  double large = allReduceSeconds(driver, nccl, result.devices, sizes.reduced, seconds);
  result.linkLatencySeconds = std::max(small, 1e-9) / (2 * (n - 1));
  result.linkBytesPerSecond = 2 * (n - 1) / n * bytes / std::max(large - small, 1e-9);
}

} // namespace

MeasuredDevice measureDevice(double seconds, std::span<const rt::pb::Plan> plans) {
  Driver driver;
  CublasLt cublas(cublasLtNames(driver.version));
  MeasuredDevice result;
  DeviceFacts facts(driver, 0);
  result.isEmulated = facts.name.find("emulated") != std::string::npos;
  result.device = facts.describe();
  result.name = facts.name;
  result.devices = countDevices(driver);
  result.multiprocessors = facts.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  result.libraries = fmt::format("driver for CUDA {}.{}, cuBLASLt {}", driver.version / 1000,
                                 driver.version % 1000 / 10, versionText(cublas.version));
  Sizes sizes = sizesFor(result.isEmulated);
  {
    Products products = productsOf(plans);
    Trial trial(driver, cublas, seconds, result.isEmulated, products);
    Context::Bytes memory = trial.context.memory();
    result.memoryBytes = static_cast<double>(memory.total);
    result.f32Flops = trial.fastestProduct(Storage::F32);
    result.bf16Flops = trial.fastestProduct(Storage::BF16);
    result.f16Flops = trial.fastestProduct(Storage::F16);
    double layer = trial.productFlops(Storage::BF16, sizes.tokens, 4 * sizes.hidden, sizes.hidden);
    result.matmulEfficiency = std::min(1.0, layer / result.bf16Flops);
    result.memoryBytesPerSecond = trial.copyRate();
    result.launchSeconds = trial.launchTime();
    result.algorithms = trial.fastestAlgorithms(products);
  }
  if (result.devices > 1) {
    Nccl nccl;
    result.libraries += fmt::format(", NCCL {}", versionText(nccl.version));
    measureLink(driver, nccl, sizes, result.isEmulated ? 0 : seconds, result);
  }
  return result;
}

std::string deviceClusterYaml(const std::string &name, const MeasuredDevice &device) {
  Sizes sizes = sizesFor(device.isEmulated);
  std::string text =
      fmt::format("# Measured by `espalier calibrate --target cuda` on {} ({}).\n", device.device, device.libraries);
  if (device.isEmulated)
    text = fmt::format(
        "# NOT MEASURED ON HARDWARE: these are rates of an emulator on a CPU ({}), made to try the command.\n"
        "# No plan is worth anything that is chosen by them.\n",
        device.device);
  text += fmt::format("name: {}{}\nhosts: 1\ndevices_per_host: {}\n", device.isEmulated ? "emulated_" : "", name,
                      device.devices);
  if (!device.isEmulated)
    text += fmt::format("measured_on: {}\n", quotedYaml(device.name));
  text += fmt::format("memory_bytes: {:.6g}  # from the driver\n", device.memoryBytes);
  text += fmt::format(
      "peak_flops: {{f32: {:.3g}, bf16: {:.3g}, f16: {:.3g}}}  # fastest product of {} to {} rows, of zeros\n",
      device.f32Flops, device.bf16Flops, device.f16Flops, sizes.products.front(), sizes.products.back());
  text += fmt::format("memory_bandwidth: {:.3g}  # copy of {} KiB, read plus written\n", device.memoryBytesPerSecond,
                      sizes.copied >> 10);
  text += fmt::format("matmul_efficiency: {:.3g}  # bf16 product [{}, {}] by [{}, {}] over the fastest one\n",
                      device.matmulEfficiency, sizes.tokens, sizes.hidden, sizes.hidden, 4 * sizes.hidden);
  text += fmt::format("multiprocessors: {}  # from the driver\n", device.multiprocessors);
  text += fmt::format("launch_seconds: {:.3g}  # smallest work in a queue, {} in a row\n", device.launchSeconds,
                      sizes.launches);
  if (device.devices > 1)
    text += fmt::format(
        "link: {{bandwidth: {:.3g}, latency: {:.3g}}}  # all-reduce of {} KiB and of 64 B over {} devices\n",
        device.linkBytesPerSecond, device.linkLatencySeconds, sizes.reduced * 4 >> 10, device.devices);
  if (!device.algorithms.products.empty())
    text += fmt::format("matmul_algorithms:  # the fastest of up to {} that cuBLASLt recommends\n  library: {}\n"
                        "  products:\n",
                        mostAlgorithms, device.algorithms.library);
  for (const auto &[product, algorithm] : device.algorithms.products)
    text += fmt::format("    - {{product: \"{}\", algorithm: \"{}\"}}\n", product, algorithm);
  return text;
}

} // namespace espalier
