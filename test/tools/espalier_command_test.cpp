// Tests the contract of the command: exit codes, metrics, the JSON output of inspect, and resuming.
#include "format/plan_file.h"
#include "test/runtime/sample_plan.h"
#include "test/sanitizer.h"

#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Answer {
  int code;
  std::string text; ///< standard output and standard error
};

class Command : public testing::Test {
protected:
  Command() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / fmt::format("espalier-command-{}-{}", info->name(), getpid());
    fs::create_directories(folder);
    SampleOptions options;
    options.dp = options.pp = 2;
    options.microBatches = 2;
    std::ofstream(folder / "toy.plan", std::ios::binary) << planFileBytes(samplePlan(options));
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 2000; ++i)
      text << "an espalier is trained to a planned shape " << i << '\n';
  }
  ~Command() override { fs::remove_all(folder); }

  Answer run(const std::string &words) {
    std::string line = fmt::format("cd {} && {} {} > out.txt 2>&1", folder.string(), ESPALIER_COMMAND, words);
    int status = std::system(line.c_str());
    return {WEXITSTATUS(status), read("out.txt")};
  }

  std::string read(const std::string &name) const {
    std::stringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
  }

  /// Returns the lines of steps and evaluations of a metrics file.
  std::vector<nlohmann::json> lines(const std::string &name) const {
    std::ifstream stream(folder / name);
    std::vector<nlohmann::json> result;
    for (std::string line; std::getline(stream, line);)
      if (nlohmann::json json = nlohmann::json::parse(line); !json.contains("saved_step"))
        result.push_back(std::move(json));
    return result;
  }

  fs::path folder;
};

TEST_F(Command, RunWritesMetrics) {
  Answer answer = run("run toy.plan --data text.txt --steps 4 --metrics m.jsonl --eval-every 4");
  ASSERT_EQ(answer.code, 0) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("step 4/4  loss "));
  std::vector<nlohmann::json> metrics = lines("m.jsonl");
  ASSERT_EQ(metrics.size(), 5u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(metrics[i].at("step"), i + 1);
    for (const char *key : {"loss", "grad_norm", "lr", "step_seconds", "tokens_per_second", "peak_bytes"})
      EXPECT_GT(metrics[i].at(key).get<double>(), 0) << key;
  }
  EXPECT_GT(metrics[4].at("evaluation_loss").get<double>(), 0);
}

TEST_F(Command, ResumeContinuesTheLosses) {
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 6 --metrics straight.jsonl").code, 0);
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 3 --checkpoint c --metrics m.jsonl").code, 0);
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 6 --checkpoint c --metrics m.jsonl --resume").code, 0);
  std::vector<nlohmann::json> straight = lines("straight.jsonl"), resumed = lines("m.jsonl");
  ASSERT_EQ(resumed.size(), 6u);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(resumed[i].at("loss"), straight[i].at("loss")) << i;
}

/// Returns the losses of all lines with a loss, including evaluations.
std::vector<double> losses(const std::vector<nlohmann::json> &lines) {
  std::vector<double> values;
  for (const nlohmann::json &line : lines)
    values.push_back(line.contains("loss") ? line.at("loss") : line.at("evaluation_loss"));
  return values;
}

