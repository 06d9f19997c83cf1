#include "runtime/train/prometheus.h"

#include "runtime/http/server.h"
#include "runtime/prometheus_text.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"

#include <atomic>
#include <fmt/format.h>
#include <mutex>
#include <thread>

namespace espalier::rt {

void RunGauges::begin(int64_t steps, const std::vector<RestartRecord> &records) {
  plannedSteps = steps;
  for (const RestartRecord &record : records)
    ++(record.kind == RestartRecord::grow ? growths : restarts);
}

void RunGauges::add(const StepRecord &record) {
  step = record;
  if (!record.experts.isEmpty())
    experts = record.experts;
  if (!record.attentionScores.empty())
    largestScore = largestOf(record.attentionScores);
  ++trainedSteps;
  skippedSteps += !record.isApplied;
  labels += record.labels;
}

void RunGauges::add(const EvaluationRecord &record) { evaluation = record; }

void RunGauges::add(const SaveRecord &record) {
  save = record;
  ++saves;
  blockedSeconds += record.blockedSeconds;
}

void RunGauges::add(const RollbackRecord &) { ++rollbacks; }

void RunGauges::add(const SlowRecord &record) {
  slowRanks.clear();
  for (const SlowRank &rank : record.ranks)
    slowRanks.emplace_back(rank.rank, rank.ratio);
}

std::string RunGauges::text() const {
  PrometheusText text;
  text.single("planned_steps", "gauge", "Optimizer steps of the run in total.", plannedSteps);
  text.single("steps_total", "counter", "Steps that this process has trained.", trainedSteps);
  text.single("skipped_steps_total", "counter", "Steps of this process that changed no parameter.", skippedSteps);
  text.single("labels_total", "counter", "Tokens with loss weight that this process has trained.", labels);
  text.single("checkpoints_total", "counter", "Checkpoints that this process has saved.", saves);
  text.single("checkpoint_blocked_seconds_total", "counter", "Time that training has waited for saves.",
              blockedSeconds);
  text.single("rollbacks_total", "counter", "Returns to a checkpoint after the run had diverged.", rollbacks);
  text.single("restarts_total", "counter", "Restarts of an elastic run after failures.", restarts);
  text.single("growths_total", "counter", "Restarts of an elastic run because lost ranks returned.", growths);
  text.head("slow_rank_ratio", "gauge", "Compute time of a slow rank over the median.");
  for (auto [rank, ratio] : slowRanks)
    text.sample("slow_rank_ratio", ratio, {{"rank", std::to_string(rank)}});
  if (step) {
    text.single("step", "gauge", "The latest step, from 1.", step->step);
    text.single("loss", "gauge", "Mean loss of the latest step.", step->loss);
    text.single("gradient_norm", "gauge", "Norm of all gradients of the latest step, before clipping.", step->gradNorm);
    text.single("learning_rate", "gauge", "Learning rate of the latest step.", step->learningRate);
    text.single("step_seconds", "gauge", "Time of the latest step.", step->seconds);
    text.single("tokens_per_second", "gauge", "Tokens per second of the latest step.", step->tokensPerSecond);
    text.single("mfu_ratio", "gauge", "Model FLOP/s of the latest step over the peak of the machine; 0: unknown.",
                step->mfu);
    text.single("loss_scale", "gauge", "Loss scale of the latest step.", step->lossScale);
    text.single("memory_bytes", "gauge", "Memory of the rank that has most.", step->peakBytes);
  }
  if (!experts.isEmpty()) {
    text.single("expert_load_max_ratio", "gauge", "Choices of the busiest expert of a layer over an even spread.",
                experts.mostOverMean());
    text.single("expert_dropped_ratio", "gauge", "Share of the choices of experts beyond their capacity.",
                experts.droppedShare());
  }
  if (largestScore)
    text.single("max_attention_logit", "gauge", "Largest attention score of a step, before the softmax.",
                *largestScore);
  if (evaluation) {
    text.single("evaluation_step", "gauge", "Steps before the latest evaluation.", evaluation->step);
    text.single("evaluation_loss", "gauge", "Mean loss of the latest evaluation.", evaluation->loss);
  }
  if (save) {
    text.single("checkpoint_step", "gauge", "Step of the latest checkpoint.", save->step);
    text.single("checkpoint_bytes", "gauge", "Size of the latest checkpoint.", save->bytes);
  }
  return text.str();
}

namespace {

/// Bounds of the port: a run shares its memory and its cores with it.
const http::Limits limits = {.headBytes = 8 << 10,
                             .bodyBytes = 0,
                             .bodies = 0,
                             .connections = 32,
                             .idle = http::Limits::Seconds(5),
                             .head = http::Limits::Seconds(2),
                             .request = http::Limits::Seconds(2),
                             .write = http::Limits::Seconds(5),
                             .linger = http::Limits::Seconds(1),
                             .stop = http::Limits::Seconds(1)};

} // namespace

launch::Endpoint prometheusPlace(const std::string &place, const std::string &tokenFile) {
  launch::Endpoint endpoint;
  try {
    endpoint = launch::parseEndpoint(place.find(':') == std::string::npos ? "127.0.0.1:" + place : place);
  } catch (const launch::ChannelError &error) {
    throw PlanError(fmt::format("--prometheus: {}; PORT alone listens on this machine only", error.what()));
  }
  http::requireToken(tokenFile, endpoint.host, "--prometheus " + place, "give --prometheus-token-file");
  return endpoint;
}

struct PrometheusEndpoint::Server final : http::Handler {
  Server(const launch::Endpoint &place, http::Access access)
      : http(place.host, place.port, "give --prometheus a host of this machine and a free port, or 0",
             std::move(access), limits, *this),
        thread(startThread<std::jthread>([this] { http.run([this] { return isEnding.load(); }); })) {}
  ~Server() override { isEnding = true; }

  std::optional<http::Refusal> refuse(const http::Head &head) override {
    if (head.method == "GET" && head.path == "/metrics")
      return std::nullopt;
    return http::Refusal{404, "GET /metrics is served alone"};
  }
  http::Response responseOf(const http::Refusal &refusal) override {
    return {refusal.status, "text/plain", refusal.message + "\n"};
  }
  void answer(http::Request, std::shared_ptr<const http::Reply> reply) override {
    std::lock_guard lock(mutex);
    reply->send({200, prometheusType, gauges.text()});
  }

  std::mutex mutex; ///< of the gauges
  RunGauges gauges;
  std::atomic<bool> isEnding = false;
  http::Server http;
  std::jthread thread; ///< joins before what it uses is destroyed
};

PrometheusEndpoint::PrometheusEndpoint() = default;
PrometheusEndpoint::~PrometheusEndpoint() = default;

void PrometheusEndpoint::open(const std::string &place, const std::string &tokenFile) {
  launch::Endpoint endpoint = prometheusPlace(place, tokenFile);
  http::Access access;
  if (!tokenFile.empty())
    access.token = http::readTokenFile(tokenFile, "--prometheus-token-file");
  access.takesAnyHost = !access.token.empty(); // a page that a browser loads does not know the token
  server = std::make_unique<Server>(endpoint, std::move(access));
}

std::string PrometheusEndpoint::url() const { return server ? server->http.url() + "/metrics" : ""; }

void PrometheusEndpoint::change(const std::function<void(RunGauges &)> &work) {
  if (!server)
    return;
  std::lock_guard lock(server->mutex);
  work(server->gauges);
}

} // namespace espalier::rt
