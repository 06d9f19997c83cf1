// Tests the values that a run offers to Prometheus, over HTTP.
#include "runtime/train/prometheus.h"

#include "runtime/status.h"

#include <gmock/gmock.h>
#include <httplib.h>
#include <limits>

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using testing::Not;

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

TEST(PrometheusEndpoint, AnswersUntilItIsDestroyed) {
  int port = 0;
  {
    PrometheusEndpoint endpoint;
    endpoint.add(stepOf(1, 2)); // not open: no effect
    endpoint.open("0");
    ASSERT_THAT(endpoint.url(), testing::MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/metrics"));
    port = std::stoi(endpoint.url().substr(endpoint.url().rfind(':') + 1));
    endpoint.add(stepOf(2, 4.5));
    httplib::Client client("127.0.0.1", port);
    httplib::Result answer = client.Get("/metrics");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200);
    EXPECT_THAT(answer->get_header_value("Content-Type"), HasSubstr("version=0.0.4"));
    EXPECT_THAT(answer->body, HasSubstr("\nespalier_loss 4.5\n"));
    EXPECT_THAT(answer->body, HasSubstr("\nespalier_steps_total 1\n"));
    EXPECT_EQ(client.Get("/other")->status, 404);
    PrometheusEndpoint second;
    EXPECT_THROW(second.open(std::to_string(port)), PlanError) << "the port is taken";
  }
  EXPECT_FALSE(httplib::Client("127.0.0.1", port).Get("/metrics"));
}

TEST(PrometheusEndpoint, RefusesOtherPlaces) {
  PrometheusEndpoint endpoint;
  for (const char *place : {"", "nonsense", "127.0.0.1:", "127.0.0.1:70000", "192.0.2.1:9400"})
    EXPECT_THROW(endpoint.open(place), PlanError) << place;
  EXPECT_EQ(endpoint.url(), "");
}

} // namespace
} // namespace espalier::rt