TEST_F(Command, RunReadsBlendsAndSplits) {
  std::ofstream(folder / "a.txt") << std::string(20000, 'a');
  std::ofstream(folder / "z.txt") << std::string(20000, 'z');
  auto lossesOf = [this](const std::string &words) {
    Answer answer = run("run toy.plan --steps 2 --eval-every 2 --metrics m.jsonl " + words);
    EXPECT_EQ(answer.code, 0) << answer.text;
    std::vector<double> values = losses(lines("m.jsonl"));
    fs::remove(folder / "m.jsonl");
    return values;
  };
  std::vector<double> a = lossesOf("--data a.txt"), z = lossesOf("--data z.txt");
  ASSERT_EQ(a.size(), 3u);
  // Six of the 8 samples are "aaa...", so the first loss is the weighted mean of the two.
  std::vector<double> mixed = lossesOf("--data 0.75 a.txt 0.25 z.txt");
  EXPECT_NEAR(mixed[0], 0.75 * a[0] + 0.25 * z[0], 1e-6 * mixed[0]);
  EXPECT_EQ(mixed, lossesOf("--data 3 --data a.txt --data 1 --data z.txt"));
  // The second half of the text has another letter, so training and evaluation see different letters.
  std::ofstream(folder / "az.txt") << std::string(20000, 'a') + std::string(20000, 'z');
  std::vector<double> halves = lossesOf("--data az.txt --split 1,1,0");
  EXPECT_EQ(halves[0], a[0]);
  EXPECT_GT(halves[2], 1.5 * a[2]);
  EXPECT_EQ(run("run toy.plan --data az.txt --split 1,0,0 --eval-every 1").code, 2);
  EXPECT_EQ(run("run toy.plan --data 0.3 a.txt 0.7").code, 2);
  // Without weights, each text counts by its size. Both have 4 samples.
  EXPECT_EQ(lossesOf("--data a.txt z.txt"), lossesOf("--data 1 a.txt 1 z.txt"));
  EXPECT_EQ(run("run toy.plan --data a.txt 0.5 z.txt").code, 2);
}

TEST_F(Command, RunReadsThePlansDataByDefault) {
  SampleOptions options;
  pb::Plan plan = samplePlan(options);
  pb::Data &data = *plan.mutable_settings()->mutable_data();
  data.add_path("text.txt");
  data.set_split("1,1,0");
  std::ofstream(folder / "own.plan", std::ios::binary) << planFileBytes(plan);
  ASSERT_EQ(run("run own.plan --steps 2 --metrics own.jsonl").code, 0);
  ASSERT_EQ(run("run own.plan --steps 2 --metrics told.jsonl --data text.txt --split 1,1,0").code, 0);
  ASSERT_EQ(run("run own.plan --steps 2 --metrics other.jsonl --split 9,1,0").code, 0);
  EXPECT_EQ(losses(lines("own.jsonl")), losses(lines("told.jsonl")));
  EXPECT_NE(losses(lines("own.jsonl")), losses(lines("other.jsonl")));
  Answer none = run("run toy.plan");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.text, HasSubstr("no data to read; give --data PATH"));
}

TEST_F(Command, CyclicOrderResumesInItsSecondEpoch) {
  std::ofstream short_(folder / "short.txt");
  for (int i = 0; i < 30; ++i)
    short_ << "line number " << i << '\n';
  short_.close();
  const std::string words = "run toy.plan --data short.txt --dataloader-type cyclic --steps ";
  ASSERT_EQ(run(words + "12 --metrics straight.jsonl").code, 0);
  ASSERT_EQ(run(words + "7 --metrics m.jsonl --checkpoint c").code, 0);
  ASSERT_EQ(run(words + "12 --metrics m.jsonl --checkpoint c --resume").code, 0);
  EXPECT_EQ(losses(lines("m.jsonl")), losses(lines("straight.jsonl")));
  ASSERT_EQ(run("run toy.plan --data short.txt --steps 12 --metrics single.jsonl").code, 0);
  EXPECT_NE(losses(lines("single.jsonl")), losses(lines("straight.jsonl")));
  EXPECT_EQ(run("run toy.plan --data short.txt --dataloader-type random").code, 2);
}

