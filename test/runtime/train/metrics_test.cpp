// Tests the metrics of steps and their file: a resumed run truncates the file, and disk errors are reported.
#include "runtime/train/metrics.h"

#include "runtime/train/line_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <limits>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class MetricsTest : public testing::Test {
protected:
  ~MetricsTest() override { fs::remove(file); }

  std::string content() const {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  /// Returns the file after a run resumes at `step` and adds no line.
  std::string continued(const std::string &before, int64_t step) {
    std::ofstream(file, std::ios::binary) << before;
    RunOptions options;
    options.metrics = file;
    options.resume = true;
    Metrics(options).continueAfter(step);
    return content();
  }

  fs::path file = fs::temp_directory_path() / fmt::format("espalier-metrics-{}.jsonl", getpid());
};

using MetricsLines = MetricsTest;

TEST_F(MetricsLines, DropsLinesOfRepeatedSteps) {
  const std::string one = "{\"step\":1,\"loss\":5}\n", two = "{\"step\":2,\"loss\":4}\n",
                    tested = "{\"evaluation_after_step\":2,\"evaluation_loss\":4}\n",
                    three = "{\"step\":3,\"loss\":3}\n";
  testing::internal::CaptureStderr();
  EXPECT_EQ(continued(one + two + tested + three, 2), one + two + tested);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(".jsonl: note: 1 line of steps after 2, from which the run resumes, dropped"));
  EXPECT_EQ(continued(one + two + tested + three, 1), one);
  EXPECT_EQ(continued(one + two + tested + three, 0), "");
  EXPECT_EQ(continued(one + two + tested + three, 3), one + two + tested + three);
  EXPECT_EQ(continued("", 3), "");
  EXPECT_EQ(continued(two + "{\"slow_after_step\":3}\n", 2), two);
  // A killed run may leave an incomplete line.
  EXPECT_EQ(continued(one + two + "{\"step\":3,\"lo", 2), one + two);
}

TEST_F(MetricsLines, AContinuedFileGetsTheLastRestartOnly) {
  const RestartRecord shrink{RestartRecord::shrink, 4, 2, "x.2.plan", "rank 1: killed", 1, 3, 0};
  const RestartRecord grow{RestartRecord::grow, 2, 4, "x.plan", "", 1, 3, 0};
  RunOptions options;
  options.metrics = file;
  options.restarts = {shrink, grow};
  Metrics(options).addRestarts(/*step=*/0); // a new file: no checkpoint was finished
  std::string all = content();
  EXPECT_EQ(std::ranges::count(all, '\n'), 2);
  EXPECT_THAT(all, HasSubstr("{\"restarted_after_step\":0,\"kind\":\"shrink\",\"ranks_before\":4,\"ranks\":2,\"plan\":"
                             "\"x.2.plan\",\"restart\":1,\"max_restarts\":3,\"down_seconds\":"));
  options.resume = true;
  {
    Metrics metrics(options);
    metrics.continueAfter(/*step=*/5); // a restart before step 5 stays
    metrics.addRestarts(/*step=*/5);
  }
  EXPECT_THAT(content(), testing::StartsWith(all + "{\"restarted_after_step\":5,\"kind\":\"grow\","));
  EXPECT_EQ(continued(content(), 4), all);
}

TEST_F(MetricsLines, KeepsLinesOfOtherPrograms) {
  EXPECT_EQ(continued("a log\n{\"step\":9}\n", 2), "a log\n");
  EXPECT_EQ(continued("{\"step\":9}\na log", 2), "{\"step\":9}\na log\n"); // new lines follow it
  EXPECT_EQ(continued("{\"step\":\"nine\"}\n[9]\n", 2), "{\"step\":\"nine\"}\n[9]\n");
}

TEST_F(MetricsLines, AppendsToTheKeptLines) {
  continued("{\"step\":1}\n{\"step\":2}\n", 1);
  LineFile lines;
  lines.open(file, /*isContinued=*/true);
  lines.add("{\"step\":2}");
  EXPECT_EQ(content(), "{\"step\":1}\n{\"step\":2}\n");
}

