// Peaks are stored by processor, number of cores and number of threads.
#include "runtime/train/machine_peak.h"

#include "format/host_machine.h"
#include "runtime/device/cpu/arena.h"
#include "runtime/files/atomic_file.h"
#include "runtime/kernels/kernels.h"
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

/// Returns the best of three measurements, which take about 80 ms together.
double measurePeak(int threads) {
  constexpr int64_t size = 512;
  pb::LibraryCall call;
  call.set_function(pb::LibraryCall::MATMUL);
  for (int64_t extent : {size, size, size, int64_t(1)})
    call.add_sizes(extent);
  for (int i = 0; i < 3; ++i)
    call.add_buffers()->set_bytes(size * size * 4);
  constexpr pb::DataType types[] = {pb::F32, pb::F32, pb::F32};
  std::unique_ptr<LibraryKernel> kernel = makeLibraryKernel(call, types, threads);
  size_t matrixBytes = size * size * 4, perThread = kernel->scratchBytesPerThread() / 64 * 64 + 64;
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
  // Pauses between measurements, because a short load of the machine would otherwise lower all three.
  measure();
  for (int again = 0; again < 2; ++again) {
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

std::string keyOf(int threads) { return fmt::format("{}, {} threads", machineName(), threads); }

/// Returns the stored peak, or 0.
double keptPeak(int threads) {
  nlohmann::ordered_json peaks = readPeaks(peakFile());
  auto found = peaks.find(keyOf(threads));
  bool isPeak = found != peaks.end() && found->is_number() && found->get<double>() > 0;
  return isPeak ? found->get<double>() : 0;
}

void keepPeak(int threads, double flops) {
  std::filesystem::path file = peakFile();
  if (file.empty())
    return;
  try {
    std::filesystem::create_directories(file.parent_path());
    nlohmann::ordered_json peaks = readPeaks(file);
    peaks[keyOf(threads)] = flops;
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

double machinePeakFlops(int threads) {
  if (double kept = keptPeak(threads); kept > 0)
    return kept;
  double measured = measurePeak(threads);
  keepPeak(threads, measured);
  return measured;
}

void measurePeakAgain(int threads) {
  if (double measured = measurePeak(threads); measured > keptPeak(threads))
    keepPeak(threads, measured);
}

} // namespace espalier::rt
