// Numbered sequences of token ids. Files, memory and the mock implement this interface, so the sample index and
// training do not distinguish them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

/// A list of sequences of tokens.
class TokenSource {
public:
  virtual ~TokenSource() = default;
  /// Returns the number of sequences.
  virtual int64_t sequenceCount() const = 0;
  /// Returns the number of tokens of sequence i, 0 <= i < sequenceCount().
  virtual int64_t sequenceLength(int64_t i) const = 0;
  /// Copies tokens [offset, offset + out.size()) of sequence i. The range must lie inside the sequence.
  virtual void read(int64_t i, int64_t offset, std::span<int32_t> out) const = 0;
  /// Returns the file or kind, for messages.
  virtual const std::string &name() const = 0;
  /// Returns a text that changes whenever the lengths may have changed. It is part of the key of a cached index.
  virtual std::string fingerprint() const = 0;
};

} // namespace espalier::rt
