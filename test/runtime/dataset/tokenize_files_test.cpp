// Tests the data subcommands as a user runs them: byte-equal fixtures, every kind of input and every error.
#include "runtime/dataset/tokenize_files.h"

#include "messages/data_error.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/dataset/line_reader.h"
#include "test/runtime/tokenizer/golden.h"
#include "tools/data/data_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <map>
#include <nlohmann/json.hpp>
#include <zlib.h>

namespace espalier::rt {
namespace {

using namespace test;
using testing::HasSubstr;

/// Exit status, standard output and standard error of a data subcommand.
struct Outcome {
  int status;
  std::string out, err;
};

Outcome run(std::vector<std::string> arguments) {
  CommandLine app("espalier", "");
  addDataCommands(app);
  std::vector<const char *> words = {"espalier"};
  for (const std::string &argument : arguments)
    words.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int status = 0;
  try {
    status = app.parse(static_cast<int>(words.size()), words.data());
  } catch (const DataError &error) {
    fmt::print(stderr, "{}\n", error.what());
    status = 2;
  }
  fflush(stdout);
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

std::vector<std::string> gpt2(std::vector<std::string> arguments) {
  for (const std::string &more :
       {std::string("--tokenizer"), std::string("gpt2"), std::string("--vocab-file"),
        sharedData() + "gpt2_bpe/encoder.json", std::string("--merge-file"), sharedData() + "gpt2_bpe/vocab.bpe"})
    arguments.push_back(more);
  return arguments;
}

/// Returns the number of files in a folder, including hidden files.
size_t filesIn(const std::string &folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

void gzip(const std::string &path, const std::string &text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(Tokenize, FixtureBytesWithAnyNumberOfWorkers) {
  ESPALIER_NEEDS_FIXTURES();
  Scratch scratch;
  std::string golden = sharedData() + "golden/tinyshakespeare_text_document";
  for (std::string workers : {"1", "3"}) {
    Outcome outcome = run(gpt2({"data", "tokenize", sharedData() + "corpus/tinyshakespeare.jsonl", "--append-eod",
                                "--workers", workers, "--output-prefix", scratch.path("w" + workers)}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::string made = scratch.path("w" + workers + "_text_document");
    EXPECT_TRUE(slurp(made + ".bin") == slurp(golden + ".bin"));
    EXPECT_TRUE(slurp(made + ".idx") == slurp(golden + ".idx"));
  }
}

// Uses the options of Megatron's tools/preprocess_data.py. Only the program name differs.
TEST(Tokenize, AcceptsMegatronsOptions) {
  ESPALIER_NEEDS_FIXTURES();
  Scratch scratch;
  Outcome outcome =
      run({"data", "tokenize", "--input", sharedData() + "corpus/tinyshakespeare.jsonl", "--output-prefix",
           scratch.path("m"), "--vocab-file", sharedData() + "gpt2_bpe/encoder.json", "--tokenizer-type",
           "GPT2BPETokenizer", "--merge-file", sharedData() + "gpt2_bpe/vocab.bpe", "--append-eod", "--workers", "2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(slurp(scratch.path("m_text_document.bin")) ==
              slurp(sharedData() + "golden/tinyshakespeare_text_document.bin"));
}

// Lines of progress go to standard error, at most one per block of the input.
TEST(Tokenize, LogsProgressAtMegatronsInterval) {
  Scratch scratch;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += fmt::format("{{\"text\":\"{}\"}}\n", std::string(1000, 'a'));
  spit(scratch.path("a.jsonl"), text);
  auto linesWith = [&](const char *interval) {
    Outcome outcome = run({"data", "tokenize", scratch.path("a.jsonl"), "--log-interval", interval, "--overwrite",
                           "--output-prefix", scratch.path("t")});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return std::count(outcome.err.begin(), outcome.err.end(), '\n');
  };
  EXPECT_EQ(linesWith("100"), 3); // the input has three blocks
  EXPECT_EQ(linesWith("2500"), 1);
  EXPECT_EQ(linesWith("5000"), 0);
}

TEST(Tokenize, EveryKeyGetsItsFiles) {
  ESPALIER_NEEDS_FIXTURES();
  Scratch scratch;
  Outcome outcome = run(gpt2({"data", "tokenize", sharedData() + "corpus/multikey.jsonl", "--append-eod",
                              "--output-prefix", scratch.path("m"), "--json-keys", "title", "content"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (std::string key : {"title", "content"})
    for (std::string suffix : {".bin", ".idx"})
      EXPECT_TRUE(slurp(scratch.path("m_" + key + "_document" + suffix)) ==
                  slurp(sharedData() + "golden/multikey_" + key + "_document" + suffix))
          << key << suffix;
}

TEST(Tokenize, TextAndGzipAndPatternsGiveTheSameDocuments) {
  Scratch scratch;
  spit(scratch.path("a1.txt"), "\n\none\ntwo\n\n\nthree\n");
  gzip(scratch.path("a2.txt.gz"), "four\n\nfive");
  spit(scratch.path("b.jsonl"), R"({"text":"one\ntwo"})"
                                "\n"
                                R"({"text":"three"})"
                                "\n");
  gzip(scratch.path("c.jsonl.gz"), "{\"text\":\"four\"}\n{\"text\":\"five\"}");
  Outcome text = run({"data", "tokenize", scratch.path("a*"), "--output-prefix", scratch.path("t")});
  ASSERT_EQ(text.status, 0) << text.err;
  Outcome json = run(
      {"data", "tokenize", scratch.path("b.jsonl"), scratch.path("c.jsonl.gz"), "--output-prefix", scratch.path("j")});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(slurp(scratch.path("t_text_document.bin")), slurp(scratch.path("j_text_document.bin")));
  EXPECT_EQ(slurp(scratch.path("t_text_document.idx")), slurp(scratch.path("j_text_document.idx")));
  EXPECT_EQ(IndexedDataset::open(scratch.path("t_text_document")).documentCount(), 4);
}

TEST(Tokenize, NamedSeparatorCutsDocuments) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "one\n\ntwo\n---\nthree\n");
  ASSERT_EQ(
      run({"data", "tokenize", scratch.path("a.txt"), "--document-separator=---", "--output-prefix", scratch.path("t")})
          .status,
      0);
  IndexedDataset set = IndexedDataset::open(scratch.path("t_text_document"));
  EXPECT_EQ(set.documentCount(), 2);
  EXPECT_EQ(set.sequenceLength(0), 8); // "one\n\ntwo"
}

TEST(Tokenize, RejectsBadLinesWithTheirLocation) {
  Scratch scratch;
  spit(scratch.path("a.jsonl"), "{\"text\":\"x\"}\n{\"txet\":\"y\"}\nnot json\n{\"text\":\"z\"}\n");
  for (std::string workers : {"1", "2"}) {
    Outcome outcome =
        run({"data", "tokenize", scratch.path("a.jsonl"), "--workers", workers, "--output-prefix", scratch.path("t")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("a.jsonl:2: error: no key \"text\""));
    EXPECT_EQ(filesIn(scratch.path("")), 1U);
  }
  Outcome skipping =
      run({"data", "tokenize", scratch.path("a.jsonl"), "--skip-bad", "--output-prefix", scratch.path("t")});
  EXPECT_EQ(skipping.status, 0);
  EXPECT_THAT(skipping.err, HasSubstr("2 lines skipped"));
  EXPECT_EQ(IndexedDataset::open(scratch.path("t_text_document")).documentCount(), 2);
}

TEST(Tokenize, PartitionsGiveTheBytesOfOnePart) {
  Scratch scratch;
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += fmt::format("{{\"text\":\"{}\",\"b\":\"{}\"}}\n", std::string(i % 97, 'x'), i);
  spit(scratch.path("1.jsonl"), lines);
  spit(scratch.path("2.jsonl"), "");
  gzip(scratch.path("3.jsonl"), lines); // gzip is recognised whatever the file name is
  lines.pop_back();
  spit(scratch.path("4.jsonl"), lines);
  size_t inputs = filesIn(scratch.path(""));
  std::map<std::string, std::string> whole;
  for (const char *partitions : {"1", "2", "3", "7", "40"}) {
    Outcome outcome =
        run({"data", "tokenize", scratch.path("?.jsonl"), "--append-eod", "--json-keys", "text", "b", "--workers", "3",
             "--partitions", partitions, "--output-prefix", scratch.path("p"), "--overwrite"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("9000 documents"));
    EXPECT_EQ(filesIn(scratch.path("")), inputs + 6); // two files and the folder of the tokenizer for each key
    for (std::string name : {"text_document.bin", "text_document.idx", "b_document.bin", "b_document.idx"}) {
      auto [first, isFirst] = whole.emplace(name, slurp(scratch.path("p_" + name)));
      EXPECT_TRUE(isFirst || first->second == slurp(scratch.path("p_" + name))) << partitions << name;
    }
  }
}

TEST(Tokenize, PartitionsReportTheFirstBadLineOfTheFile) {
  Scratch scratch;
  std::string lines;
  for (int i = 1; i <= 1000; ++i)
    lines += i == 700 || i == 900 ? "{}\n" : fmt::format("{{\"text\":\"line {}\"}}\n", i);
  spit(scratch.path("a.jsonl"), lines);
  for (const char *partitions : {"1", "3", "8", "100"}) {
    Outcome outcome = run({"data", "tokenize", scratch.path("a.jsonl"), "--partitions", partitions, "--output-prefix",
                           scratch.path("t")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("a.jsonl:700: error: no key"));
    EXPECT_EQ(filesIn(scratch.path("")), 1U);
  }
  Outcome skipping = run({"data", "tokenize", scratch.path("a.jsonl"), "--partitions", "8", "--skip-bad",
                          "--output-prefix", scratch.path("t")});
  EXPECT_THAT(skipping.err, testing::AllOf(HasSubstr("a.jsonl:700:"), HasSubstr("2 lines skipped")));
  EXPECT_EQ(run({"data", "tokenize", "-", "--partitions", "2", "--output-prefix", scratch.path("t")}).status, 2);
}

TEST(Tokenize, TruncatedGzipIsRefused) {
  Scratch scratch;
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += "{\"text\":\"" + std::to_string(i * 7919) + "\"}\n";
  gzip(scratch.path("a.jsonl.gz"), text);
  std::string packed = slurp(scratch.path("a.jsonl.gz"));
  for (size_t cut : {packed.size() - 4, packed.size() / 2}) {
    spit(scratch.path("b.jsonl.gz"), packed.substr(0, cut));
    Outcome outcome = run({"data", "tokenize", scratch.path("b.jsonl.gz"), "--output-prefix", scratch.path("t")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("b.jsonl.gz:"));
  }
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  spit(scratch.path("b.jsonl.gz"), packed);
  EXPECT_EQ(run({"data", "tokenize", scratch.path("b.jsonl.gz"), "--output-prefix", scratch.path("t")}).status, 2);
}

// A failed download often leaves an HTML page under the name of the archive.
TEST(Tokenize, WhatIsNamedGzipMustBeGzip) {
  Scratch scratch;
  for (std::string name : {"a.txt.gz", "b.jsonl.gz", "empty.txt.gz"}) {
    spit(scratch.path(name), name.starts_with("empty") ? "" : "{\"text\":\"plain\"}\n");
    for (const char *partitions : {"1", "3"}) {
      Outcome outcome = run(
          {"data", "tokenize", scratch.path(name), "--partitions", partitions, "--output-prefix", scratch.path("t")});
      EXPECT_EQ(outcome.status, 2) << name;
      EXPECT_THAT(outcome.err, HasSubstr(name + ": error: the name ends in .gz, but the content is not gzip")) << name;
    }
  }
}

// Refuses files in another encoding, binary files and tables, which are not text.
TEST(Tokenize, RejectsBinaryInputWithItsLocation) {
  Scratch scratch;
  spit(scratch.path("latin1.txt"), "one\n\ntwo\nol\xe9\n\nthree\n");
  spit(scratch.path("nul.txt"), std::string("a\nb\0c\n", 6));
  spit(scratch.path("table.txt"), "PAR1\x15\x04 and more");
  gzip(scratch.path("table.jsonl.gz"), "PAR1\x15\x04 and more");
  size_t inputs = filesIn(scratch.path(""));
  for (auto [name, fault] :
       {std::pair("latin1.txt", ":4: error: byte 3 of the line is 0xe9, want UTF-8 text without NUL; convert"),
        {"nul.txt", ":2: error: byte 2 of the line is 0x00"},
        {"table.txt", ": error: is a Parquet file, not text; python3 tools/to_jsonl.py COLUMN"},
        {"table.jsonl.gz", ": error: is a Parquet file"}})
    for (const char *partitions : {"1", "2"}) {
      Outcome outcome = run(
          {"data", "tokenize", scratch.path(name), "--partitions", partitions, "--output-prefix", scratch.path("t")});
      EXPECT_EQ(outcome.status, 2) << name;
      EXPECT_THAT(outcome.err, HasSubstr(name + std::string(fault)));
      EXPECT_EQ(filesIn(scratch.path("")), inputs) << name;
    }
  Outcome skipping =
      run({"data", "tokenize", scratch.path("latin1.txt"), "--skip-bad", "--output-prefix", scratch.path("t")});
  EXPECT_EQ(skipping.status, 0);
  EXPECT_THAT(skipping.out, HasSubstr("2 documents"));
  EXPECT_THAT(skipping.err, HasSubstr("latin1.txt:4: error:"));
}

TEST(Tokenize, NotesEndOfDocumentMarksOnce) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "one\n\ntwo\n<|endoftext|>\nthree\n<|endoftext|>\n");
  spit(scratch.path("b.txt"), "one\n");
  auto noteOf = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"data",        "tokenize",        scratch.path("b.txt"), scratch.path("a.txt"),
                                    "--overwrite", "--output-prefix", scratch.path("t")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all).err;
  };
  for (const char *partitions : {"1", "2"})
    EXPECT_EQ(noteOf({"--partitions", partitions}),
              scratch.path("a.txt") + ":4: note: holds <|endoftext|>, which is tokenized as text; --document-separator "
                                      "'<|endoftext|>' cuts documents at lines that hold nothing else\n");
  EXPECT_EQ(noteOf({"--document-separator", "<|endoftext|>"}), "");
}

TEST(Tokenize, ADatasetIsReplacedOnlyIfAsked) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "one");
  spit(scratch.path("b.txt"), "other");
  auto tokenize = [&](const char *name, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"data", "tokenize", scratch.path(name), "--output-prefix", scratch.path("t")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  ASSERT_EQ(tokenize("a.txt").status, 0);
  Outcome again = tokenize("b.txt");
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("t_text_document.idx: error: is there already; give another --output-prefix, or "
                                   "--overwrite to replace it"));
  EXPECT_EQ(IndexedDataset::open(scratch.path("t_text_document")).tokenCount(), 3);
  EXPECT_EQ(run({"data", "merge", scratch.path("t_text_document"), "--output-prefix", scratch.path("m")}).status, 0);
  EXPECT_EQ(run({"data", "merge", scratch.path("t_text_document"), "--output-prefix", scratch.path("m")}).status, 2);
  EXPECT_EQ(tokenize("b.txt", {"--overwrite"}).status, 0);
  EXPECT_EQ(IndexedDataset::open(scratch.path("t_text_document")).tokenCount(), 5);
}

TEST(Tokenize, AnInputWithoutTextMakesNoDataset) {
  Scratch scratch;
  spit(scratch.path("empty.txt"), "");
  spit(scratch.path("lines.txt"), "\n\n\n");
  spit(scratch.path("none.jsonl"), "{\"text\":\"\"}\n");
  spit(scratch.path("bad.jsonl"), "{}\n");
  size_t inputs = filesIn(scratch.path(""));
  for (const char *name : {"empty.txt", "lines.txt", "none.jsonl", "bad.jsonl"})
    for (const char *partitions : {"1", "3"}) {
      Outcome outcome = run({"data", "tokenize", scratch.path(name), "--skip-bad", "--partitions", partitions,
                             "--output-prefix", scratch.path("t")});
      EXPECT_EQ(outcome.status, 2) << name;
      EXPECT_THAT(outcome.err, HasSubstr(name == std::string("bad.jsonl") ? "all 1 records were skipped; the first:"
                                                                          : "holds no text; nothing is written"));
      EXPECT_EQ(filesIn(scratch.path("")), inputs) << name;
    }
}

TEST(Tokenize, RejectsInvalidArguments) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "x");
  auto status = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"data", "tokenize", "--output-prefix", scratch.path("t")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all).status;
  };
  EXPECT_EQ(status({scratch.path("absent.txt")}), 2);
  EXPECT_EQ(status({scratch.path("absent*")}), 2);
  EXPECT_EQ(status({scratch.path("")}), 2);
  EXPECT_EQ(status({scratch.path("a.txt"), "--json-keys", "a", "b"}), 2);
  EXPECT_EQ(status({scratch.path("a.txt"), "--json-keys", "a", "a"}), 2);
  EXPECT_EQ(status({scratch.path("a.txt"), "--json-keys", "../a"}), 2);
  EXPECT_EQ(status({scratch.path("a.txt"), "--tokenizer", "gpt2"}), 2);
  EXPECT_NE(status({scratch.path("a.txt"), "--tokenizer", "other"}), 0);
}

TEST(DataVerbs, MergeIsConcatenationAndVerifyReadsAll) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "one\n\ntwo");
  spit(scratch.path("b.txt"), "three");
  for (std::string name : {"a", "b"})
    ASSERT_EQ(run({"data", "tokenize", scratch.path(name + ".txt"), "--output-prefix", scratch.path(name)}).status, 0);
  ASSERT_EQ(
      run({"data", "tokenize", scratch.path("a.txt"), scratch.path("b.txt"), "--output-prefix", scratch.path("both")})
          .status,
      0);
  Outcome merged = run({"data", "merge", scratch.path("a_text_document"), scratch.path("b_text_document"),
                        "--output-prefix", scratch.path("m")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(slurp(scratch.path("m.idx")), slurp(scratch.path("both_text_document.idx")));
  EXPECT_EQ(slurp(scratch.path("m.bin")), slurp(scratch.path("both_text_document.bin")));
  EXPECT_THAT(run({"data", "verify", scratch.path("m")}).out, HasSubstr("sound: 3 documents"));
  EXPECT_EQ(run({"data", "verify", scratch.path("m"), "--vocab-size", "100"}).status, 2);
  EXPECT_EQ(run({"data", "merge", scratch.path("m"), "--output-prefix", scratch.path("m")}).status, 2);
}

TEST(DataVerbs, InspectShowsCountsLengthsAndText) {
  Scratch scratch;
  spit(scratch.path("a.txt"), "one\n\ntwo\nlines");
  ASSERT_EQ(
      run({"data", "tokenize", scratch.path("a.txt"), "--append-eod", "--output-prefix", scratch.path("a")}).status, 0);
  Outcome outcome = run({"data", "inspect", scratch.path("a_text_document.idx"), "--tokenizer", "bytes"});
  EXPECT_THAT(outcome.out, HasSubstr("2 documents (0 empty), 2 sequences, 14 tokens of u16"));
  EXPECT_THAT(outcome.out, HasSubstr("document 1 (10 tokens): two\\nlines"));
  EXPECT_TRUE(isIndexedDataset(scratch.path("a_text_document.bin")));
  EXPECT_FALSE(isIndexedDataset(scratch.path("a")));
  EXPECT_EQ(run({"data", "inspect", scratch.path("nothing")}).status, 2);
}

TEST(DataVerbs, IndexFillsTheCache) {
  Scratch scratch;
  spit(scratch.path("a.txt"), std::string(3000, 'x'));
  Outcome outcome =
      run({"data", "index", scratch.path("a.txt"), "--seq-length", "16", "--cache", scratch.path("cache")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::is_empty(scratch.path("cache")));
}

TEST(JsonFields, ReasonsForEachFault) {
  std::vector<JsonField> fields;
  auto reason = [&fields](const std::string &line) { return readJsonFields(line, {"a", "b"}, fields); };
  EXPECT_EQ(reason(R"({"b":"2","x":{"a":[{"a":3}]},"a":"1"})"), "");
  EXPECT_EQ(fields[0].text + fields[1].text, "12");
  EXPECT_EQ(reason(R"({"a":"1"})"), "no key \"b\"; there are \"a\"");
  EXPECT_EQ(reason(R"({"content":"1","meta":{"b":"2"},"id":3})"),
            "no key \"a\"; there are \"content\", \"meta\", \"id\"");
  std::string many = "{";
  for (int i = 0; i < 100; ++i)
    many += "\"key" + std::to_string(i) + "\":1,";
  EXPECT_THAT(reason(many + "\"b\":\"\"}"), testing::EndsWith("\"key6\", \"key7\", ..."));
  EXPECT_EQ(reason("{}"), "no key \"a\"");
  EXPECT_EQ(reason(R"({"a":1,"b":""})"), "key \"a\" holds a number, want a string or a list of token ids");
  EXPECT_EQ(reason(R"({"a":{"a":""},"b":""})"), "key \"a\" holds an object, want a string or a list of token ids");
  EXPECT_EQ(reason(R"({"a":[1,"2"],"b":""})"), "the list of key \"a\" holds a string, want token ids");
  EXPECT_EQ(reason(R"({"a":[-1],"b":""})"), "the list of key \"a\" holds a number, want token ids");
  EXPECT_EQ(reason(R"({"a":[[1]],"b":""})"), "the list of key \"a\" holds an array, want token ids");
  EXPECT_EQ(reason(R"({"b":"2","a":[5,0,2147483647],"a2":[0.5]})"), "");
  EXPECT_THAT(fields[0].ids, testing::ElementsAre(5, 0, 2147483647));
  EXPECT_THAT(reason("[1]"), HasSubstr("got an array"));
  EXPECT_THAT(reason("\"a\""), HasSubstr("got a string"));
  EXPECT_THAT(reason(""), HasSubstr("not JSON"));
  EXPECT_THAT(reason("{\"a\":\"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(reason(std::string(200000, '[')), testing::Not(""));
  EXPECT_THAT(reason("{\"c\":" + std::string(200000, '[')), HasSubstr("not JSON"));
}

// Python's json writes and reads these values, so files of pandas and datasets have them.
TEST(JsonFields, OtherKeysHoldWhatPythonReads) {
  std::vector<JsonField> fields;
  for (const char *other :
       {"NaN", "Infinity", "-Infinity", "1e400", "-1E+999", R"("\ud83d")", R"("a\ude00b\\")",
        R"(["\ud83dx", {"\udc00": NaN}])", R"("NaN \" \ud83d 1e400")", "[NaN,NaN,1e400]", R"("\ud83d\ud83d\ude00")"}) {
    for (const char *form : {R"({{"a":"x\u00e9","p":{0}}})", R"({{"p" : {0} , "a":"x\u00e9"}})"}) {
      std::string line = fmt::format(fmt::runtime(form), other), fault;
      EXPECT_EQ(readJsonFields(line, {"a"}, fields), "") << line;
      EXPECT_EQ(fields[0].text, "x\xc3\xa9") << line;
      EXPECT_EQ(parseJsonLine(line, fault)["a"], "x\xc3\xa9") << line << fault;
    }
  }
  EXPECT_EQ(readJsonFields(R"({"p":NaN,"a":"\ud83d\ude00"})", {"a"}, fields), "");
  EXPECT_EQ(fields[0].text, "\xf0\x9f\x98\x80");
  EXPECT_EQ(readJsonFields(R"({"a":"\ud83d"})", {"a"}, fields),
            "key \"a\" holds half of a surrogate pair, which is no character");
  EXPECT_THAT(readJsonFields(R"({"a":NaN})", {"a"}, fields), HasSubstr("holds a number"));
  for (const char *bad : {R"({"a":"x","p":nan})", R"({"a":"x","p":NaNs})", R"({"a":"x","p":+Infinity})",
                          R"({"a":"x","p":1e})", R"({"a":"x","p":NaN)", R"({"a":"x\)", R"({"a":"x","p":--Infinity})"})
    EXPECT_THAT(readJsonFields(bad, {"a"}, fields), HasSubstr("not JSON")) << bad;
}

/// Returns the documents of a data set of bytes, joined by "|".
std::string documentsOf(const std::string &prefix) {
  IndexedDataset set = IndexedDataset::open(prefix);
  std::string text;
  for (int64_t i = 0; i < set.sequenceCount(); ++i) {
    std::vector<int32_t> ids(set.sequenceLength(i));
    set.read(i, 0, ids);
    text += (i ? "|" : "") + std::string(ids.begin(), ids.end());
  }
  return text;
}

// Files of other programs: blank lines, carriage returns, values of Python, and arrays over several lines or in one.
TEST(Tokenize, ReadsTheJsonOfOtherPrograms) {
  Scratch scratch;
  const std::string cases[] = {
      "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n",
      "\r\n{\"text\":\"a\"}\r\n \t\r\n{\"text\":\"b\"}\r\n\r\n",
      "{\"text\":\"a\",\"score\":NaN}\n{\"text\":\"b\",\"p\":1e400,\"t\":\"\\ud83d\"}\n\n\n",
      R"([{"text":"a"},{"text":"b","l":[1,[2]],"q":"]},\""}])",
      "\xef\xbb\xbf[\n  {\n    \"text\": \"a\"\n  },\n\n  {\"p\": NaN, \"text\": \"b\"}\n]\n\n",
      "\n\n[{\"text\":\"a\"}\n,{\"text\":\"b\"}\n]",
      "{\"text\":[97]}\n{\"text\":\"b\"}"};
  for (const std::string &text : cases)
    for (const char *partitions : {"1", "3"}) {
      spit(scratch.path("a.json"), text);
      Outcome outcome = run({"data", "tokenize", scratch.path("a.json"), "--output-prefix", scratch.path("t"),
                             "--overwrite", "--partitions", partitions});
      ASSERT_EQ(outcome.status, 0) << text << outcome.err;
      EXPECT_EQ(documentsOf(scratch.path("t_text_document")), "a|b") << text;
    }
}

TEST(Tokenize, NamesTheFaultOfAnArray) {
  Scratch scratch;
  for (auto [text, fault] :
       {std::pair("[\n{\"text\":\"a\"},\n\n{\"txt\":\"b\"}\n]", ":4: error: no key \"text\"; there are \"txt\""),
        {"[\n{\"text\":\"a\"}", ":2: error: the array has no end"},
        {"[{\"text\":\"a\"},]", ":1: error: an element of the array is empty"},
        {"[{\"text\":\"a\"}]\n{\"text\":\"b\"}", ":2: error: text follows the array"},
        {"[{\"text\":\"a\"} {\"text\":\"b\"}]", ":1: error: not JSON"},
        {"[\"a\\\"]\", 5]", ":1: error: want an object, got a string"},
        {"[{\"text\":[300]}]", "holds id 300, the tokenizer has 257 ids; for ids of another one give --tokenizer null "
                               "--vocab-size N"}}) {
    spit(scratch.path("a.jsonl"), text);
    Outcome outcome = run({"data", "tokenize", scratch.path("a.jsonl"), "--output-prefix", scratch.path("t")});
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr(fault)) << text;
    EXPECT_EQ(filesIn(scratch.path("")), 1U);
  }
}

// Token ids of another program need no tokenizer. The end token is not appended twice.
TEST(Tokenize, TakesTokenIds) {
  Scratch scratch;
  spit(scratch.path("a.jsonl"), "{\"input_ids\":[5,300],\"attention_mask\":[1,1]}\n{\"input_ids\":[7,999]}\n");
  Outcome outcome = run({"data", "tokenize", scratch.path("a.jsonl"), "--json-keys", "input_ids", "--tokenizer", "null",
                         "--vocab-size", "1000", "--append-eod", "--output-prefix", scratch.path("t")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 documents, 5 tokens"));
  Outcome refused = run({"data", "tokenize", scratch.path("a.jsonl"), "--output-prefix", scratch.path("t")});
  EXPECT_THAT(refused.err, HasSubstr("no key \"text\"; there are \"input_ids\", \"attention_mask\""));
}

// A folder or a token file of another system is refused with the command that converts it.
TEST(Tokenize, NamesTheCommandForFoldersAndTokenFiles) {
  Scratch scratch;
  std::filesystem::create_directory(scratch.path("set"));
  spit(scratch.path("train.bin"), std::string("\x05\0\x06\0", 4));
  for (auto [name, way] : {std::pair("set", "python3 tools/to_jsonl.py COLUMN "),
                           {"train.bin", "python3 tools/to_jsonl.py --tokens uint16 --border 50256 "}}) {
    std::string fault = way + scratch.path(name) + " | espalier data tokenize - --jsonl";
    Outcome outcome = run({"data", "tokenize", scratch.path(name), "--output-prefix", scratch.path("t")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(fault));
    try {
      openDataset(scratch.path(name), {});
      ADD_FAILURE();
    } catch (const DataError &error) {
      EXPECT_THAT(error.what(), HasSubstr(fault));
    }
  }
}

TEST(LineReader, LinesOfAnyLengthAndLastLineWithoutEnd) {
  Scratch scratch;
  std::string longLine(5 << 20, 'x');
  spit(scratch.path("a"), "one\n\n" + longLine + "\nlast");
  LineReader reader(scratch.path("a"));
  std::string_view line;
  std::vector<size_t> sizes;
  while (reader.next(line))
    sizes.push_back(line.size());
  EXPECT_THAT(sizes, testing::ElementsAre(3, 0, 5 << 20, 4));
}

} // namespace
} // namespace espalier::rt
