// Measurements use one thread per rank, as runs do. All ranks measure at once, because they share memory and cores.
#include "tools/machine/calibrate.h"

#include "compiler/import/yaml/run_file_writer.h"
#include "format/host_machine.h"
#include "runtime/comm/local.h"
#include "runtime/kernels/kernels.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <numeric>
#include <ranges>
#include <thread>
#include <unistd.h>
#include <vector>

namespace espalier {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int fewestSamples = 5;
constexpr int64_t largeProduct = 512;                  ///< rows, columns and depth
constexpr int64_t layerHidden = 512, layerWide = 2048; ///< of a layer's products, with as many tokens as hidden sizes
constexpr int64_t attentionSequence = 512;
constexpr int64_t copyBytes = int64_t(32) << 20; ///< beyond the caches of one core
constexpr int64_t reducedElements = int64_t(1) << 21;
constexpr int spins = 100;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the seconds of one call of `work`: the median of samples that take at least `seconds` in total. A step of a
/// run has typical calls, not the fastest ones.
double timeOnce(double seconds, const std::function<void()> &work) {
  work(); // touches its memory
  std::vector<double> samples;
  for (double sum = 0; sum < seconds || samples.size() < fewestSamples;) {
    Clock::time_point begin = Clock::now();
    work();
    samples.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    sum += samples.back();
  }
  return median(std::move(samples));
}

/// Returns the median over the ranks of a measurement that all ranks make at once.
double onAllRanks(int ranks, const std::function<double()> &measure) {
  std::vector<double> results(static_cast<size_t>(ranks));
  std::barrier<> start(ranks);
  std::vector<std::jthread> threads;
  for (double &result : results)
    threads.emplace_back([&measure, &start, &result] {
      start.arrive_and_wait();
      result = measure();
    });
  threads.clear(); // joins
  return median(results);
}

/// Allocates the aligned memory of one library call.
class CallMemory {
public:
  /// Allocates buffers of one type. Buffer `step`, if any, holds the step number.
  CallMemory(rt::pb::LibraryCall &call, rt::pb::DataType type, std::initializer_list<int64_t> elements, int step = -1) {
    std::vector<rt::pb::DataType> types(elements.size(), type);
    if (step >= 0)
      types[step] = rt::pb::I32;
    for (int64_t count : elements) {
      uint64_t bytes = static_cast<uint64_t>(count) * rt::elementBytes(types[addresses.size()]);
      call.add_buffers()->set_bytes(bytes);
      addresses.push_back(allocate(bytes));
    }
    kernel = rt::makeLibraryKernel(call, types, /*threads=*/1);
    scratch = allocate(kernel->scratchBytesPerThread());
    shared = allocate(kernel->sharedScratchBytes());
  }

  void run() const {
    rt::CallArguments arguments{.buffers = addresses.data(), .scratch = shared};
    for (int64_t part = 0; part < kernel->parts(); ++part)
      kernel->run(arguments, part, scratch);
    kernel->finish(arguments);
  }

private:
  void *allocate(uint64_t bytes) {
    blocks.emplace_back(bytes + 64);
    auto address = reinterpret_cast<uintptr_t>(blocks.back().data());
    return reinterpret_cast<void *>((address + 63) / 64 * 64);
  }