TEST_F(Command, RejectsOptionsThatTheModelDoesNotSupport) {
  EXPECT_THAT(run("run toy.plan --data text.txt --eod-mask-loss").text, HasSubstr("give --eod-token ID"));
  EXPECT_THAT(run("run toy.plan --data text.txt --eod-mask-loss --eod-token 10").text,
              HasSubstr("no input loss_weights"));
  std::ofstream(folder / "text.txt_loss_mask.idx") << "a mask is not read where it has no effect";
  EXPECT_THAT(run("run toy.plan --data text.txt").text,
              HasSubstr("text.txt_loss_mask: the model has no input loss_weights, so a loss mask has no effect"));
  fs::remove(folder / "text.txt_loss_mask.idx");
  EXPECT_THAT(run("run toy.plan --data text.txt --reset-position-ids --eod-token 10").text,
              HasSubstr("no input positions"));
  EXPECT_EQ(run("run toy.plan --data text.txt --reset-position-ids --eod-token 10").code, 2);
}

TEST_F(Command, InspectDescribesThePlan) {
  Answer answer = run("inspect toy.plan --json");
  ASSERT_EQ(answer.code, 0) << answer.text;
  nlohmann::json plan = nlohmann::json::parse(answer.text);
  EXPECT_EQ(plan.at("ranks"), 4);
  EXPECT_EQ(plan.at("stages"), 2);
  EXPECT_EQ(plan.at("arena_bytes").size(), 2u);
  EXPECT_EQ(plan.at("global_batch"), 8);
  EXPECT_EQ(plan.at("target"), "cpu");
  EXPECT_EQ(plan.at("plan").at("dp"), 2);
  EXPECT_EQ(plan.at("plan").at("stages")[1].at("first_layer"), 2);
  EXPECT_EQ(plan.at("plan").at("stages")[1].at("layers"), 1);
  EXPECT_EQ(plan.at("parameters"), 12 + 3 * 13);
  EXPECT_FALSE(plan.at("plan").contains("slices_kept_inputs")); // as in plans of compilers without this field
  EXPECT_THAT(run("inspect toy.plan").text, HasSubstr("4 = dp 2 x tp 1 x pp 2"));
  EXPECT_THAT(run("inspect toy.plan").text, HasSubstr("recompute none, schedule"));
}

TEST_F(Command, VerifyReportsADamagedPlan) {
  Answer good = run("verify toy.plan");
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.text, "toy.plan: holds\n");
  EXPECT_EQ(nlohmann::json::parse(run("verify toy.plan --json").text),
            nlohmann::json::parse(R"({"schema": 1, "ok": true, "errors": []})"));
  std::string bytes = read("toy.plan");
  bytes[bytes.find("toy.yaml")] = 'T';
  std::ofstream(folder / "bad.plan", std::ios::binary) << bytes;
  for (const char *verb : {"verify bad.plan", "inspect bad.plan", "run bad.plan --data mock"}) {
    Answer bad = run(verb);
    EXPECT_EQ(bad.code, 2) << verb;
    EXPECT_THAT(bad.text, HasSubstr("bad.plan: damaged: its bytes do not fit its checksum")) << verb;
  }
  Answer json = run("verify bad.plan --json");
  EXPECT_EQ(json.code, 2);
  EXPECT_FALSE(nlohmann::json::parse(json.text).at("ok"));
  EXPECT_EQ(nlohmann::json::parse(json.text).at("errors").size(), 1u);
}

TEST_F(Command, VerifyResealsForTestsOfTheVerifier) {
  pb::Plan broken = readPlan(folder / "toy.plan");
  broken.mutable_stages(0)->set_arena_bytes(pb::DEVICE, 64);
  std::ofstream(folder / "broken.plan", std::ios::binary) << broken.SerializeAsString();
  EXPECT_EQ(run("verify broken.plan").code, 2);
  EXPECT_EQ(run("verify broken.plan --reseal sealed.plan").code, 0);
  Answer sealed = run("verify sealed.plan --json");
  EXPECT_EQ(sealed.code, 2); // the checksum matches, but the plan is invalid
  EXPECT_THAT(sealed.text, HasSubstr("arena"));
  EXPECT_EQ(run("verify toy.plan --reseal same.plan").code, 0);
  EXPECT_EQ(read("same.plan"), read("toy.plan"));
  EXPECT_EQ(run("verify missing.plan --reseal x.plan").code, 2);
  EXPECT_EQ(run("verify toy.plan --reseal none/x.plan").code, 2);
  EXPECT_FALSE(fs::exists(folder / "x.plan"));
}

