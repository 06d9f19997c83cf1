// The text of a growing list of tokens, handed out as soon as no later token can change it.
#pragma once

#include "runtime/data/tokenizer.h"
#include "runtime/generate/stop.h"

namespace espalier::rt {

class TextStream {
public:
  /// Without a tokenizer there is no text. It outlives this.
  TextStream(const Tokenizer *tokenizer, std::vector<std::string> stops)
      : tokenizer(tokenizer), filter(std::move(stops)) {}

  /// What is sure with this token more.
  std::string push(int32_t token);
  /// The rest, once no token follows.
  std::string finish();
  bool isStopped() const { return filter.isStopped(); }

private:
  const Tokenizer *tokenizer;
  StopFilter filter;
  std::vector<int32_t> tokens;
  size_t taken = 0; ///< bytes of their text that the filter has
};

} // namespace espalier::rt