// A run that ends before its first step keeps the file of the run before.
TEST_F(MetricsLines, TheFirstLineReplacesTheFile) {
  std::ofstream(file, std::ios::binary) << "{\"step\":7}\n";
  RunOptions options;
  options.metrics = file;
  {
    Metrics metrics(options);
  }
  EXPECT_EQ(content(), "{\"step\":7}\n");
  LineFile lines;
  lines.open(file, /*isContinued=*/false);
  lines.add("{\"step\":1}");
  lines.add("{\"step\":2}");
  EXPECT_EQ(content(), "{\"step\":1}\n{\"step\":2}\n");
}

// A checkpoint of step 2 that was found complete after step 3 belongs to step 3 in the order of the lines.
TEST_F(MetricsLines, CheckpointsBelongToTheStepThatFoundThem) {
  SaveRecord save{.step = 2, .afterStep = 3, .name = "step-00000002", .bytes = 8000000};
  save.blockedSeconds = 0.002, save.writtenSeconds = 0.016;
  std::string line = metricsLine(save) + "\n", two = "{\"step\":2}\n", three = "{\"step\":3}\n";
  EXPECT_EQ(line, "{\"saved_by_step\":3,\"saved_step\":2,\"checkpoint\":\"step-00000002\",\"checkpoint_bytes\":8000000,"
                  "\"blocked_seconds\":0.002,\"written_seconds\":0.016,\"schema\":1}\n");
  EXPECT_EQ(logLine(save, "c"),
            "saved c/step-00000002: 8 MB; training waited 2.0 ms (4.000 GB/s), written in 16.0 ms (0.500 GB/s)");
  EXPECT_EQ(loadedLine("c/step-00000002", 8000000, 0.004), "loaded c/step-00000002: 8 MB in 4.0 ms (2.000 GB/s)");
  testing::internal::CaptureStderr();
  EXPECT_EQ(continued(two + three + line, 2), two);
  EXPECT_EQ(continued(two + three + line, 3), two + three + line);
  testing::internal::GetCapturedStderr();
}

TEST(LogLine, HasNoSignBeforeNan) {
  StepRecord record;
  record.labels = 5;
  record.loss = record.gradNorm = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(logLine(record, 3), HasSubstr("loss nan  grad norm nan"));
  EXPECT_THAT(logLine(record, 3), Not(HasSubstr("-nan")));
}

TEST(LogLine, HasTheLoadsOfExperts) {
  StepRecord record;
  record.labels = 5;
  EXPECT_THAT(logLine(record, 3), Not(HasSubstr("experts")));
  EXPECT_THAT(metricsLine(record), Not(HasSubstr("experts")));
  record.experts = {.steps = 2,
                    .layers = {{.layer = "block.0", .chosen = {3, 1, 4, 0}, .dropped = 2},
                               {.layer = "block.1", .chosen = {2, 2, 2, 2}},
                               {.layer = "block.2", .chosen = {0, 0}}}}; // nothing was routed
  EXPECT_THAT(logLine(record, 3), HasSubstr("  experts 2.00 x mean, 12.5 % dropped"));
  EXPECT_THAT(metricsLine(record),
              HasSubstr("\"experts\":{\"steps\":2,\"max_over_mean\":2.0,\"dropped\":0.125,\"layers\":["
                        "{\"layer\":\"block.0\",\"choices\":8,\"load\":[0.375,0.125,0.5,0.0],\"dropped\":0.25},"
                        "{\"layer\":\"block.1\",\"choices\":8,\"load\":[0.25,0.25,0.25,0.25],\"dropped\":0.0},"
                        "{\"layer\":\"block.2\",\"choices\":0,\"load\":[0.0,0.0],\"dropped\":0.0}]}"));
}

TEST(LogLine, EndsWithTheTimeLeft) {
  StepRecord record;
  record.step = 3, record.labels = 5, record.isApplied = true;
  EXPECT_THAT(logLine(record, 9), Not(HasSubstr("left")));
  EXPECT_THAT(logLine(record, 9, 200), testing::EndsWith("  3 min 20 s left"));
}

