// Peaks are stored by processor, number of cores, number of threads and type.
#include "runtime/train/machine_peak.h"

#include "format/host_machine.h"
#include "runtime/device/cpu/arena.h"
#include "runtime/files/atomic_file.h"
#include "runtime/kernels/kernels.h"
#include "runtime/program.h"
#include "runtime/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

struct PeakJob {
  const LibraryKernel *kernel;
  const CallArguments *arguments;
  const Arena *scratch;
  size_t scratchBytes;
};

void runPeakPart(void *context, int64_t part, int thread) {
  PeakJob &job = *static_cast<PeakJob *>(context);
  job.kernel->run(*job.arguments, part, job.scratch->at(thread * job.scratchBytes));
}

/// Returns the best of `measurements`, which take about 20 ms each.
double measurePeak(int threads, pb::DataType type, int measurements) {
  constexpr int64_t size = 512;
  const int64_t width = type == pb::F32 ? 4 : 2;
  pb::LibraryCall call;
  call.set_function(pb::LibraryCall::MATMUL);
  for (int64_t extent : {size, size, size, int64_t(1)})
    call.add_sizes(extent);
  for (int i = 0; i < 3; ++i)
    call.add_buffers()->set_bytes(size * size * width);
  const pb::DataType types[] = {type, type, type};
  std::unique_ptr<LibraryKernel> kernel = makeLibraryKernel(call, types, threads);
  size_t matrixBytes = size * size * width, perThread = kernel->scratchBytesPerThread() / 64 * 64 + 64;
  Arena matrices(3 * matrixBytes), shared(kernel->sharedScratchBytes() + 64);
  Arena scratch(perThread * threads);
  void *buffers[] = {matrices.at(0), matrices.at(matrixBytes), matrices.at(2 * matrixBytes)};
  CallArguments arguments;
  arguments.buffers = buffers;
  arguments.scratch = shared.at(0);
  PeakJob job = {kernel.get(), &arguments, &scratch, perThread};
  ThreadPool pool(threads, 1000);
  using Clock = std::chrono::steady_clock;
  double best = 0;
  auto measure = [&] {
    for (Clock::time_point end = Clock::now() + std::chrono::milliseconds(20); Clock::now() < end;) {
      Clock::time_point begin = Clock::now();
      pool.run(kernel->parts(), runPeakPart, &job);
      kernel->finish(arguments);
      std::chrono::duration<double> seconds = Clock::now() - begin;
      best = std::max(best, 2.0 * size * size * size / seconds.count());
    }
  };
  // Pauses between measurements, because a short load of the machine would otherwise lower all of them.
  measure();
  for (int again = 1; again < measurements; ++again) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    measure();
  }
  return best;
}

/// Returns the content of the file, or an empty object if the file cannot be read.
nlohmann::ordered_json readPeaks(const std::filesystem::path &file) {
  std::ifstream stream(file);
  nlohmann::ordered_json peaks = nlohmann::ordered_json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return peaks.is_object() ? peaks : nlohmann::ordered_json::object();
}

std::string keyOf(int threads, pb::DataType type) {
  return fmt::format("{}, {} threads{}", machineName(), threads, type == pb::F32 ? "" : ", bf16");
}

/// Returns the stored peak, or 0.
double keptPeak(const std::string &key) {
  nlohmann::ordered_json peaks = readPeaks(peakFile());
  auto found = peaks.find(key);
  bool isPeak = found != peaks.end() && found->is_number() && found->get<double>() > 0;
  return isPeak ? found->get<double>() : 0;
}

/// Stores a peak that is larger than the stored one.
void keepPeak(const std::string &key, double flops) {
  std::filesystem::path file = peakFile();
  if (file.empty() || flops <= keptPeak(key))
    return;
  try {
    std::filesystem::create_directories(file.parent_path());
    nlohmann::ordered_json peaks = readPeaks(file);
    peaks[key] = flops;
    writeWhole(file, peaks.dump(2) + "\n");
  } catch (const std::exception &) {
    // The next run measures again.
  }
}

} // namespace

std::filesystem::path peakFile() {
  std::filesystem::path folder = cacheFolder();
  return folder.empty() ? folder : folder / "cpu_peaks.json";
}

pb::DataType productType(const pb::Plan &plan) {
  for (const pb::Subprogram &program : plan.subprograms())
    for (const pb::Instruction &instruction : program.instructions())
      if (const pb::LibraryCall &call = instruction.call();
          instruction.has_call() && call.function() == pb::LibraryCall::MATMUL)
        if (std::vector<pb::DataType> types = typesOf(plan, call); types[0] == pb::BF16 && types[1] == pb::BF16)
          return pb::BF16;
  return pb::F32;
}

double machinePeakFlops(int threads, pb::DataType type) {
  std::string key = keyOf(threads, type);
  double kept = keptPeak(key), measured = measurePeak(threads, type, kept > 0 ? 1 : 3);
  keepPeak(key, measured);
  return std::max(kept, measured);
}

void correctPeak(int threads, pb::DataType type, double reached) {
  constexpr double mostAbove = 2; // of a measurement on a busy machine
  double measured = measurePeak(threads, type, 3);
  keepPeak(keyOf(threads, type), reached <= mostAbove * measured ? std::max(reached, measured) : measured);
}

} // namespace espalier::rt
