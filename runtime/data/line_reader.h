// Input text as records, plain or gzip, from a file or standard input, in bounded memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

struct gzFile_s;

namespace espalier::rt {

class LineReader {
public:
  /// "-" is standard input; gzip is recognised by its first bytes. Of a plain file, [begin, end) gives the lines that
  /// start there, so that ranges which share no byte and leave none out give every line once. Throws DataError, also
  /// for a file named .gz that is not gzip.
  explicit LineReader(const std::string &path, int64_t begin = 0, int64_t end = std::numeric_limits<int64_t>::max());
  ~LineReader();
  LineReader(const LineReader &) = delete;
  LineReader &operator=(const LineReader &) = delete;

  /// The next line without its end, valid until the next call; false at the end of the input.
  /// Throws DataError for a damaged or truncated gzip file, for a line beyond 1 GiB, and for an input whose first bytes
  /// are those of a format that is not text, as Parquet.
  bool next(std::string_view &line);
  /// True when the line last given had an end; only the last line may lack it.
  bool endsWithNewline() const { return hadNewline; }
  /// Number of the line last given, from 1 for the first of the range.
  int64_t lineNumber() const { return line; }
  /// Bytes of the file read so far (compressed bytes for gzip), for progress.
  int64_t bytesRead() const;
  /// How many lines of `path` start before `byte`.
  static int64_t linesBefore(const std::string &path, int64_t byte);

private:
  bool refill();

  std::string name;
  gzFile_s *file = nullptr;
  std::string buffer;
  size_t start = 0, end = 0; // the bytes not given out yet
  bool isAtStart = true;     // nothing of the input is read yet
  bool isDone = false, hadNewline = false;
  int64_t line = 0;
  int64_t offset = 0, limit = 0; // of the next line in the file, and where the range ends
};

} // namespace espalier::rt
