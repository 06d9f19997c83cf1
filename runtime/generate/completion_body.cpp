#include "runtime/generate/completion_body.h"

#include "messages/data_error.h"
#include "runtime/generate/chat_prompt.h"
#include "runtime/generate/stop.h"
#include "runtime/json_bounds.h"
#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

using Json = BodyReader::Json;

bool isIds(const Json &value) {
  return value.is_array() && std::ranges::all_of(value, [](const Json &id) {
           return id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX;
         });
}

std::vector<int32_t> encoded(Tokenizer &tokenizer, const std::string &text) {
  try {
    return tokenizer.encode(text);
  } catch (const DataError &error) {
    throw BodyError(error.what());
  }
}

/// Returns the text of a prompt of ids; an incomplete character at its end belongs to the continuation.
std::string decoded(Tokenizer &tokenizer, const std::vector<int32_t> &ids) {
  try {
    std::string text = tokenizer.decode(ids);
    text.resize(wholeCharacters(text));
    return text;
  } catch (const DataError &error) {
    throw BodyError(error.what());
  }
}

Prompt readPrompt(const Json &value, Tokenizer *tokenizer, const BodyLimits &limits) {
  Prompt prompt;
  if (value.is_string()) {
    if (!tokenizer)
      throw BodyError("prompt is text and the server has no tokenizer; give a list of token ids");
    prompt.text = value.get<std::string>();
    prompt.ids = encoded(*tokenizer, prompt.text);
  } else if (isIds(value) && static_cast<int64_t>(value.size()) <= limits.tokens) {
    for (const Json &id : value)
      prompt.ids.push_back(id.get<int32_t>());
  } else {
    throw BodyError("prompt is neither a text nor a list of token ids, nor a list of texts or of such lists");
  }
  return prompt;
}

/// Reads one prompt, or a list of prompts. A list of numbers is one prompt.
std::vector<Prompt> readPrompts(const Json *value, Tokenizer *tokenizer, const BodyLimits &limits) {
  bool isList = value && value->is_array() && !value->empty() && !value->front().is_number();
  std::vector<Prompt> prompts;
  if (isList && static_cast<int64_t>(value->size()) > limits.choices)
    throw BodyError(fmt::format("prompt lists {} prompts, at most {} are taken", value->size(), limits.choices));
  for (const Json &one : isList ? *value : Json::array({value ? *value : Json()}))
    prompts.push_back(readPrompt(one, tokenizer, limits));
  return prompts;
}

/// Reads what both kinds of requests have: sampling, stop strings, the number of choices, and streaming.
void readCommon(const BodyReader &reader, const BodyLimits &limits, CompletionBody &body) {
  Sampling &sampling = body.options.sampling;
  sampling.temperature = reader.number("temperature", 1);
  sampling.topP = reader.number("top_p", 1);
  sampling.topK = reader.integer("top_k", 0);
  sampling.seed = static_cast<uint64_t>(reader.integer("seed", 0));
  sampling.minP = reader.number("min_p", 0);
  sampling.presencePenalty = reader.number("presence_penalty", 0);
  sampling.frequencyPenalty = reader.number("frequency_penalty", 0);
  sampling.repetitionPenalty = reader.number("repetition_penalty", 1);
  sampling.bias = reader.biases();
  body.options.stop = reader.stops();
  body.choicesPerPrompt = reader.integerWithin("n", 1, 1, limits.choices);
  if (static_cast<int64_t>(body.choices()) > limits.choices)
    throw BodyError(fmt::format("{} prompts with n {} make {} answers, at most {} are given", body.prompts.size(),
                                body.choicesPerPrompt, body.choices(), limits.choices));
  body.stream = reader.flag("stream");
  body.includesUsage = reader.includesUsage();
  if (body.includesUsage && !body.stream)
    throw BodyError("stream_options is for streams; set stream, or omit it");
  body.returnsIds = reader.flag("return_token_ids");
}

/// Reads `response_format`. A JSON object constrains the text.
void readFormat(const BodyReader &reader, bool hasTokenizer, CompletionBody &body) {
  const Json *format = reader.find("response_format");
  const Json type = format && format->is_object() ? format->value("type", Json()) : Json(format ? "" : "text");
  if (type == "text")
    return;
  if (type == "json_schema")
    throw BodyError("response_format json_schema is not supported; give json_object, and describe the object in the "
                    "prompt");
  if (type != "json_object")
    throw BodyError("response_format is not an object with type text or json_object");
  if (!hasTokenizer)
    throw BodyError("response_format json_object needs a tokenizer, and the server has none");
  if (body.options.grammar)
    throw BodyError("response_format json_object and a tool_choice that requires a call exclude each other");
  body.options.grammar = jsonObjectGrammar(answerHead(body.calls));
}