// The line fits every width. A narrower line has a part less, the least important first.
TEST(ProgressLine, FitsTheTerminal) {
  StepRecord record;
  record.step = 50, record.labels = 5, record.isApplied = true, record.loss = 2.5, record.gradNorm = 1.25;
  record.seconds = 0.0123, record.tokensPerSecond = 123456, record.learningRate = 1e-3, record.mfu = 0.41;
  const int64_t steps = 100;
  for (int columns = 1; columns <= 200; ++columns)
    EXPECT_LT(progressLine(record, steps, 3, columns).size(), size_t(std::max(2, columns))) << columns;
  EXPECT_EQ(progressLine(record, steps, 3, 140), "[###############...............] " + logLine(record, steps, 3));
  EXPECT_EQ(progressLine(record, steps, 3, 80),
            "[#######.......] step  50/100  loss 2.50000  12.3 ms  123456 tokens/s  3 s left");
  EXPECT_EQ(progressLine(record, steps, 3, 60), "[#####......] step  50/100  loss 2.50000  12.3 ms  3 s left");
  EXPECT_EQ(progressLine(record, steps, 3, 40), "step  50/100  loss 2.50000  3 s left");
  EXPECT_EQ(progressLine(record, steps, 3, 30), "step  50/100  loss 2.50000");
  record.isApplied = false; // why a step is skipped comes before its speed
  EXPECT_EQ(progressLine(record, steps, 3, 80),
            "step  50/100  loss 2.50000  12.3 ms  skipped: overflow, loss scale 1  3 s left");
}

TEST(DurationText, HasTwoUnitsAtMost) {
  EXPECT_EQ(durationText(0.2), "1 s");
  EXPECT_EQ(durationText(59.5), "1 min");
  EXPECT_EQ(durationText(200), "3 min 20 s");
  EXPECT_EQ(durationText(7500), "2 h 5 min");
  EXPECT_EQ(durationText(86400 * 3 + 4 * 3600 + 59), "3 d 4 h");
}

// Standard output of a test is no terminal: one line per interval, the first and the last step.
TEST(Log, HasALinePerInterval) {
  RunOptions options;
  options.log = true, options.steps = 25;
  for (auto [every, lines] : {std::pair(std::optional<int64_t>(), 25), {std::optional<int64_t>(10), 4}}) {
    options.logEvery = every;
    testing::internal::CaptureStdout();
    Metrics metrics(options);
    for (StepRecord record; record.step < options.steps;) {
      ++record.step;
      record.labels = 1, record.seconds = 1;
      metrics.add(record);
    }
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(std::ranges::count(text, '\n'), lines);
    EXPECT_THAT(text, testing::AllOf(HasSubstr("step  1/25"), HasSubstr("24 s left"), HasSubstr("step 25/25")));
  }
}

// The check value of CRC-32C in the catalogue of parametrised CRC algorithms, and RFC 3720, B.4: 32 bytes of zeros.
TEST(EventFile, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
}

// The bytes of a record that TensorFlow's TFRecordWriter writes: length, masked CRC, data, masked CRC.
TEST(EventFile, RecordsAreFramed) {
  std::string record = tfRecord("abc");
  ASSERT_EQ(record.size(), 8 + 4 + 3 + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

// Field 1: a double; 2: the step; 5: the summary, in which each value has a tag and a float. What is not finite is left
// out.
TEST(EventFile, EventsHaveStepAndScalars) {
  std::string event = scalarEvent(1.0, 300, {{"loss", 0.5}, {"bad", std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(event, std::string("\x09\0\0\0\0\0\0\xf0\x3f"    // wall_time: 1.0
                               "\x10\xac\x02"                // step: 300
                               "\x2a\x0d\x0a\x0b"            // summary of 13 bytes, with a value of 11
                               "\x0a\x04loss\x15\0\0\0\x3f", // tag, simple_value: 0.5f
                               9 + 3 + 4 + 11));
}

} // namespace
} // namespace espalier::rt
