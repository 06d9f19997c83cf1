// The main thread reads and writes. Worker tasks only convert blocks of records to tokens.
#include "runtime/dataset/tokenize_ranges.h"

#include "messages/data_error.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/dataset/json_array.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/dataset/line_reader.h"
#include "runtime/dataset/text_check.h"
#include "runtime/dataset/worker_pool.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <ranges>
#include <set>

namespace espalier::rt {

namespace {

constexpr size_t blockBytes = 1U << 20;
constexpr size_t longestDocument = 1U << 30;

/// Consecutive records of one input: JSON lines, or documents of a text file.
struct Block {
  struct Record {
    size_t begin, end;
    int64_t line;
  };
  std::string file, text;
  int64_t rangeBegin = 0; // start of the file range whose lines are counted
  bool isJson = false;
  std::vector<Record> records;
  int64_t bytesReadBefore = 0; // input bytes consumed before this block
};

/// The tokens of one output of one block, and the number of tokens of each document.
struct KeyTokens {
  std::vector<int32_t> tokens;
  std::vector<int32_t> lengths;
};

struct BlockTokens {
  std::vector<KeyTokens> keys;
  int64_t textBytes = 0, skipped = 0, bytesRead = 0;
  std::function<std::string()> firstSkipped; // its message; computed late, because counting lines may be slow
  std::function<std::string()> firstMark;    // "FILE:LINE" of the first endOfText of a text file; empty: none
};

/// The document separator of GPT-2's corpora and TinyStories.
constexpr std::string_view endOfText = "<|endoftext|>";

/// Returns the error of a line in a block, with the line's number in the whole file.
DataError faultOf(const std::string &file, int64_t rangeBegin, const std::string &reason, int64_t line) {
  return {file, reason, LineReader::linesBefore(file, rangeBegin) + line};
}

} // namespace

bool holdsJson(const std::string &path, const TokenizeJob &job) {
  std::string name = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
  if (name.ends_with(".jsonl") || name.ends_with(".json") || name.ends_with(".ndjson"))
    return true;
  return !name.ends_with(".txt") && job.readsJson;
}

namespace {

/// Cuts the inputs into blocks, in order.
class BlockReader {
public:
  BlockReader(const TokenizeJob &job, std::span<const InputRange> ranges) : job(job), ranges(ranges) {}

  bool next(Block &block) {
    block = {};
    while (block.records.empty()) {
      if (!reader && !openNext())
        return false;
      const InputRange &range = ranges[input - 1];
      block.file = range.path == "-" ? standardInput : range.path;
      block.rangeBegin = range.begin;
      block.isJson = isJson;
      bool isEnd = isJson ? fillLines(block) : fillDocuments(block);
      int64_t bytesRead = std::min(reader->bytesRead(), range.end) - range.begin;
      block.bytesReadBefore = bytesOfEarlier + bytesRead;
      if (isEnd) {
        bytesOfEarlier += bytesRead;
        array.reset();
        reader.reset();
      }
    }
    return true;
  }

private:
  bool openNext() {
    if (input == ranges.size())
      return false;
    const InputRange &range = ranges[input++];
    isJson = holdsJson(range.path, job);
    reader = std::make_unique<LineReader>(range.path, range.begin, range.end);
    isAtStart = range.begin == 0;
    return true;
  }
  static void add(Block &block, std::string_view text, int64_t line) {
    block.records.push_back({block.text.size(), block.text.size() + text.size(), line});
    block.text += text;
  }
  /// Fills a block with the lines or, if the file is one array, with its elements. Blank lines are no records.
  bool fillLines(Block &block) {
    std::string_view line;
    while (!array && block.text.size() < blockBytes) {
      if (!reader->next(line))
        return true;
      if (isAtStart && beginsJsonArray(line))
        array = std::make_unique<JsonArrayReader>(block.file, *reader, line);
      else if (!isBlankLine(line))
        add(block, line, reader->lineNumber());
      isAtStart = isAtStart && isBlankLine(line);
    }
    std::string element;
    while (array && block.text.size() < blockBytes) {
      if (!array->next(element))
        return true;
      add(block, element, array->lineNumber());
    }
    return false;
  }
  bool isBorder(std::string_view line) const {
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    return line == job.separator;
  }
  /// Fills a block with documents. A document never spans two blocks.
  bool fillDocuments(Block &block) {
    std::string_view line;
    while (block.text.size() < blockBytes) {
      Block::Record record{block.text.size(), 0, reader->lineNumber() + 1};
      bool hasLine = false, isEnd = false;
      while (true) {
        isEnd = !reader->next(line);
        if (isEnd || (isBorder(line) && hasLine))
          break;
        if (isBorder(line))
          continue; // consecutive borders count as one
        if (hasLine)
          block.text += '\n';
        block.text += line;
        hasLine = true;
        if (block.text.size() - record.begin > longestDocument)
          throw DataError(block.file,
                          fmt::format("a document of more than {} bytes; name its separator", longestDocument),
                          record.line);
      }
      record.end = block.text.size();
      if (hasLine)
        block.records.push_back(record);
      if (isEnd)
        return true;
    }
    return false;
  }

