#include "runtime/train/prometheus.h"

#include "runtime/http_place.h"
#include "runtime/launch/control_channel.h"
#include "runtime/prometheus_text.h"
#include "runtime/status.h"

#include <chrono>
#include <fmt/format.h>
#include <httplib.h>
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

struct PrometheusEndpoint::Server {
  std::mutex mutex; ///< of the gauges
  RunGauges gauges;
  httplib::Server http;
  std::string url;
  std::jthread thread;

  ~Server() { http.stop(); }
};

PrometheusEndpoint::PrometheusEndpoint() = default;
PrometheusEndpoint::~PrometheusEndpoint() = default;

void PrometheusEndpoint::open(const std::string &place) {
  launch::Endpoint endpoint;
  try {
    endpoint = launch::parseEndpoint(place.find(':') == std::string::npos ? "127.0.0.1:" + place : place);
  } catch (const launch::ChannelError &error) {
    throw PlanError(fmt::format("--prometheus: {}; PORT alone listens on this machine only", error.what()));
  }
  auto opened = std::make_unique<Server>();
  httplib::Server &http = opened->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(1); };
  http.set_keep_alive_max_count(1); // one thread answers all
  http.set_read_timeout(1, 0);
  http.set_write_timeout(1, 0);
  http.set_payload_max_length(0);
  http.Get("/metrics", [state = opened.get()](const httplib::Request &, httplib::Response &response) {
    std::lock_guard lock(state->mutex);
    response.set_content(state->gauges.text(), prometheusType);
  });
  opened->url = listenForHttp(http, endpoint.host, endpoint.port,
                              "give --prometheus a host of this machine and a free port, or 0") +
                "/metrics";
  opened->thread = std::jthread([&http] { http.listen_after_bind(); });
  while (!http.is_running()) // stop() has no effect before
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server = std::move(opened);
}

std::string PrometheusEndpoint::url() const { return server ? server->url : ""; }

void PrometheusEndpoint::change(const std::function<void(RunGauges &)> &work) {
  if (!server)
    return;
  std::lock_guard lock(server->mutex);
  work(server->gauges);
}

} // namespace espalier::rt