/// Returns the name of a function of `tools`, or of `tool_choice`.
std::string functionName(const Json &tool, const char *key) {
  const Json function =
      tool.is_object() && tool.value("type", Json()) == "function" ? tool.value("function", Json()) : Json();
  const Json name = function.is_object() ? function.value("name", Json()) : Json();
  const std::string text = name.is_string() ? name.get<std::string>() : "";
  bool isName = !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char one) {
    return std::isalnum(static_cast<unsigned char>(one)) || one == '_' || one == '-' || one == '.';
  });
  if (!isName)
    throw BodyError(fmt::format(R"({} names no function: want {{"type": "function", "function": {{"name": ...}}}} )"
                                "with a name of at most 64 letters, digits, _, - and .",
                                key));
  return text;
}

std::vector<std::string> functionNames(const Json &tools) {
  if (!tools.is_array())
    throw BodyError("tools is not a list of functions");
  std::vector<std::string> names;
  for (const Json &tool : tools)
    names.push_back(functionName(tool, "tools"));
  return names;
}

/// Reads `tools` and `tool_choice`. The functions become a variable of the template, unless no call is allowed.
void readTools(const BodyReader &reader, const ChatTemplate &chat, Json &variables, CompletionBody &body) {
  CallFormat format = callFormatOf(chat.source);
  if (format == CallFormat::Harmony) // which has reasoning without tools, too
    body.calls = format;
  const Json *tools = reader.find("tools"), *given = reader.find("tool_choice");
  std::vector<std::string> names = functionNames(tools ? *tools : Json::array());
  const Json choice = given ? *given : Json(names.empty() ? "none" : "auto");
  if (choice == "none" || (names.empty() && choice == "auto"))
    return;
  if (names.empty())
    throw BodyError("tool_choice needs tools");
  if (format == CallFormat::None)
    throw BodyError("tools are not supported with this chat template, because the format of its model's calls is not "
                    "known; the formats are those of Qwen and Hermes, Llama 3, Mistral and gpt-oss");
  if (choice.is_object()) {
    std::string name = functionName(choice, "tool_choice");
    if (std::ranges::find(names, name) == names.end())
      throw BodyError(fmt::format("tool_choice names {}, which is not in tools", name));
    names = {name};
  } else if (choice != "auto" && choice != "required") {
    throw BodyError("tool_choice is neither none, auto or required, nor a function");
  }
  variables["tools"] = *tools;
  body.calls = format;
  if (choice == "auto")
    return;
  body.options.grammar = callGrammar(format, names, chat.source);
  if (!body.options.grammar)
    throw BodyError("tool_choice is not supported beyond auto and none with this chat template, because the calls of "
                    "its model are not JSON alone");
}

/// Returns the text of a message: a string, or a list of parts of type text.
std::string contentOf(const Json &message) {
  const Json content = message.value("content", Json());
  if (content.is_string())
    return content.get<std::string>();
  std::string text;
  for (const Json &part : content.is_array() ? content : Json::array({Json()})) {
    bool isText = part.is_object() && part.value("type", Json()) == "text" && part.value("text", Json()).is_string();
    if (!isText)
      throw BodyError("the content of a message is neither a text nor a list of parts of type text");
    text += part["text"].get<std::string>();
  }
  return text;
}

/// Returns a message as the template of a tokenizer takes it: without keys that are null, and with the arguments of
/// calls as objects. Reasoning has the names of transformers and of OpenAI's clients.
Json ownMessage(Json message) {
  for (auto item = message.begin(); item != message.end();)
    item = item->is_null() ? message.erase(item) : std::next(item);
  for (const char *key : {"thinking", "reasoning"})
    if (message.contains(key) && !message.contains("reasoning_content"))
      message["reasoning_content"] = Json(message[key]);
  if (message.contains("reasoning_content") && !message.contains("thinking"))
    message["thinking"] = Json(message["reasoning_content"]);
  if (!message.contains("tool_calls"))
    return message;
  if (!message["tool_calls"].is_array())
    throw BodyError("tool_calls of a message is not a list of calls");
  for (Json &call : message["tool_calls"]) {
    bool isText = call.is_object() && call.value("function", Json()).is_object() &&
                  call["function"].value("arguments", Json()).is_string();
    const std::string text = isText ? call["function"]["arguments"].get<std::string>() : "";
    if (!isText || !isWithinBounds(text, {.levels = 32, .keys = 256}))
      continue;
    if (Json arguments = Json::parse(text, nullptr, /*allow_exceptions=*/false); arguments.is_object())
      call["function"]["arguments"] = std::move(arguments);
  }
  return message;
}

Json readMessages(const Json *value, const ChatTemplate &chat) {
  if (!value || !value->is_array() || value->empty())
    throw BodyError("messages is not a list of messages");
  Json messages = Json::array();
  for (const Json &message : *value) {
    if (!message.is_object() || !message.value("role", Json()).is_string())
      throw BodyError("a message is not an object with a role");
    auto role = message["role"].get<std::string>();
    if (role == "developer" && chat.source.find(role) == std::string::npos)
      role = "system";
    if (chat.isNamed() && role != "system" && role != "user" && role != "assistant")
      throw BodyError(
          fmt::format("role '{}' is not supported; the roles are system, user and assistant", role.substr(0, 64)));
    Json taken = chat.isNamed() ? Json::object() : ownMessage(message);
    taken["role"] = role;
    if (!taken.contains("tool_calls") || taken.contains("content"))
      taken["content"] = contentOf(message);
    messages.push_back(std::move(taken));
  }
  return messages;
}

