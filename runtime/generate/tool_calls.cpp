#include "runtime/generate/tool_calls.h"

#include "runtime/generate/stop.h"
#include "runtime/jinja/text.h"
#include "runtime/json_bounds.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace espalier::rt {

namespace {

using Json = nlohmann::ordered_json;
using std::string_view;

constexpr string_view hermesBegin = "<tool_call>", hermesEnd = "</tool_call>", pythonTag = "<|python_tag|>",
                      mistralBegin = "[TOOL_CALLS]", mistralArguments = "[ARGS]", mistralId = "[CALL_ID]",
                      start = "<|start|>", channel = "<|channel|>", message = "<|message|>",
                      recipient = "to=functions.";
constexpr string_view harmonyEnds[] = {"<|end|>", "<|call|>", "<|return|>", start};

string_view trimmed(string_view text, jinja::Side side = jinja::Side::Both) { return jinja::stripped(text, side); }
bool has(string_view text, string_view part) { return text.find(part) != string_view::npos; }

std::optional<Json> parsed(string_view text) {
  if (!isWithinBounds(text, {.levels = 128}))
    return std::nullopt;
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? std::nullopt : std::optional(std::move(value));
}

/// Returns the call of an object with a name and arguments.
std::optional<ToolCall> callOf(const Json &value) {
  if (!value.is_object() || !value.value("name", Json()).is_string())
    return std::nullopt;
  for (const char *key : {"arguments", "parameters"})
    if (auto found = value.find(key); found != value.end() && found->is_object())
      return ToolCall{value["name"].get<std::string>(), found->dump(-1, ' ', false, Json::error_handler_t::replace)};
  return std::nullopt;
}

/// Returns how much of a text precedes a mark and surely belongs to no mark, if more text follows.
size_t sureSize(string_view text, std::initializer_list<string_view> marks) {
  size_t size = text.size();
  for (string_view mark : marks) {
    size = std::min(size, text.find(mark));
    for (size_t length = std::min(mark.size() - 1, text.size()); length > 0; --length)
      if (text.ends_with(mark.substr(0, length)))
        size = std::min(size, text.size() - length);
  }
  return size;
}

/// Returns the end of the JSON object that a text begins with, or nothing if it begins with none.
std::optional<size_t> objectEnd(string_view text) {
  JsonAutomaton json;
  for (size_t at = 0; at < text.size() && json.push(static_cast<uint8_t>(text[at])); ++at)
    if (json.isComplete())
      return at + 1;
  return std::nullopt;
}

/// Returns a text that calls may follow. White space before a call is no content.
string_view beforeCalls(string_view text) { return trimmed(text, jinja::Side::Right); }

/// Returns what is content of a text without marks, to which more text may come.
string_view contentOf(string_view text, std::initializer_list<string_view> marks, bool isEnd) {
  return isEnd ? text : beforeCalls(text.substr(0, sureSize(text, marks)));
}

void splitHermes(AnswerParts &parts, string_view text, bool isEnd) {
  for (size_t begin = text.find(hermesBegin); begin != string_view::npos; begin = text.find(hermesBegin)) {
    string_view inner = text.substr(begin + hermesBegin.size());
    size_t end = inner.find(hermesEnd);
    bool isOpen = end == string_view::npos;
    std::optional<Json> value = isOpen && !isEnd ? std::nullopt : parsed(inner.substr(0, end));
    std::optional<ToolCall> call = value ? callOf(*value) : std::nullopt;
    if (call || (isOpen && !isEnd))
      parts.content += beforeCalls(text.substr(0, begin));
    if (isOpen && !isEnd)
      return;
    size_t next = begin + hermesBegin.size() + (isOpen ? inner.size() : end + hermesEnd.size());
    if (!call) {
      parts.content += text.substr(0, next);
      text.remove_prefix(next);
      continue;
    }
    parts.calls.push_back(std::move(*call));
    text = trimmed(text.substr(next), jinja::Side::Left);
  }
  parts.content += contentOf(text, {hermesBegin}, isEnd);
}

/// An answer of Llama is calls as a whole, with semicolons between, or text.
void splitLlama(AnswerParts &parts, string_view text, bool isEnd) {
  string_view rest = trimmed(text, jinja::Side::Left);
  bool mayBeTag = rest.size() < pythonTag.size() && pythonTag.starts_with(rest);
  bool hasTag = rest.starts_with(pythonTag);
  if (hasTag)
    rest = trimmed(rest.substr(pythonTag.size()), jinja::Side::Left);
  if (!isEnd && (mayBeTag || hasTag || rest.starts_with('{')))
    return; // known at the end
  std::vector<ToolCall> calls;
  while (!rest.empty()) {
    std::optional<size_t> end = objectEnd(rest);
    std::optional<Json> value = end ? parsed(rest.substr(0, *end)) : std::nullopt;
    std::optional<ToolCall> call = value ? callOf(*value) : std::nullopt;
    if (!call) {
      parts.content = text;
      return;
    }
    calls.push_back(std::move(*call));
    rest = trimmed(rest.substr(*end));
    if (rest.starts_with(';'))
      rest = trimmed(rest.substr(1));
  }
  if (calls.empty())
    parts.content = text;
  parts.calls = std::move(calls);
}

/// Returns the calls behind a mark of Mistral: a list of objects, or a name and its arguments.
std::vector<ToolCall> mistralCalls(string_view text) {
  if (text.starts_with('[')) {
    std::optional<Json> list = parsed(text);
    std::vector<ToolCall> calls;
    for (const Json &one : list && list->is_array() ? *list : Json::array())
      if (std::optional<ToolCall> call = callOf(one))
        calls.push_back(std::move(*call));
    return list && calls.size() == list->size() ? calls : std::vector<ToolCall>();
  }
  size_t brace = text.find('{');
  if (brace == string_view::npos)
    return {};
  string_view name = text.substr(0, brace);
  for (string_view mark : {mistralArguments, mistralId})
    name = name.substr(0, name.find(mark));
  std::optional<Json> arguments = parsed(text.substr(brace));
  if (!arguments || !arguments->is_object() || trimmed(name).empty())
    return {};
  return {{std::string(trimmed(name)), arguments->dump(-1, ' ', false, Json::error_handler_t::replace)}};
}

void splitMistral(AnswerParts &parts, string_view text, bool isEnd) {
  size_t begin = text.find(mistralBegin);
  parts.content =
      begin == string_view::npos ? contentOf(text, {mistralBegin}, isEnd) : beforeCalls(text.substr(0, begin));
  if (begin == string_view::npos)
    return;
  for (text.remove_prefix(begin); !text.empty();) {
    size_t next = std::min(text.find(mistralBegin, mistralBegin.size()), text.size());
    if (next == text.size() && !isEnd)
      return; // this call may continue
    std::vector<ToolCall> calls = mistralCalls(trimmed(text.substr(mistralBegin.size(), next - mistralBegin.size())));
    if (calls.empty())
      parts.content += text.substr(0, next);
    parts.calls.insert(parts.calls.end(), calls.begin(), calls.end());
    text.remove_prefix(next);
  }
}

/// Messages of Harmony: a head with a channel and perhaps a recipient, <|message|>, a body, and an end.
void splitHarmony(AnswerParts &parts, string_view text, bool isEnd) {
  if (!has(text, channel)) { // another format, which is known at the end
    parts.content = isEnd ? text : "";
    return;
  }
  while (!text.empty()) {
    size_t head = text.find(message);
    if (head == string_view::npos)
      return;
    string_view about = text.substr(0, head), body = text.substr(head + message.size());
    size_t size = string_view::npos, end = 0;
    for (string_view mark : harmonyEnds)
      if (size_t at = body.find(mark); at < size) {
        size = at;
        end = mark == start ? at : at + mark.size();
      }
    bool isOpen = size == string_view::npos;
    std::string_view inner =
        !isOpen ? body.substr(0, size)
        : isEnd ? body
                : body.substr(0, sureSize(body, {harmonyEnds[0], harmonyEnds[1], harmonyEnds[2], harmonyEnds[3]}));
    size_t to = about.find(recipient);
    if (to != string_view::npos) {
      string_view name = about.substr(to + recipient.size());
      name = name.substr(0, std::min(name.find_first_of(" <\n"), name.size()));
      if (std::optional<Json> value = isOpen && !isEnd ? std::nullopt : parsed(inner); value && value->is_object())
        parts.calls.push_back({std::string(name), value->dump(-1, ' ', false, Json::error_handler_t::replace)});
      else if (!isOpen || isEnd)
        parts.content += inner;
    } else {
      (has(about, "analysis") ? parts.reasoning : parts.content) += inner;
    }
    if (isOpen)
      return;
    text = body.substr(end);
  }
}

} // namespace

