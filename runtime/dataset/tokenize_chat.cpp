// The text of a conversation is tokenized as a whole, as apply_chat_template of transformers does. A part of the text
// begins at the token that holds its first byte. That token is the first one in which the tokens of the text before the
// part differ from the tokens of the whole text.
#include "runtime/dataset/tokenize_chat.h"

#include "messages/data_error.h"
#include "runtime/dataset/json_fields.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

namespace {

constexpr std::array roles = {"system", "user", "assistant"};
/// The names of roles in ShareGPT's conversations.
constexpr std::pair<std::string_view, std::string_view> shareGptRoles[] = {
    {"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"}, {"bard", "assistant"}};
/// Names of the token that begins a document, in the vocabularies of published models.
constexpr std::array usualBos = {"<s>", "<|begin_of_text|>", "<bos>"};

/// Returns the fault that an object has no such key.
std::string missingKey(const std::string &key, const nlohmann::json &object) {
  std::vector<std::string> names;
  for (const auto &[name, value] : object.items())
    if (names.size() <= mostKeysShown)
      names.push_back(name);
  return noKey(key, names);
}

/// Reads a string field of an object. Returns a fault, or an empty string.
std::string readText(const nlohmann::json &object, const std::string &key, std::string &text) {
  auto found = object.find(key);
  if (found == object.end())
    return missingKey(key, object);
  if (!found->is_string())
    return fmt::format("key \"{}\" holds {}, want a string", key, found->type_name());
  text = found->get<std::string>();
  if (text.find(loneSurrogate) != std::string::npos)
    return fmt::format("key \"{}\" holds U+FFFF or half of a surrogate pair, which are no characters", key);
  return "";
}

/// Reads the content of a message: a string, or a list of parts that are texts. Returns a fault, or an empty string.
std::string readContent(const nlohmann::json &message, const std::string &key, std::string &text) {
  auto found = message.find(key);
  if (found == message.end() || !found->is_array())
    return readText(message, key, text);
  for (const nlohmann::json &part : *found) {
    std::string piece, fault;
    if (part.is_string())
      fault = readText({{"part", part}}, "part", piece);
    else if (!part.is_object() || part.value("type", nlohmann::json("text")) != "text")
      fault = "is no text";
    else
      fault = readText(part, "text", piece);
    if (!fault.empty())
      return fmt::format("a part of \"{}\": {}; only parts of type text are read", key, fault);
    text += piece;
  }
  return "";
}

/// Reads a message: an object with role and content, or ShareGPT's from and value. Returns a fault, or an empty string.
std::string readMessage(const nlohmann::json &object, ChatMessage &message) {
  bool isShareGpt = !object.contains("role") && object.contains("from");
  std::string fault = readText(object, isShareGpt ? "from" : "role", message.role);
  if (fault.empty())
    fault = readContent(object, isShareGpt ? "value" : "content", message.content);
  if (!fault.empty())
    return fault;
  for (auto [name, role] : shareGptRoles)
    if (isShareGpt && message.role == name)
      message.role = role;
  return std::ranges::find(roles, message.role) != roles.end()
             ? ""
             : fmt::format("role \"{}\", want system, user or assistant", message.role);
}

/// Reads the list of messages. Returns a fault, or an empty string.
std::string readMessages(const nlohmann::json &line, const std::string &key, std::vector<ChatMessage> &messages) {
  auto list = line.find(key);
  if (list == line.end() && key == "messages")
    list = line.find("conversations"); // the key of ShareGPT
  if (list == line.end())
    return missingKey(key, line);
  if (!list->is_array())
    return fmt::format("key \"{}\" holds {}, want a list of messages", key, list->type_name());
  if (list->empty())
    return fmt::format("key \"{}\" holds no message", key);
  // ShareGPT may have the system message beside the conversation.
  if (line.contains("conversations") && line.contains("system") && line["system"] != "")
    if (std::string fault = readText(line, "system", messages.emplace_back("system", "").content); !fault.empty())
      return fault;
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json &one = (*list)[i];
    std::string place = fmt::format("message {} of \"{}\"", i + 1, key);
    if (!one.is_object())
      return fmt::format("{} is {}, want an object with role and content", place, one.type_name());
    ChatMessage message;
    if (std::string fault = readMessage(one, message); !fault.empty())
      return fmt::format("{}: {}", place, fault);
    messages.push_back(std::move(message));
  }
  if (std::ranges::find(messages, "assistant", &ChatMessage::role) == messages.end())
    return fmt::format("key \"{}\" holds no message of the assistant, so there is nothing to learn", key);
  return "";
}