/// Returns the further variables of the template.
Json readVariables(const BodyReader &reader) {
  Json variables = Json::object();
  if (const Json *documents = reader.find("documents")) {
    if (!documents->is_array() || !std::ranges::all_of(*documents, [](const Json &one) { return one.is_object(); }))
      throw BodyError("documents is not a list of objects");
    variables["documents"] = *documents;
  }
  const Json *given = reader.find("chat_template_kwargs");
  if (given && !given->is_object())
    throw BodyError("chat_template_kwargs is not an object");
  const Json more = given ? *given : Json::object();
  for (const auto &[key, value] : more.items()) {
    if (key == "messages" || key == "tools" || key == "add_generation_prompt")
      throw BodyError(fmt::format("chat_template_kwargs has {}, which the request itself decides", key));
    variables[key] = value;
  }
  return variables;
}

} // namespace

Request CompletionBody::request(size_t choice) const {
  Request request = options;
  request.prompt = promptOf(choice).ids;
  request.sampling.seed += choice % static_cast<size_t>(choicesPerPrompt);
  return request;
}

CompletionBody parseCompletionBody(std::string_view text, Tokenizer *tokenizer, const BodyLimits &limits) {
  BodyReader reader(text, limits);
  reader.refuseOthers({"model",
                       "prompt",
                       "max_tokens",
                       "temperature",
                       "top_p",
                       "top_k",
                       "seed",
                       "stop",
                       "stream",
                       "stream_options",
                       "echo",
                       "user",
                       "n",
                       "best_of",
                       "logprobs",
                       "return_token_ids",
                       "min_p",
                       "presence_penalty",
                       "frequency_penalty",
                       "repetition_penalty",
                       "logit_bias",
                       "response_format"});
  CompletionBody body;
  body.prompts = readPrompts(reader.find("prompt"), tokenizer, limits);
  readCommon(reader, limits, body);
  readFormat(reader, tokenizer != nullptr, body);
  if (reader.integer("best_of", body.choicesPerPrompt) != body.choicesPerPrompt)
    throw BodyError("best_of is not supported beyond n; omit it");
  body.options.maxTokens = reader.integer("max_tokens", 16);
  body.echo = reader.flag("echo");
  if (reader.find("logprobs"))
    body.options.bestTokens = static_cast<int32_t>(reader.integerWithin("logprobs", 0, 0, limits.bestTokens));
  body.options.scoresPrompt = body.echo && body.options.bestTokens;
  if (body.stream && body.echo)
    throw BodyError("echo is not supported for streams; omit it");
  if (body.echo && tokenizer)
    for (Prompt &prompt : body.prompts)
      if (prompt.text.empty())
        prompt.text = decoded(*tokenizer, prompt.ids);
  return body;
}

CompletionBody parseChatBody(std::string_view text, Tokenizer &tokenizer, const ChatTemplate &chat, int64_t context,
                             const BodyLimits &limits) {
  BodyReader reader(text, limits);
  reader.refuseOthers({"model",
                       "messages",
                       "max_tokens",
                       "max_completion_tokens",
                       "temperature",
                       "top_p",
                       "top_k",
                       "seed",
                       "stop",
                       "stream",
                       "stream_options",
                       "user",
                       "n",
                       "logprobs",
                       "top_logprobs",
                       "return_token_ids",
                       "documents",
                       "chat_template_kwargs",
                       "min_p",
                       "presence_penalty",
                       "frequency_penalty",
                       "repetition_penalty",
                       "logit_bias",
                       "response_format",
                       "tools",
                       "tool_choice"});
  CompletionBody body;
  body.isChat = true;
  Json messages = readMessages(reader.find("messages"), chat);
  Json variables = readVariables(reader);
  readTools(reader, chat, variables, body);
  readFormat(reader, /*hasTokenizer=*/true, body);
  body.options.maxTokens = reader.integer("max_completion_tokens", reader.integer("max_tokens", context));
  try {
    ChatPrompt prompt = renderWithin(chat, tokenizer, messages, context, body.options.maxTokens, variables);
    body.prompts = {{std::move(prompt.ids), std::move(prompt.text)}};
    body.note = std::move(prompt.note);
  } catch (const ChatRefused &refused) {
    throw BodyError(refused.what());
  } catch (const DataError &error) {
    throw BodyError(error.what());
  }
  readCommon(reader, limits, body);
  body.options.showsMarks = body.calls != CallFormat::None;
  for (const std::vector<std::string> &stops : {chat.stops, callStops(body.calls)})
    body.options.stop.insert(body.options.stop.end(), stops.begin(), stops.end());
  auto best = static_cast<int32_t>(reader.integerWithin("top_logprobs", 0, 0, limits.bestTokens));
  if (reader.flag("logprobs"))
    body.options.bestTokens = best;
  else if (reader.find("top_logprobs"))
    throw BodyError("top_logprobs needs logprobs true");
  return body;
}

} // namespace espalier::rt
