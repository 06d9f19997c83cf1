// Tests the values that a run offers to Prometheus, over HTTP.
#include "runtime/train/prometheus.h"

#include "runtime/status.h"
#include "test/runtime/http/raw_client.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <limits>

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

StepRecord stepOf(int64_t step, double loss, bool isApplied = true) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  record.labels = 100;
  record.isApplied = isApplied;
  record.peakBytes = uint64_t(1) << 40;
  return record;
}

TEST(RunGauges, HoldTheLatestStepAndCountAll) {
  RunGauges gauges;
  std::vector<RestartRecord> restarts(3);
  restarts[1].kind = RestartRecord::grow;
  restarts[2].kind = RestartRecord::same;
  gauges.begin(10, restarts);
  EXPECT_THAT(gauges.text(), Not(HasSubstr("espalier_loss ")));
  StepRecord routed = stepOf(7, 4.5);
  routed.experts = {.steps = 1, .layers = {{.layer = "block.0", .chosen = {3, 1}, .dropped = 1}}};
  gauges.add(routed);
  gauges.add(stepOf(8, std::numeric_limits<double>::quiet_NaN(), /*isApplied=*/false));
  gauges.add(RollbackRecord{});
  SaveRecord save;
  save.step = 8;
  save.bytes = 12345;
  save.blockedSeconds = 0.5;
  gauges.add(save);
  gauges.add(EvaluationRecord{8, 3.25, 64});
  gauges.add(SlowRecord{8, 20, {{.rank = 3, .ratio = 1.5}}, {"node1"}});
  for (const char *line :
       {"planned_steps 10", "steps_total 2", "skipped_steps_total 1", "labels_total 200", "step 8", "loss nan",
        "memory_bytes 1099511627776", "rollbacks_total 1", "restarts_total 2", "growths_total 1", "checkpoint_step 8",
        "checkpoint_bytes 12345", "checkpoint_blocked_seconds_total 0.5", "evaluation_loss 3.25",
        "slow_rank_ratio{rank=\"3\"} 1.5", "expert_load_max_ratio 1.5", "expert_dropped_ratio 0.25"})
    EXPECT_THAT(gauges.text(), HasSubstr(std::string("\nespalier_") + line + "\n"));
  gauges.add(SlowRecord{});
  EXPECT_THAT(gauges.text(), Not(HasSubstr("rank=\"3\""))) << "the rank has recovered";
}

/// Returns the response to a request to a port of this machine.
std::string ask(const PrometheusEndpoint &endpoint, const std::string &request) {
  http::RawClient client(std::stoi(endpoint.url().substr(endpoint.url().rfind(':') + 1)));
  client.send(request);
  return client.receiveAll();
}

TEST(PrometheusEndpoint, AnswersUntilItIsDestroyed) {
  std::string last = "Connection: close\r\n";
  int port = 0;
  {
    PrometheusEndpoint endpoint;
    endpoint.add(stepOf(1, 2)); // not open: no effect
    endpoint.open("0");
    ASSERT_THAT(endpoint.url(), testing::MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/metrics"));
    port = std::stoi(endpoint.url().substr(endpoint.url().rfind(':') + 1));
    endpoint.add(stepOf(2, 4.5));
    std::string said = ask(endpoint, http::get("/metrics", last));
    EXPECT_THAT(said, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"));
    EXPECT_THAT(said, HasSubstr("\nespalier_loss 4.5\n"));
    EXPECT_THAT(said, HasSubstr("\nespalier_steps_total 1\n"));
    EXPECT_THAT(ask(endpoint, http::get("/other")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(endpoint, http::post("/metrics", "")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(endpoint, http::post("/metrics", "{}")), StartsWith("HTTP/1.1 413 "));
    EXPECT_THAT(ask(endpoint, http::postChunked("/metrics")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(endpoint, http::get("/metrics", std::string(9000, 'x'))), StartsWith("HTTP/1.1 431 "));
    EXPECT_THAT(ask(endpoint, "GET /metrics HTTP/1.1\r\nHost: evil.test\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
    std::vector<http::RawClient> idle;
    for (int i = 0; i < 100; ++i)
      idle.emplace_back(port);
    EXPECT_THAT(ask(endpoint, http::get("/metrics", last)), StartsWith("HTTP/1.1 200 "));
    PrometheusEndpoint second;
    EXPECT_THROW(second.open(std::to_string(port)), PlanError) << "the port is taken";
  }
  PrometheusEndpoint next;
  next.open(std::to_string(port)); // free again
}

TEST(PrometheusEndpoint, NeedsATokenBeyondThisMachine) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("token-" + std::to_string(getpid()));
  std::ofstream(file) << "secret\n";
  PrometheusEndpoint endpoint;
  try {
    endpoint.open("0.0.0.0:0");
    FAIL();
  } catch (const PlanError &error) {
    EXPECT_STREQ(error.what(), "--prometheus 0.0.0.0:0 lets others in, and there is no token; give "
                               "--prometheus-token-file, or listen on 127.0.0.1");
  }
  EXPECT_THROW(endpoint.open("0.0.0.0:0", "/dev/null"), PlanError) << "no token in its first line";
  endpoint.open("0.0.0.0:0", file);
  std::filesystem::remove(file);
  std::string key = "Connection: close\r\nAuthorization: Bearer ",
              host = "GET /metrics HTTP/1.1\r\nHost: gpu7.test\r\n";
  EXPECT_THAT(ask(endpoint, host + "\r\n"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(endpoint, host + key + "secre\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(endpoint, host + key + "secret\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(PrometheusEndpoint, RefusesOtherPlaces) {
  PrometheusEndpoint endpoint;
  for (const char *place : {"", "nonsense", "127.0.0.1:", "127.0.0.1:70000", "192.0.2.1:9400"})
    EXPECT_THROW(endpoint.open(place), PlanError) << place;
  EXPECT_EQ(endpoint.url(), "");
}

} // namespace
} // namespace espalier::rt