CallFormat callFormatOf(string_view source) {
  auto contains = [&](string_view part) { return has(source, part); };
  if (!contains("tools"))
    return CallFormat::None;
  if (contains(channel) && contains(message))
    return CallFormat::Harmony;
  if (contains(mistralBegin))
    return contains(mistralArguments) ? CallFormat::MistralArgs : CallFormat::Mistral;
  if (contains(hermesBegin)) // Qwen3-Coder and GLM-4.5 write XML between the same marks
    return contains("<function=") || contains("<arg_key>") ? CallFormat::None : CallFormat::Hermes;
  bool isLlama = contains(pythonTag) || contains("\"parameters\": dictionary");
  return isLlama ? CallFormat::Llama : CallFormat::None;
}

std::vector<std::string> callStops(CallFormat format) {
  switch (format) {
  case CallFormat::Harmony:
    return {"<|call|>"};
  case CallFormat::Llama:
    return {"<|eom_id|>"};
  default:
    return {};
  }
}

std::string answerHead(CallFormat format) {
  return format == CallFormat::Harmony ? std::string(channel) + "final" + std::string(message) : "";
}

AnswerParts splitAnswer(CallFormat format, string_view text, bool isEnd) {
  AnswerParts parts;
  switch (format) {
  case CallFormat::None:
    parts.content = text;
    break;
  case CallFormat::Hermes:
    splitHermes(parts, text, isEnd);
    break;
  case CallFormat::Llama:
    splitLlama(parts, text, isEnd);
    break;
  case CallFormat::Mistral:
  case CallFormat::MistralArgs:
    splitMistral(parts, text, isEnd);
    break;
  case CallFormat::Harmony:
    splitHarmony(parts, text, isEnd);
    break;
  }
  return parts;
}

std::shared_ptr<const Grammar> callGrammar(CallFormat format, const std::vector<std::string> &names,
                                           string_view source) {
  std::string before, middle, after;
  switch (format) {
  case CallFormat::None:
  case CallFormat::Harmony:
    return nullptr;
  case CallFormat::Hermes:
    before = std::string(hermesBegin) + "\n{\"name\": \"";
    middle = "\", \"arguments\": ";
    after = "}\n" + std::string(hermesEnd);
    break;
  case CallFormat::Llama:
    before = "{\"name\": \"";
    middle = "\", \"parameters\": ";
    after = "}";
    break;
  case CallFormat::Mistral:
    before = std::string(mistralBegin) + (has(source, "[TOOL_CALLS] ") ? " " : "") + "[{\"name\": \"";
    middle = "\", \"arguments\": ";
    after = "}]";
    break;
  case CallFormat::MistralArgs:
    before = mistralBegin;
    middle = mistralArguments;
    break;
  }
  std::vector<Grammar::Segment> segments(2);
  for (const std::string &name : names)
    segments[0].words.push_back(before + name + middle);
  if (!after.empty())
    segments.push_back({{after}});
  return std::make_shared<const Grammar>(std::move(segments));
}

} // namespace espalier::rt