TEST_F(Command, InspectDescribesADatasetByAnyOfItsNames) {
  std::ofstream(folder / "a.txt") << "one\n\ntwo\nlines\n";
  ASSERT_EQ(run("data tokenize a.txt --append-eod --output-prefix a").code, 0);
  Answer byVerb = run("data inspect a_text_document --tokenizer bytes");
  EXPECT_THAT(byVerb.text, HasSubstr("2 documents (0 empty), 2 sequences, 14 tokens of u16"));
  EXPECT_THAT(byVerb.text, HasSubstr("tokens a sequence:"));
  EXPECT_THAT(byVerb.text, HasSubstr("document 1 (10 tokens): two\\nlines"));
  for (const char *name : {"a_text_document", "a_text_document.idx", "a_text_document.bin"}) {
    Answer answer = run(fmt::format("inspect {} --tokenizer bytes", name));
    EXPECT_EQ(answer.code, 0) << answer.text;
    EXPECT_EQ(answer.text, byVerb.text);
  }
  EXPECT_THAT(run("inspect a_text_document --documents 1").text, HasSubstr("document 0 (4 tokens): 111 110 101 256\n"));
  Answer asJson = run("inspect a_text_document --json");
  EXPECT_EQ(asJson.code, 0);
  EXPECT_EQ(nlohmann::json::parse(asJson.text)["documents"], 2);
  fs::resize_file(folder / "a_text_document.bin", 27);
  EXPECT_EQ(run("inspect a_text_document").code, 2);
}

TEST_F(Command, InspectDescribesCheckpoints) {
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 3 --save-every 2 --checkpoint c").code, 0);
  Answer answer = run("inspect c");
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.text, HasSubstr("c/step-00000003: toy after 3 steps (3 applied), 24 samples read"));
  EXPECT_THAT(answer.text, HasSubstr("written by  pp 2 x dp 2 x cp 1 x ep 1 x tp 1"));
  EXPECT_THAT(answer.text, HasSubstr("files       2 of ranks")); // replicas hold the same values and write no files
  EXPECT_THAT(answer.text, HasSubstr("batch       8 samples of 12 tokens"));
  EXPECT_THAT(answer.text, HasSubstr("others      step-00000002\n"));
  EXPECT_THAT(run("inspect c/step-00000002").text, HasSubstr("toy after 2 steps"));
  EXPECT_THAT(run("inspect .").text, HasSubstr("no checkpoint"));
  EXPECT_EQ(run("inspect .").code, 2);
}

