// Where tokens come from: numbered sequences of token ids. Files, memory and the mock all look like
// this to the sample index above them, so training has one path.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

class TokenSource {
public:
  virtual ~TokenSource() = default;
  virtual int64_t sequenceCount() const = 0;
  /// Tokens of sequence i, 0 <= i < sequenceCount().
  virtual int64_t sequenceLength(int64_t i) const = 0;
  /// Copies tokens [offset, offset + out.size()) of sequence i, which must lie inside it.
  virtual void read(int64_t i, int64_t offset, std::span<int32_t> out) const = 0;
  /// The file or kind, for messages.
  virtual const std::string &name() const = 0;
  /// Changes whenever the lengths may have changed; part of the key of a cached index.
  virtual std::string fingerprint() const = 0;
};

} // namespace espalier::rt