/// Reads a prompt and its completion. Returns a fault, or an empty string.
std::string readPair(const nlohmann::json &line, const ChatJob &job, std::vector<ChatMessage> &messages) {
  std::string prompt, input, completion;
  for (auto [key, text] : {std::pair(&job.promptKey, &prompt), {&job.completionKey, &completion}})
    if (std::string fault = readText(line, *key, *text); !fault.empty())
      return fault;
  if (!job.inputKey.empty() && line.contains(job.inputKey))
    if (std::string fault = readText(line, job.inputKey, input); !fault.empty())
      return fault;
  if (job.chat->name == "alpaca")
    messages = alpacaMessages(std::move(prompt), input, std::move(completion));
  else
    messages = {{"user", std::move(prompt)}, {"assistant", std::move(completion)}};
  return "";
}

size_t commonPrefix(const std::vector<int32_t> &one, const std::vector<int32_t> &other) {
  return std::ranges::mismatch(one, other).in1 - one.begin();
}

bool isOneToken(Tokenizer &tokenizer, const std::string &text) { return tokenizer.encode(text).size() == 1; }

} // namespace

ChatTokenizer::ChatTokenizer(Tokenizer &tokenizer, const ChatJob &job) : tokenizer(tokenizer), job(job) {
  auto refuse = [&](const std::string &what) {
    throw DataError("tokenize", fmt::format("{}; give the tokenizer of a model of this template (--tokenizer hf), or "
                                            "another --template",
                                            what));
  };
  for (const std::string &special : job.chat->specials)
    if (!isOneToken(tokenizer, special))
      refuse(fmt::format("template {} needs {} as one token, the tokenizer makes {} of it", job.chat->name, special,
                         tokenizer.encode(special).size()));
  bos = job.chat->bos;
  for (const char *usual : usualBos)
    if (bos.empty() && isOneToken(tokenizer, usual))
      bos = usual;
  if (bos.empty() && job.addsBos.value_or(false))
    refuse("the tokenizer has no token that begins a document, which --bos yes asks for");
  eos = job.chat->eos;
  if (int32_t eod = tokenizer.eodToken(); eos.empty() && eod >= 0)
    eos = tokenizer.decode(std::array{eod});
  bool needsEos = job.addsEos.value_or(job.chat->name == "alpaca");
  if (needsEos && (eos.empty() || !isOneToken(tokenizer, eos)))
    refuse(fmt::format("the tokenizer has no text for the token that ends a document, which {} needs",
                       job.addsEos ? "--eos yes" : "template " + job.chat->name));
}

int64_t ChatTokenizer::append(std::string_view line, std::vector<int32_t> &ids, std::vector<int32_t> &mask,
                              std::string &fault) {
  if (line.starts_with('[')) {
    fault = "begins a JSON array, want an object per line; jq -c '.[]' FILE > FILE.jsonl writes them";
    return 0;
  }
  nlohmann::json json = parseJsonLine(line, fault);
  if (!fault.empty())
    return 0;
  std::vector<ChatMessage> messages;
  if (!json.is_object())
    fault = fmt::format("want an object, got {}", json.type_name());
  else
    fault = job.messagesKey.empty() ? readPair(json, job, messages) : readMessages(json, job.messagesKey, messages);
  if (!fault.empty())
    return 0;
  bool answersEnd = job.addsEos.value_or(true); // alpaca
  std::vector<ChatPart> parts;
  try {
    parts = renderMessages(*job.chat, messages, answersEnd ? eos : "");
  } catch (const ChatRefused &refused) {
    fault = refused.what();
    return 0;
  }
  int64_t bytes = 0;
  for (const ChatPart &part : parts)
    bytes += static_cast<int64_t>(part.text.size());
  appendParts(std::move(parts), ids, mask);
  return bytes;
}

void ChatTokenizer::appendParts(std::vector<ChatPart> parts, std::vector<int32_t> &ids, std::vector<int32_t> &mask) {
  bool hasBos = !job.chat->bos.empty() && parts.front().text.starts_with(job.chat->bos);
  if (hasBos)
    parts.front().text.erase(0, job.chat->bos.size());
  if (job.addsBos.value_or(hasBos || job.chat->name == "alpaca"))
    parts.front().text.insert(0, bos);
  bool endsWithEos = !eos.empty() && parts.back().text.ends_with(eos);
  if (job.addsEos == true && !endsWithEos)
    parts.push_back({eos});
  if (job.addsEos == false && endsWithEos)
    parts.back().text.resize(parts.back().text.size() - eos.size());
  std::string text;
  for (const ChatPart &part : parts)
    text += part.text;
  std::vector<int32_t> whole = tokenizer.encode(text);
  std::vector<int32_t> counts(whole.size());
  auto tokenAt = [&](size_t byte) {
    return counts.begin() +
           static_cast<ptrdiff_t>(commonPrefix(tokenizer.encode(std::string_view(text).substr(0, byte)), whole));
  };
  size_t at = 0;
  for (const ChatPart &part : parts) {
    if (part.isAnswer)
      std::fill(tokenAt(at), tokenAt(at + part.text.size()), 1);
    at += part.text.size();
  }
  ids.insert(ids.end(), whole.begin(), whole.end());
  mask.insert(mask.end(), counts.begin(), counts.end());
}

} // namespace espalier::rt
