// Reads lines from a plain or gzip file or from standard input, in bounded memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

struct gzFile_s;

namespace espalier::rt {

/// Reads the lines of one input.
class LineReader {
public:
  /// Opens `path`; "-" is standard input. Gzip is recognized by its first bytes. For a plain file, the reader returns
  /// the lines that start in [begin, end), so disjoint ranges that cover the file return every line once. Throws
  /// DataError, also for a file named .gz that is not gzip.
  explicit LineReader(const std::string &path, int64_t begin = 0, int64_t end = std::numeric_limits<int64_t>::max());
  ~LineReader();
  LineReader(const LineReader &) = delete;
  LineReader &operator=(const LineReader &) = delete;

  /// Reads the next line without its line break. The view is valid until the next call. Returns false at the end of the
  /// input. Throws DataError for a damaged gzip file, for a line above 1 GiB, and for an input whose first bytes belong
  /// to a binary format such as Parquet.
  bool next(std::string_view &line);
  /// Returns whether the last line that was read had a line break. Only the last line of an input may lack one.
  bool endsWithNewline() const { return hadNewline; }
  /// Returns the number of the last line that was read. The first line of the range is 1.
  int64_t lineNumber() const { return line; }
  /// Returns the bytes of the file that were read (compressed bytes for gzip), for progress reports.
  int64_t bytesRead() const;
  /// Returns the number of lines of `path` that start before `byte`.
  static int64_t linesBefore(const std::string &path, int64_t byte);

private:
  bool refill();

  std::string name;
  gzFile_s *file = nullptr;
  std::string buffer;
  size_t start = 0, end = 0; // the bytes that next() has not returned yet
  bool isAtStart = true;     // no input has been read yet
  bool isDone = false, hadNewline = false;
  int64_t line = 0;
  int64_t offset = 0, limit = 0; // the offset of the next line in the file, and the end of the range
};

} // namespace espalier::rt
