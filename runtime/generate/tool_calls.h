// Calls of functions in the answers of models. The formats are those of published models, recognized by the text of the
// chat template.
#pragma once

#include "runtime/generate/grammar.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The way in which a model writes calls.
enum class CallFormat {
  None,        ///< no calls, or in an unknown way
  Hermes,      ///< <tool_call>{"name": ..., "arguments": ...}</tool_call>, as Qwen
  Llama,       ///< {"name": ..., "parameters": ...} as the whole answer; <|python_tag|> may precede it
  Mistral,     ///< [TOOL_CALLS] [{"name": ..., "arguments": ...}]
  MistralArgs, ///< [TOOL_CALLS]name[ARGS]{...}
  Harmony,     ///< channels, as gpt-oss: <|channel|>commentary to=functions.name<|message|>{...}
};

/// Returns the format of a template.
CallFormat callFormatOf(std::string_view templateSource);
/// Returns the strings that end an answer with calls, besides those of the template.
std::vector<std::string> callStops(CallFormat format);

/// A call in an answer.
struct ToolCall {
  std::string name;
  std::string arguments; ///< JSON text of an object
};

/// An answer in parts.
struct AnswerParts {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
};

/// Splits the text of an answer. Words that look like a call and are none are content. Unless `isEnd`, the parts have
/// only what no later text can change, so those of a longer text begin with those of a shorter one.
AnswerParts splitAnswer(CallFormat format, std::string_view text, bool isEnd);

/// Returns what precedes the text of an answer without calls and reasoning.
std::string answerHead(CallFormat format);

/// Returns the grammar of an answer that is one call of one of these functions; null if calls of the format are no JSON
/// between fixed words.
std::shared_ptr<const Grammar> callGrammar(CallFormat format, const std::vector<std::string> &names,
                                           std::string_view templateSource);

} // namespace espalier::rt