  const TokenizeJob &job;
  std::span<const InputRange> ranges;
  size_t input = 0; // ranges begun
  bool isJson = false;
  bool isAtStart = false; // of a JSON input: only blank lines were read
  std::unique_ptr<LineReader> reader;
  std::unique_ptr<JsonArrayReader> array;
  int64_t bytesOfEarlier = 0;
};

/// Appends the tokens of a text, or token ids, which may end with the end-of-document token already.
void appendDocument(Tokenizer &tokenizer, const TokenizeJob &job, std::string_view text, std::span<const int32_t> ids,
                    KeyTokens &out) {
  size_t before = out.tokens.size();
  out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
  tokenizer.encode(text, out.tokens);
  bool hasEod = !ids.empty() && ids.back() == tokenizer.eodToken();
  if (job.appendEod && out.tokens.size() != before && !hasEod)
    out.tokens.push_back(tokenizer.eodToken());
  out.lengths.push_back(static_cast<int32_t>(out.tokens.size() - before));
}

/// Returns why a document is not text, or an empty string. `line` is the first line of the document and becomes the
/// line of the error.
std::string textFault(std::string_view document, int64_t &line) {
  std::optional<size_t> at = findBinary(document);
  if (!at)
    return "";
  BinaryByte byte = describeBinary(document, *at);
  line += byte.line;
  return byte.reason + "; convert the file (iconv -f ENCODING -t UTF-8), or leave such documents out with --skip-bad";
}

/// Returns why token ids are not those of the tokenizer, or an empty string.
std::string idsFault(const Tokenizer &tokenizer, const std::string &key, std::span<const int32_t> ids) {
  auto other = std::ranges::find_if(ids, [&](int32_t id) { return id >= tokenizer.vocabSize(); });
  if (other == ids.end())
    return "";
  return fmt::format("key \"{}\" holds id {}, the tokenizer has {} ids; for ids of another one give --tokenizer null "
                     "--vocab-size N",
                     key, *other, tokenizer.vocabSize());
}

/// Records the position of the first endOfText in a block of text.
void noteMark(const Block &block, const Block::Record &record, BlockTokens &result) {
  std::string_view document = std::string_view(block.text).substr(record.begin, record.end - record.begin);
  size_t at = result.firstMark ? std::string_view::npos : document.find(endOfText);
  if (at == std::string_view::npos)
    return;
  int64_t line = record.line + std::count(document.begin(), document.begin() + static_cast<ptrdiff_t>(at), '\n');
  result.firstMark = [file = block.file, begin = block.rangeBegin, line] {
    return fmt::format("{}:{}", file, LineReader::linesBefore(file, begin) + line);
  };
}

/// A worker's tokenizer, and the renderer of conversations if the job has them.
struct Worker {
  explicit Worker(const Tokenizer &shared, const TokenizeJob &job) : tokenizer(shared.clone()) {
    if (job.chat)
      chat.emplace(*tokenizer, *job.chat);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTokenizer> chat;
};

/// Appends a conversation to the two outputs, its tokens and their mask. Returns a fault, or an empty string.
std::string appendChat(ChatTokenizer &chat, std::string_view line, BlockTokens &result) {
  KeyTokens &ids = result.keys[0], &mask = result.keys[1];
  size_t before = ids.tokens.size();
  std::string fault;
  result.textBytes += chat.append(line, ids.tokens, mask.tokens, fault);
  if (fault.empty())
    for (KeyTokens *out : {&ids, &mask})
      out->lengths.push_back(static_cast<int32_t>(ids.tokens.size() - before));
  return fault;
}

/// Appends a record to the outputs. Returns a fault, or an empty string; `line` becomes the line of the fault.
std::string appendRecord(Worker &worker, const TokenizeJob &job, const Block &block, const Block::Record &record,
                         int64_t &line, std::vector<JsonField> &fields, BlockTokens &result) {
  std::string_view text = std::string_view(block.text).substr(record.begin, record.end - record.begin);
  if (worker.chat)
    return appendChat(*worker.chat, text, result);
  std::string reason = block.isJson ? readJsonFields(text, job.keys, fields) : textFault(text, line);
  for (size_t k = 0; k < fields.size() && reason.empty(); ++k)
    reason = idsFault(*worker.tokenizer, job.keys[k], fields[k].ids);
  if (!reason.empty())
    return reason;
  if (!block.isJson)
    noteMark(block, record, result);
  for (size_t k = 0; k < fields.size(); ++k) {
    std::string_view value = block.isJson ? std::string_view(fields[k].text) : text;
    appendDocument(*worker.tokenizer, job, value, fields[k].ids, result.keys[k]);
    result.textBytes += static_cast<int64_t>(value.size());
  }
  return "";
}

BlockTokens tokenizeBlock(Worker &worker, const TokenizeJob &job, const Block &block) {
  BlockTokens result;
  result.keys.resize(job.chat ? 2 : job.keys.size());
  result.bytesRead = block.bytesReadBefore;
  std::vector<JsonField> fields(job.keys.size());
  for (const Block::Record &record : block.records) {
    int64_t line = record.line;
    std::string reason = appendRecord(worker, job, block, record, line, fields, result);
    if (reason.empty())
      continue;
    if (!job.skipBad)
      throw faultOf(block.file, block.rangeBegin, reason, line);
    if (result.skipped++ == 0)
      result.firstSkipped = [=, file = block.file, begin = block.rangeBegin] {
        return std::string(faultOf(file, begin, reason, line).what());
      };
  }
  return result;
}

int64_t fileBytes(const std::string &path) {
  std::error_code error;
  uint64_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

/// The output files and their statistics.
class Outputs {
public:
  Outputs(const Tokenizer &tokenizer, const TokenizeJob &job) : job(job) {
    for (const TokenizeOutput &output : outputsOf(tokenizer, job)) {
      report.prefixes.push_back(output.prefix);
      writers.push_back(std::make_unique<IndexedWriter>(output.prefix, output.type));
    }
    for (const std::string &input : job.inputs)
      bytesTotal += fileBytes(input);
  }
  void write(const BlockTokens &block) {
    for (size_t k = 0; k < writers.size(); ++k) {
      size_t at = 0;
      for (int32_t length : block.keys[k].lengths) {
        writers[k]->addTokens(std::span(block.keys[k].tokens).subspan(at, length));
        writers[k]->endDocument();
        at += length;
      }
      if (k == 0 || !job.chat) // a mask holds no tokens
        report.tokens += static_cast<int64_t>(block.keys[k].tokens.size());
    }
    if (job.chat)
      report.lossTokens += std::ranges::count(block.keys[1].tokens, 1);
    report.documents += static_cast<int64_t>(block.keys[0].lengths.size());
    report.textBytes += block.textBytes;
    if (report.skippedLines == 0 && block.skipped > 0)
      report.firstSkipped = block.firstSkipped();
    report.skippedLines += block.skipped;
    if (report.firstMark.empty() && block.firstMark)
      report.firstMark = block.firstMark();
    if (job.progress)
      job.progress({report.documents, report.tokens, block.bytesRead, bytesTotal});
  }
  TokenizeReport commit() {
    if (!job.mayBeEmpty)
      requireTokens(job, report);
    // The mask is committed before the tokens: tokens without their mask would be trained as plain text.
    for (const auto &writer : std::views::reverse(writers))
      writer->commit();
    return report;
  }

private:
  const TokenizeJob &job;
  std::vector<std::unique_ptr<IndexedWriter>> writers;
  TokenizeReport report;
  int64_t bytesTotal = 0;
};

} // namespace

void requireTokens(const TokenizeJob &job, const TokenizeReport &report) {
  if (report.tokens > 0)
    return;
  bool isStandardInput = job.inputs.size() == 1 && job.inputs[0] == "-";
  std::string names = isStandardInput ? standardInput : fmt::format("{}", fmt::join(job.inputs, ", "));
  if (report.skippedLines > 0)
    throw DataError(
        names, fmt::format("all {} records were skipped; the first: {}", report.skippedLines, report.firstSkipped));
  throw DataError(names, "holds no text; nothing is written");
}

std::vector<TokenizeOutput> outputsOf(const Tokenizer &tokenizer, const TokenizeJob &job) {
  TokenType type = tokenTypeFor(tokenizer.vocabSize());
  std::vector<TokenizeOutput> outputs;
  for (const std::string &key : job.keys)
    outputs.push_back({documentPrefix(job, key), type});
  if (job.chat)
    outputs.push_back({lossMaskPrefix(outputs[0].prefix), TokenType::u8});
  return outputs;
}

std::string documentPrefix(const TokenizeJob &job, const std::string &key) {
  return fmt::format("{}_{}_document", job.outputPrefix, key);
}

TokenizeReport tokenizeRanges(const Tokenizer &tokenizer, const TokenizeJob &job, std::span<const InputRange> ranges) {
  Outputs outputs(tokenizer, job);
  BlockReader reader(job, ranges);
  const int workers = std::max(job.workers, 1);
  std::vector<std::unique_ptr<Worker>> threads;
  for (int i = 0; i < workers; ++i)
    threads.push_back(std::make_unique<Worker>(tokenizer, job));
  Block block;
  if (workers == 1) {
    while (reader.next(block))
      outputs.write(tokenizeBlock(*threads[0], job, block));
    return outputs.commit();
  }
  WorkerPool<BlockTokens> pool(workers);
  // Two blocks per worker keep all workers busy and bound the memory.
  std::deque<std::future<BlockTokens>> inFlight;
  auto writeFirst = [&] {
    outputs.write(inFlight.front().get());
    inFlight.pop_front();
  };
  while (reader.next(block)) {
    inFlight.push_back(pool.submit(
        [&threads, &job, one = std::move(block)](int worker) { return tokenizeBlock(*threads[worker], job, one); }));
    if (inFlight.size() >= 2 * threads.size())
      writeFirst();
  }
  while (!inFlight.empty())
    writeFirst();
  return outputs.commit();
}

} // namespace espalier::rt
