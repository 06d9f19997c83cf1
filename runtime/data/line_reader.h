// Input text as records, plain or gzip, from a file or standard input, in bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

struct gzFile_s;

namespace espalier::rt {

class LineReader {
public:
  /// "-" is standard input; gzip is recognised by its first bytes. Throws DataError.
  explicit LineReader(const std::string &path);
  ~LineReader();
  LineReader(const LineReader &) = delete;
  LineReader &operator=(const LineReader &) = delete;

  /// The next line without its end, valid until the next call; false at the end of the input.
  /// Throws DataError for a damaged or truncated gzip file and for a line beyond 1 GiB.
  bool next(std::string_view &line);
  /// True when the line last given had an end; only the last line may lack it.
  bool endsWithNewline() const { return hadNewline; }
  /// Number of the line last given, from 1.
  int64_t lineNumber() const { return line; }
  /// Bytes of the file read so far (compressed bytes for gzip), for progress.
  int64_t bytesRead() const;

private:
  bool refill();

  std::string name;
  gzFile_s *file = nullptr;
  std::string buffer;
  size_t start = 0, end = 0; // the bytes not given out yet
  bool isDone = false, hadNewline = false;
  int64_t line = 0;
};

} // namespace espalier::rt
