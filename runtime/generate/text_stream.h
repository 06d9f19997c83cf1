// The text of a growing list of tokens, returned as soon as no later token can change it.
#pragma once

#include "runtime/generate/stop.h"
#include "runtime/tokenizer/tokenizer.h"

namespace espalier::rt {

/// Decodes tokens to text incrementally.
class TextStream {
public:
  /// Without a tokenizer there is no text. The tokenizer must outlive this object.
  TextStream(const Tokenizer *tokenizer, std::vector<std::string> stops)
      : tokenizer(tokenizer), filter(std::move(stops)) {}

  /// Adds a token. Returns the text that is now final.
  std::string push(int32_t token);
  /// Returns the remaining text at the end.
  std::string finish();
  bool isStopped() const { return filter.isStopped(); }

private:
  const Tokenizer *tokenizer;
  StopFilter filter;
  std::vector<int32_t> tokens;
  size_t taken = 0; ///< bytes of text already passed to the filter
};

} // namespace espalier::rt
