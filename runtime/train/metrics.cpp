// The JSON keys are a contract with tests and tools.
#include "runtime/train/metrics.h"

#include "runtime/device/cpu/arena.h"
#include "runtime/kernels/kernels.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr int barWidth = 30;

/// JSON has no infinities: they become null.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

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

/// "nan" in place of "-nan": which of both hardware makes says nothing.
double unsignedNaN(double number) { return std::isnan(number) ? std::abs(number) : number; }

} // namespace

std::string logLine(const StepRecord &record, int64_t steps) {
  std::string result = record.labels > 0 ? fmt::format("loss {:.5f}  grad norm {:.4f}", record.loss, unsignedNaN(record.gradNorm))
                                         : std::string("no labels in the batch: no update");
  std::string line = fmt::format("step {:>{}}/{}  {}  lr {:.3e}  {:.1f} ms  {:.0f} tokens/s", record.step,
                                 fmt::formatted_size("{}", steps), steps, result, record.learningRate,
                                 record.seconds * 1e3, record.tokensPerSecond);
  if (record.mfu > 0)
    line += fmt::format("  mfu {:.1f} %", record.mfu * 100);
  if (!record.isApplied && record.labels > 0)
    line += fmt::format("  skipped: overflow, loss scale {:g}", record.lossScale);
  return line;
}

Metrics::Metrics(const RunOptions &options) : options(options), isTerminal(options.log && isatty(STDOUT_FILENO)) {
  if (!options.metrics.empty())
    file.open(options.metrics, /*isContinued=*/options.resume);
}

void Metrics::show(const std::string &line, int64_t step) {
  if (!options.log)
    return;
  if (!isTerminal)
    return print(line + "\n");
  int done = static_cast<int>(barWidth * step / std::max<int64_t>(1, options.steps));
  hasBar = step < options.steps;
  print(fmt::format("\r\x1b[K{}\n[{:#<{}}{:.<{}}] {}/{}{}", line, "", done, "", barWidth - done, step, options.steps,
                    hasBar ? "" : "\n"));
}

void Metrics::close(const std::string &line) {
  if (options.log)
    print((hasBar ? "\n" : "") + line + "\n");
}

/// A run that leaves something else behind survives the end of who reads its lines (`| head`); another ends with it, as
/// programs do.
void Metrics::print(const std::string &text) {
  if (isSilent || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0))
    return;
  int reason = errno;
  bool leavesFiles =
      !options.metrics.empty() || !options.checkpoint.empty() || options.keepGradients || options.keepParameters;
  isSilent = true;
  if (leavesFiles && reason != EPIPE)
    fmt::print(stderr, "standard output cannot be written: {}; the run goes on without\n", std::strerror(reason));
  if (leavesFiles)
    return;
  if (reason != EPIPE)
    throw std::runtime_error(fmt::format("standard output cannot be written: {}", std::strerror(reason)));
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

std::string metricsLine(const StepRecord &record) {
  nlohmann::ordered_json line = {{"step", record.step},
                                 {"loss", number(record.loss)},
                                 {"grad_norm", number(record.gradNorm)},
                                 {"lr", record.learningRate},
                                 {"step_seconds", record.seconds},
                                 {"tokens_per_second", record.tokensPerSecond},
                                 {"peak_bytes", record.peakBytes},
                                 {"mfu", record.mfu},
                                 {"loss_scale", record.lossScale},
                                 {"labels", record.labels},
                                 {"applied", record.isApplied}};
  return line.dump();
}

std::string metricsLine(const EvaluationRecord &record) {
  nlohmann::ordered_json line = {{"evaluation_after_step", record.step},
                                 {"evaluation_loss", number(record.loss)},
                                 {"evaluation_perplexity", number(std::exp(record.loss))},
                                 {"evaluation_tokens", record.tokens}};
  return line.dump();
}

void Metrics::add(const StepRecord &record) {
  if (options.log)
    show(logLine(record, options.steps), record.step);
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

void Metrics::add(const EvaluationRecord &record) {
  show(fmt::format("evaluation after step {}: loss {:.5f}, perplexity {:.5g}, over {:.0f} tokens", record.step,
                   record.loss, std::exp(record.loss), record.tokens),
       record.step);
  if (!options.metrics.empty())
    file.add(metricsLine(record));
}

double measurePeakFlops(int threads) {
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
  // Apart, as others that are at work for a moment would lower all of one run.
  measure();
  for (int again = 0; again < 2; ++again) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    measure();
  }
  return best;
}

} // namespace espalier::rt