  std::vector<std::vector<char>> blocks; ///< zeros: products take the same time for other values
  std::vector<void *> addresses;
  std::unique_ptr<rt::LibraryKernel> kernel;
  void *scratch = nullptr, *shared = nullptr;
};

/// Returns the call of one product: c [m, n] = op(a) op(b), where op transposes if its flag says so.
rt::pb::LibraryCall product(int64_t m, int64_t n, int64_t k, bool transposeA = false, bool transposeB = false) {
  rt::pb::LibraryCall call;
  call.set_function(rt::pb::LibraryCall::MATMUL);
  for (int64_t extent : {m, n, k, int64_t(1)})
    call.add_sizes(extent);
  call.set_transpose_a(transposeA);
  call.set_transpose_b(transposeB);
  return call;
}

/// Returns the rate of the products that a step makes of each matrix product of a layer: forward, the gradient of the
/// input and that of the weight. The matrices exceed the caches of one core, as those of a step do.
double layerFlops(int ranks, double seconds, rt::pb::DataType type) {
  return onAllRanks(ranks, [&] {
    constexpr int64_t tokens = layerHidden, narrow = tokens * layerHidden, weight = layerHidden * layerWide,
                      wide = tokens * layerWide;
    rt::pb::LibraryCall calls[] = {product(tokens, layerWide, layerHidden),
                                   product(tokens, layerHidden, layerWide, /*transposeA=*/false, /*transposeB=*/true),
                                   product(layerHidden, layerWide, tokens, /*transposeA=*/true)};
    CallMemory forward(calls[0], type, {narrow, weight, wide}), input(calls[1], type, {wide, weight, narrow}),
        gradient(calls[2], type, {narrow, wide, weight});
    auto pass = [&] {
      for (const CallMemory *call : {&forward, &input, &gradient})
        call->run();
    };
    return 3 * 2.0 * static_cast<double>(tokens) * static_cast<double>(weight) / timeOnce(seconds, pass);
  });
}

double productFlops(int ranks, double seconds, int64_t size) {
  return onAllRanks(ranks, [&] {
    rt::pb::LibraryCall call = product(size, size, size);
    CallMemory memory(call, rt::pb::F32, {size * size, size * size, size * size});
    return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) /
           timeOnce(seconds, [&] { memory.run(); });
  });
}

/// Causal self-attention of one sample, forward and backward. Counts operations as the model dialect does: two
/// products forward and five backward, each 2 n n d per head, halved by the mask.
double attentionFlops(int ranks, double seconds) {
  constexpr int64_t sequence = attentionSequence, heads = 8, headDim = 64, all = sequence * heads * headDim;
  return onAllRanks(ranks, [&] {
    auto call = [&](rt::pb::LibraryCall::Function function) {
      rt::pb::LibraryCall call;
      call.set_function(function);
      for (int64_t extent : {int64_t(1), sequence, heads, int64_t(1), headDim})
        call.add_sizes(extent);
      call.add_floats(1 / std::sqrt(static_cast<double>(headDim)));
      call.set_causal(true);
      return call;
    };
    rt::pb::LibraryCall forward = call(rt::pb::LibraryCall::ATTENTION_FORWARD);
    rt::pb::LibraryCall backward = call(rt::pb::LibraryCall::ATTENTION_BACKWARD);
    constexpr int64_t rows = sequence * heads;
    CallMemory first(forward, rt::pb::F32, {all, all, all, all, rows, 1}, /*step=*/5);
    CallMemory second(backward, rt::pb::F32, {all, all, all, all, rows, all, 1, all, all, all}, /*step=*/6);
    double taken = timeOnce(seconds, [&] { first.run(); }) + timeOnce(seconds, [&] { second.run(); });
    return 7 * 2.0 * sequence * static_cast<double>(all) / 2 / taken;
  });
}

double copyRate(int ranks, double seconds) {
  return onAllRanks(ranks, [&] {
    std::vector<char> from(copyBytes, 1), to(copyBytes);
    double taken = timeOnce(seconds, [&] { std::memcpy(to.data(), from.data(), copyBytes); });
    return 2.0 * copyBytes / taken;
  });
}

double launchTime(int ranks, double seconds) {
  constexpr int calls = 1000; // a single call is below the clock's resolution
  return onAllRanks(ranks, [&] {
    rt::pb::LibraryCall call;
    call.set_function(rt::pb::LibraryCall::ZERO);
    call.add_sizes(64);
    CallMemory memory(call, rt::pb::F32, {16});
    return timeOnce(seconds,
                    [&] {
                      for (int i = 0; i < calls; ++i)
                        memory.run();
                    }) /
           calls;
  });
}

/// Returns the seconds of one all-reduce of `elements` f32. All ranks take the same number of samples, as collectives
/// must.
double allReduceSeconds(int ranks, int64_t elements, int samples) {
  rt::LocalWorld world(ranks);
  std::vector<double> taken;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<rt::Communicator> comm = world.communicator(rank);
      std::vector<int> members(static_cast<size_t>(ranks));
      std::iota(members.begin(), members.end(), 0);
      uint32_t group = comm->joinGroup(members, /*queue=*/0);
      std::vector<float> values(static_cast<size_t>(elements));
      rt::CollectiveShape shape{.elements = {elements}};
      for (int sample = 0; sample < samples + 1; ++sample) {
        Clock::time_point begin = Clock::now();
        void *address = values.data();
        rt::Ticket ticket = comm->startCollective(group, shape, &address, &address);
        comm->wait(ticket, spins);
        if (rank == 0 && sample > 0)
          taken.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      }
    });
  threads.clear(); // joins
  return median(std::move(taken));
}

