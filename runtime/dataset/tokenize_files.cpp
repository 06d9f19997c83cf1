// Partitions are complete datasets in a hidden folder beside the output, so only the merged dataset gets a name that
// readers accept.
#include "runtime/dataset/tokenize_files.h"

#include "messages/data_error.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/dataset/json_array.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/dataset/text_check.h"
#include "runtime/files/partial_path.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <future>
#include <mutex>
#include <unistd.h>

namespace espalier::rt {

namespace {

/// A range of the input that may be cut between any two lines, or not at all.
struct Stretch {
  std::string path;
  int64_t bytes;
  bool canBeCut;
};

/// Returns whether a file is gzip, according to its first bytes. Gzip can only be read from its start.
bool isGzipFile(const std::string &path) {
  char beginning[2] = {};
  std::ifstream(path, std::ios::binary).read(beginning, sizeof beginning);
  return isGzip({beginning, sizeof beginning});
}

/// Returns whether a file is one JSON array, which is read from its start.
bool isJsonArrayFile(const std::string &path) {
  LineReader reader(path);
  std::string_view line;
  while (reader.next(line))
    if (!isBlankLine(line))
      return beginsJsonArray(line);
  return false;
}

std::vector<Stretch> stretchesOf(const TokenizeJob &job) {
  std::vector<Stretch> stretches;
  for (const std::string &input : job.inputs) {
    std::error_code error;
    uint64_t size = std::filesystem::file_size(input, error);
    bool canBeCut = !error && holdsJson(input, job) && !isGzipFile(input) && !isJsonArrayFile(input);
    stretches.push_back({input, error ? 0 : static_cast<int64_t>(size), canBeCut});
  }
  return stretches;
}

/// Divides the input into `parts` partitions of about equal size, in order. Example: files of 10 bytes (text) and 30
/// bytes (JSON lines) in 2 partitions give the first file and [0, 10) of the second, and [10, 30).
std::vector<std::vector<InputRange>> deal(const std::vector<Stretch> &stretches, int parts) {
  int64_t total = 0, done = 0;
  for (const Stretch &stretch : stretches)
    total += stretch.bytes;
  std::vector<std::vector<InputRange>> dealt(parts);
  auto borderOf = [&](int64_t part) { return total / parts * part + total % parts * part / parts; };
  for (const Stretch &stretch : stretches) {
    int64_t begin = 0;
    for (int part = 0; part < parts; ++part) {
      // The partition takes the bytes below its upper border. The last partition takes the rest.
      bool takesRest = part + 1 == parts;
      int64_t end = takesRest ? stretch.bytes : std::min(stretch.bytes, borderOf(part + 1) - done);
      if (end <= begin && !(takesRest && begin == 0))
        continue;
      if (!stretch.canBeCut || (begin == 0 && end == stretch.bytes)) {
        dealt[part].push_back({stretch.path});
        break;
      }
      dealt[part].push_back({stretch.path, begin, end});
      begin = end;
      if (end == stretch.bytes)
        break;
    }
    done += stretch.bytes;
  }
  return dealt;
}

/// A hidden folder for the partitions. The destructor removes it with its content.
class PartFolder {
public:
  explicit PartFolder(const std::string &outputPrefix) {
    sweepPartials(outputPrefix);
    folder = partialPath(outputPrefix);
    std::error_code error;
    std::filesystem::create_directory(folder, error);
    if (error)
      throw DataError(folder.string(), fmt::format("cannot make the folder of the partitions: {}", error.message()));
    hold = holdPartial(folder);
  }
  ~PartFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    if (hold >= 0)
      ::close(hold);
  }
  PartFolder(const PartFolder &) = delete;
  PartFolder &operator=(const PartFolder &) = delete;
  std::string prefix(size_t part) const { return (folder / fmt::format("{}", part)).string(); }

private:
  std::filesystem::path folder;
  int hold = -1; ///< of holdPartial()
};

/// Sums the progress of the partitions.
class SummedProgress {
public:
  SummedProgress(size_t parts, const TokenizeJob &job) : parts(parts), show(job.progress) {}
  void report(size_t part, const TokenizeProgress &now) {
    std::lock_guard lock(mutex);
    parts[part] = now;
    TokenizeProgress sum;
    sum.bytesTotal = now.bytesTotal;
    for (const TokenizeProgress &one : parts) {
      sum.documents += one.documents;
      sum.tokens += one.tokens;
      sum.bytesRead += one.bytesRead;
    }
    if (show)
      show(sum);
  }

private:
  std::mutex mutex;
  std::vector<TokenizeProgress> parts;
  std::function<void(const TokenizeProgress &)> show;
};

/// Stops a partition after an earlier partition has failed. The exception never leaves tokenizePartitions, because the
/// earlier error is thrown first.
struct Unwanted {};

void add(TokenizeReport &sum, const TokenizeReport &part) {
  sum.documents += part.documents;
  sum.tokens += part.tokens;
  sum.lossTokens += part.lossTokens;
  sum.textBytes += part.textBytes;
  if (sum.skippedLines == 0)
    sum.firstSkipped = part.firstSkipped;
  sum.skippedLines += part.skippedLines;
  if (sum.firstMark.empty())
    sum.firstMark = part.firstMark;
}

/// Runs the job in job.partitions partitions. Throws the error of the first partition that fails, as a run without
/// partitions would. Needs twice the output's size on disk until the partitions are merged.
TokenizeReport tokenizePartitions(const Tokenizer &tokenizer, const TokenizeJob &job) {
  std::vector<std::vector<InputRange>> dealt = deal(stretchesOf(job), job.partitions);
  PartFolder folder(job.outputPrefix);
  SummedProgress progress(dealt.size(), job);
  std::atomic<size_t> firstFault = dealt.size();
  std::vector<TokenizeJob> jobs(dealt.size(), job);
  std::vector<std::future<TokenizeReport>> reports;
  for (size_t part = 0; part < dealt.size(); ++part) {
    jobs[part].outputPrefix = folder.prefix(part);
    jobs[part].mayBeEmpty = true;
    jobs[part].workers = std::max(1, job.workers / job.partitions);
    jobs[part].progress = [&, part](const TokenizeProgress &now) {
      if (firstFault < part)
        throw Unwanted();
      progress.report(part, now);
    };
    reports.push_back(std::async(std::launch::async, [&, part] {
      try {
        return tokenizeRanges(tokenizer, jobs[part], dealt[part]);
      } catch (const DataError &) {
        for (size_t seen = firstFault; part < seen && !firstFault.compare_exchange_weak(seen, part);) {
        }
        throw;
      }
    }));
  }
  TokenizeReport sum;
  for (std::future<TokenizeReport> &report : reports)
    add(sum, report.get());
  if (!job.mayBeEmpty)
    requireTokens(job, sum);
  std::vector<TokenizeOutput> outputs = outputsOf(tokenizer, job);
  for (const TokenizeOutput &output : outputs)
    sum.prefixes.push_back(output.prefix);
  for (size_t k = outputs.size(); k-- > 0;) { // a mask before its tokens
    IndexedWriter writer(outputs[k].prefix, outputs[k].type);
    for (const TokenizeJob &part : jobs)
      writer.addDataset(IndexedDataset::open(outputsOf(tokenizer, part)[k].prefix));
    writer.commit();
  }
  return sum;
}

void checkJob(const Tokenizer &tokenizer, const TokenizeJob &job) {
  if (job.inputs.empty())
    throw DataError("tokenize", "no input");
  std::set<std::string> names(job.keys.begin(), job.keys.end());
  if (job.keys.empty() || names.size() != job.keys.size())
    throw DataError("tokenize", "want at least one JSON key, each once");
  for (const std::string &key : job.keys)
    if (key.empty() || key.find('/') != std::string::npos)
      throw DataError("tokenize", fmt::format("key \"{}\" cannot be part of a file name", key));
  if (job.appendEod && tokenizer.eodToken() < 0)
    throw DataError("tokenize", "the tokenizer has no end-of-document token to append");
  for (const TokenizeOutput &output : outputsOf(tokenizer, job))
    if (!job.replaces)
      requireNoDataset(output.prefix);
  for (const std::string &input : job.inputs)
    if (job.partitions > 1 && input == "-")
      throw DataError(standardInput, "cannot be split in partitions; name a file, or leave them out");
  for (const std::string &input : job.inputs) {
    if (job.keys.size() > 1 && !holdsJson(input, job))
      throw DataError(input, fmt::format("is text, which has no keys; {} were asked for", job.keys.size()));
    if (job.chat && !holdsJson(input, job))
      throw DataError(input, "is text, conversations are JSON lines; --jsonl reads a file of another suffix as such");
  }
}

} // namespace

TokenizeReport tokenizeFiles(const Tokenizer &tokenizer, const TokenizeJob &job) {
  checkJob(tokenizer, job);
  if (job.partitions > 1)
    return tokenizePartitions(tokenizer, job);
  std::vector<InputRange> ranges;
  for (const std::string &input : job.inputs)
    ranges.push_back({input});
  return tokenizeRanges(tokenizer, job, ranges);
}

} // namespace espalier::rt