TEST_F(Command, InspectAndVerifyDetectIncompleteCheckpoints) {
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 3 --checkpoint c").code, 0);
  nlohmann::json whole = nlohmann::json::parse(run("inspect c --json").text);
  EXPECT_EQ(whole.at("step"), 3);
  EXPECT_EQ(whole.at("ranks"), 4);
  EXPECT_EQ(whole.at("model"), "toy");
  EXPECT_EQ(whole.at("parameters"), 12 + 3 * 13);
  EXPECT_EQ(whole.at("samples"), 24);
  EXPECT_EQ(whole.at("complete"), true);
  EXPECT_EQ(whole.at("pieces").size(), 7u * 3);
  EXPECT_EQ(whole.at("pieces")[0].at("name"), "embed.weight");
  EXPECT_EQ(whole.at("pieces")[0].at("shape"), std::vector<int>{12});
  EXPECT_EQ(whole.at("pieces")[0].at("type"), "F32");
  fs::path shard = folder / "c" / "step-00000003" / "rank-00002.safetensors";
  EXPECT_EQ(whole.at("bytes"), fs::file_size(shard) + fs::file_size(shard.parent_path() / "rank-00000.safetensors"));
  EXPECT_EQ(nlohmann::json::parse(run("verify c --json").text).at("ok"), true);
  std::string good = read("c/step-00000003/rank-00002.safetensors"), bad = good;
  bad.back() ^= 1;
  std::ofstream(shard, std::ios::binary) << bad;
  EXPECT_EQ(run("inspect c").code, 0); // inspect only checks sizes and headers
  Answer verified = run("verify c --json");
  EXPECT_EQ(verified.code, 2);
  EXPECT_EQ(nlohmann::json::parse(verified.text).at("errors").size(), 1u);
  EXPECT_THAT(verified.text, HasSubstr("does not fit its checksum"));
  for (size_t size : {good.size() - 1, good.size() / 2, size_t(7), size_t(0)}) {
    std::ofstream(shard, std::ios::binary) << good.substr(0, size);
    EXPECT_EQ(run("inspect c").code, 2) << size;
    EXPECT_EQ(run("verify c").code, 2) << size;
  }
  fs::remove(shard);
  Answer missing = run("inspect c --json");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.text, HasSubstr("\"complete\": false"));
  EXPECT_THAT(missing.text, HasSubstr("rank-00002.safetensors: No such file"));
}

TEST_F(Command, AnotherDataSetNeedsAcceptChangesButNotAnotherPath) {
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 2 --checkpoint c").code, 0);
  fs::copy_file(folder / "text.txt", folder / "moved.txt");
  EXPECT_EQ(run("run toy.plan --data moved.txt --steps 3 --checkpoint c --resume").code, 0);
  std::ofstream(folder / "moved.txt", std::ios::app) << "one line more\n";
  for (const char *other : {"--data moved.txt", "--data mock", "--data text.txt --split 9,1,0",
                            "--data text.txt --dataloader-type cyclic", "--data text.txt --eod-token 10"}) {
    Answer refused = run(fmt::format("run toy.plan {} --steps 4 --checkpoint c --resume", other));
    EXPECT_EQ(refused.code, 2) << other << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("  data: ")) << other;
    EXPECT_THAT(refused.text, HasSubstr("--accept-changes")) << other;
  }
  Answer accepted = run("run toy.plan --data moved.txt --steps 4 --checkpoint c --resume --accept-changes");
  EXPECT_EQ(accepted.code, 0) << accepted.text;
  EXPECT_THAT(accepted.text, HasSubstr("note: accepted: data: "));
  EXPECT_EQ(run("run toy.plan --data text.txt --accept-changes").code,
            2); // not a resumed run, so there is no change to accept
  EXPECT_EQ(run("run toy.plan --data text.txt --keep 2").code, 2);
  EXPECT_EQ(run("run toy.plan --data text.txt --checkpoint c --keep 0").code, 2);
}