/// A figure of a round, its key in the cluster file, and whether larger is better.
struct Figure {
  double CalibrationRound::*value;
  const char *key;
  bool isRate;
};
constexpr Figure figures[] = {{&CalibrationRound::fastest, "peak_flops.f32", true},
                              {&CalibrationRound::large, "matmul_efficiency", true},
                              {&CalibrationRound::bf16, "peak_flops.bf16", true},
                              {&CalibrationRound::f16, "peak_flops.f16", true},
                              {&CalibrationRound::attention, "attention_efficiency", true},
                              {&CalibrationRound::copy, "memory_bandwidth", true},
                              {&CalibrationRound::link, "link.bandwidth", true},
                              {&CalibrationRound::launch, "launch_seconds", false},
                              {&CalibrationRound::hop, "link.latency", false}};

/// Fits the cost model's ring, 2 (n - 1) / n B / W + 2 (n - 1) hops, to a small and a large buffer.
void measureLink(int ranks, double seconds, CalibrationRound &round) {
  double n = ranks, bytes = 4.0 * reducedElements;
  // With many ranks on few cores thread scheduling dominates. A few probe calls determine the number of samples.
  auto measure = [&](int64_t elements, double wanted) {
    double probe = allReduceSeconds(ranks, elements, fewestSamples);
    int samples = static_cast<int>(std::clamp(wanted / probe, double(fewestSamples), 1000.0));
    return allReduceSeconds(ranks, elements, samples);
  };
  double small = measure(16, std::max(seconds, 0.1));
  double large = measure(reducedElements, seconds);
  round.hop = small / (2 * (n - 1));
  round.link = 2 * (n - 1) / n * bytes / std::max(large - small, 1e-9);
}

/// Measures work on `ranks` threads, and links between `linked` threads.
CalibrationRound measureRound(int ranks, int linked, double seconds,
                              const std::function<void(const std::string &)> &say) {
  CalibrationRound round;
  for (int64_t size : {int64_t(128), int64_t(256), int64_t(384), largeProduct}) {
    say(fmt::format("f32 product of {} rows", size));
    round.fastest = std::max(round.fastest, productFlops(ranks, seconds, size));
  }
  say("f32 products of a layer");
  round.large = layerFlops(ranks, seconds, rt::pb::F32);
  say("products of 16 bits");
  round.bf16 = layerFlops(ranks, seconds, rt::pb::BF16);
  round.f16 = layerFlops(ranks, seconds, rt::pb::F16);
  say("attention");
  round.attention = attentionFlops(ranks, seconds);
  say("copies and small calls");
  round.copy = copyRate(ranks, seconds);
  round.launch = launchTime(ranks, seconds);
  if (linked > 1) {
    say("all-reduces");
    measureLink(linked, seconds, round);
  }
  return round;
}

} // namespace

uint64_t calibrationBytes(int ranks) { return static_cast<uint64_t>(ranks) * 2 * copyBytes; }

MeasuredMachine measureMachine(int ranks, double seconds, const std::function<void(const std::string &)> &say) {
  MeasuredMachine machine;
  machine.processor = rt::machineName();
  machine.ranks = ranks;
  int cores = rt::machineCores();
  machine.cores = ranks > cores ? cores : 0;
  machine.memoryBytes = rt::machineMemory() / ranks;
  std::vector<CalibrationRound> rounds;
  for (int round = 1; round <= calibrationRounds; ++round) {
    auto sayRound = [&](const std::string &what) {
      say(fmt::format("{} (round {} of {})", what, round, calibrationRounds));
    };
    CalibrationRound &figures =
        rounds.emplace_back(measureRound(std::min(ranks, cores), ranks, seconds / calibrationRounds, sayRound));
    if (machine.cores > 0) { // of a rank that has a core
      figures.link *= static_cast<double>(ranks) / cores;
      figures.hop *= static_cast<double>(cores) / ranks;
    }
  }
  keepBest(rounds, machine);
  return machine;
}