TEST_F(Command, MetricsThatCannotBeWrittenEndWithAnError) {
  Answer full = run("run toy.plan --data text.txt --steps 3 --metrics /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.text, HasSubstr("/dev/full: cannot be written: No space left on device"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  Answer pipe = run("run toy.plan --data text.txt --steps 3 --metrics pipe");
  EXPECT_EQ(pipe.code, 2);
  EXPECT_THAT(pipe.text, HasSubstr("pipe: cannot be written: a pipe that nobody reads"));
  EXPECT_EQ(run("run toy.plan --data text.txt --steps 3 --metrics none/m.jsonl").code, 2);
}

/// Returns the bytes in the hidden temporary files of unfinished outputs.
uint64_t hiddenBytes(const fs::path &folder) {
  uint64_t bytes = 0;
  for (const auto &entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".part")
      bytes += entry.file_size();
  return bytes;
}

// The command waits for more input when the signal arrives. It is therefore never finished, whatever the speed of the
// machine.
TEST_F(Command, KilledTokenizeLeavesNoPartialDataSet) {
  std::ofstream(folder / "old.txt") << "an older set\n";
  ASSERT_EQ(run("data tokenize old.txt --output-prefix old").code, 0);
  std::string before = read("old_text_document.bin");
  for (int signal : {SIGKILL, SIGINT, SIGTERM})
    for (const char *prefix : {"new", "old"}) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      std::string output = (folder / prefix).string();
      pid_t child = fork();
      if (child == 0) {
        ::signal(signal, SIG_DFL); // a child inherits an ignored SIGINT from a shell that runs it in the background
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(ESPALIER_COMMAND, "espalier", "data", "tokenize", "-", "--overwrite", "--output-prefix", output.c_str(),
              nullptr);
        _exit(127);
      }
      close(ends[0]);
      const std::string text = std::string(8 << 20, 'x') + "\n\n";
      for (int i = 0; i < 2; ++i)
        ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
      while (hiddenBytes(folder) < (8 << 20) && waitpid(child, nullptr, WNOHANG) == 0)
        usleep(1000);
      kill(child, signal);
      close(ends[1]);
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
      EXPECT_FALSE(fs::exists(folder / "new_text_document.bin") || fs::exists(folder / "new_text_document.idx"));
      EXPECT_EQ(run("inspect new_text_document").code, 2);
      EXPECT_EQ(run("data verify old_text_document").code, 0);
      EXPECT_EQ(read("old_text_document.bin"), before);
      // The next run removes what the killed one has left.
      EXPECT_EQ(run(fmt::format("data tokenize old.txt --overwrite --output-prefix {}", prefix)).code, 0);
      for (const auto &entry : fs::directory_iterator(folder))
        EXPECT_NE(entry.path().extension(), ".part") << entry.path();
      for (const char *ending : {"bin", "idx"})
        fs::remove(folder / fmt::format("new_text_document.{}", ending));
    }
}

TEST_F(Command, TokenizesMoreThanFitsInMemory) {
  if (isSanitized)
    GTEST_SKIP() << "a sanitizer needs more memory than is allowed here";
  {
    std::ofstream many(folder / "many.txt"), one(folder / "one.txt");
    for (int i = 0; i < 8000; ++i)
      many << std::string(25000, 'a' + i % 26) << "\n\n";
    one << std::string(100 << 20, 'x');
  }
  const std::string limited = "data tokenize --tokenizer bytes --output-prefix o --workers 2 ";
  auto under = [this](const std::string &words) {
    std::string line =
        fmt::format("cd {} && ulimit -d 131072 && {} {} > out.txt 2>&1", folder.string(), ESPALIER_COMMAND, words);
    return WEXITSTATUS(std::system(line.c_str()));
  };
  EXPECT_EQ(under(limited + "many.txt"), 0) << read("out.txt"); // 200 MB of text with 128 MiB of memory
  EXPECT_THAT(read("out.txt"), HasSubstr("8000 documents, 200000000 tokens"));
  EXPECT_EQ(under("data verify o_text_document"), 0) << read("out.txt");
  EXPECT_NE(under(limited + "one.txt"), 0); // the limit is enforced: one document must fit in memory
}

TEST_F(Command, UserErrorsExitWithTwo) {
  for (const char *words :
       {"", "walk", "run", "run toy.plan", "run missing.plan --data text.txt", "run text.txt --data text.txt",
        "run toy.plan --data missing.txt", "run toy.plan --data text.txt --steps 0",
        "run toy.plan --data text.txt --resume", "inspect text.txt"})
    EXPECT_EQ(run(words).code, 2) << words << '\n' << run(words).text;
}

TEST_F(Command, HelpSucceeds) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_EQ(run("run --help").code, 0);
}

TEST_F(Command, DumpsGradients) {
  ASSERT_EQ(run("run toy.plan --data text.txt --steps 2 --dump-gradients g.safetensors").code, 0);
  EXPECT_THAT(read("g.safetensors"), HasSubstr("2/block.1.weight"));
}

constexpr const char *heading = "model,layers,hidden,heads,seq,gpu,n_gpus,precision,tp,pp,dp,mbs,gbs,recompute,"
                                "iter_time_s,mem_gb,status,from\n";

// Every row is either evaluated or counted with the reason for skipping it.
TEST_F(Command, BenchPlansPredictsEveryRowOfATable) {
  std::ofstream(folder / "runs.csv") << heading << "GPT,24,2048,16,2048,H200,8,bf16,2,1,4,1,16,none,0.4,40,ok,test\n"
                                     << "GPT,24,2048,16,2048,H200,8,bf16,1,1,8,1,16,none,0.3,,ok,test\n"
                                     << "GPT,24,2048,16,2048,H200,8,bf16,1,2,4,1,16,none,0.35,,ok,test\n"
                                     << "GPT,80,16384,64,2048,H200,8,bf16,1,1,8,8,64,none,,,OOM,test\n"
                                     << "GPT,,2048,16,2048,H200,8,bf16,1,1,8,1,16,none,0.3,,ok,test\n";
  nlohmann::json tables = nlohmann::json::parse(run("bench plans runs.csv --json").text);
  ASSERT_EQ(tables.size(), 1u);
  const nlohmann::json &table = tables[0];
  EXPECT_EQ(table.at("table"), "runs.csv");
  EXPECT_EQ(table.at("rows"), 5);
  EXPECT_EQ(table.at("evaluated"), 4);
  EXPECT_EQ(table.at("skipped"), nlohmann::json::parse(R"([{"reason": "no layers published", "count": 1}])"));
  EXPECT_EQ(table.at("oom_rows"), 1);
  EXPECT_EQ(table.at("oom_refused"), 1);
  EXPECT_EQ(table.at("fit_rows"), 3);
  EXPECT_EQ(table.at("fits_refused"), 0);
  EXPECT_GT(table.at("time_error_mean"), 0);
  EXPECT_GT(table.at("null_model_time_error"), 0);
  EXPECT_GT(table.at("memory_error_mean"), 0);
  ASSERT_EQ(table.at("groups").size(), 1u);
  EXPECT_EQ(table.at("groups")[0].at("plans"), 3);
  EXPECT_TRUE(table.at("groups")[0].contains("spearman") && table.at("groups")[0].contains("regret"));
  EXPECT_THAT(run("bench plans runs.csv --rows").text, HasSubstr("not evaluated: 1 rows, no layers published"));
}

TEST_F(Command, BenchPlansReportsTheLineOfABadRow) {
  std::ofstream(folder / "bad.csv") << heading << "GPT,24\n";
  Answer answer = run("bench plans bad.csv");
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text, "bad.csv:2: error: the row has 2 cells, the heading has 18\n");
  // The other rows are still evaluated, and the bad row is counted.
  std::ofstream(folder / "part.csv") << heading << "GPT,24,2048,16,2048,H200,8,bf16,2,1,4,1,16,none,0.4,40,ok,test\n"
                                     << "GPT,24\n";
  Answer part = run("bench plans part.csv");
  EXPECT_EQ(part.code, 2);
  EXPECT_THAT(part.text, HasSubstr("part.csv:3: error: the row has 2 cells, the heading has 18"));
  EXPECT_THAT(part.text, HasSubstr("part.csv: 2 rows; time"));
  EXPECT_THAT(part.text, HasSubstr("not evaluated: 1 rows, no row of this table (see the errors)"));
  EXPECT_EQ(run("bench plans missing.csv").code, 2);
  EXPECT_EQ(run("bench plans").code, 2);
  EXPECT_EQ(run("bench plans .").code, 2);
}

} // namespace
} // namespace espalier::rt