void keepBest(const std::vector<CalibrationRound> &rounds, MeasuredMachine &machine) {
  CalibrationRound best;
  for (const Figure &figure : figures) {
    auto [least, most] = std::ranges::minmax(rounds | std::views::transform(figure.value));
    best.*figure.value = figure.isRate ? most : least;
    if (double spread = least > 0 ? most / least - 1 : 0; spread > noticedSpread)
      machine.spreads.emplace_back(figure.key, spread);
  }
  machine.f32Flops = best.fastest;
  machine.matmulEfficiency = best.large / best.fastest;
  // All types share one efficiency, so that the 16-bit peaks are scaled to match the measured products.
  machine.bf16Flops = best.bf16 / machine.matmulEfficiency;
  machine.f16Flops = best.f16 / machine.matmulEfficiency;
  machine.attentionEfficiency = best.attention / machine.f32Flops;
  machine.memoryBytesPerSecond = best.copy;
  machine.launchSeconds = best.launch;
  machine.linkLatencySeconds = best.hop;
  machine.linkBytesPerSecond = best.link;
}

std::string clusterNameOf(const std::string &file) {
  std::string name;
  for (char c : std::filesystem::path(file).stem().string())
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '_';
  bool isWord = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0]));
  return isWord ? name : name.empty() ? "measured" : "measured_" + name;
}

std::string describeSpreads(const MeasuredMachine &machine) {
  std::string text;
  for (const auto &[key, spread] : machine.spreads)
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", key, 100 * spread);
  return text;
}

std::string clusterYaml(const std::string &name, const MeasuredMachine &machine) {
  int atOnce = machine.cores > 0 ? machine.cores : machine.ranks;
  std::string ranks = atOnce == 1 ? "1 rank" : fmt::format("{} ranks at once", atOnce);
  std::string text =
      fmt::format("# Measured by `{}` on {}; a device is a thread.\n", machine.command, machine.processor);
  text += fmt::format("name: {}\nhosts: {}\ndevices_per_host: {}\n", name, machine.hosts, machine.ranks);
  if (machine.cores > 0)
    text +=
        fmt::format("cores: {}  # which the ranks share; rates are those of a rank that has a core\n", machine.cores);
  text += fmt::format("memory_bytes: {:.3g}  # physical memory over {} ranks\n", machine.memoryBytes, machine.ranks);
  text +=
      fmt::format("peak_flops: {{f32: {:.3g}, bf16: {:.3g}, f16: {:.3g}}}  # fastest f32 product of 128 to {} rows on "
                  "{}; 16 bits: products of a layer over the efficiency\n",
                  machine.f32Flops, machine.bf16Flops, machine.f16Flops, largeProduct, ranks);
  text += fmt::format("memory_bandwidth: {:.3g}  # copy of {} MiB on {}, read plus written\n",
                      machine.memoryBytesPerSecond, copyBytes >> 20, ranks);
  text += fmt::format("matmul_efficiency: {:.3g}  # f32 products of a layer, forward and backward, over the fastest "
                      "one\n",
                      machine.matmulEfficiency);
  text += fmt::format("attention_efficiency: {:.3g}  # causal f32 attention over {} positions, forward and backward\n",
                      machine.attentionEfficiency, attentionSequence);
  text += fmt::format("launch_seconds: {:.3g}  # smallest library call\n", machine.launchSeconds);
  if (machine.ranks > 1)
    text += fmt::format(
        "link: {{bandwidth: {:.3g}, latency: {:.3g}}}  # all-reduce of {} MiB and of 64 B over {} threads\n",
        machine.linkBytesPerSecond, machine.linkLatencySeconds, reducedElements * 4 >> 20, machine.ranks);
  if (machine.hosts > 1)
    text += fmt::format("network: {{bandwidth: {:.3g}, latency: {:.3g}}}  # the same between two hosts\n",
                        machine.networkBytesPerSecond, machine.networkLatencySeconds);
  text += fmt::format("measured_on: {}\n", quotedYaml(machine.processor));
  text += "device: cpu  # class of the errors in configs/systems\n";
  if (!machine.spreads.empty())
    text += fmt::format("# Not repeatable: over {} rounds, of which the best counts, these varied: {}\n",
                        calibrationRounds, describeSpreads(machine));
  return text;
}

} // namespace espalier
