#include "runtime/tokenizer/chat_template.h"

#include "messages/data_error.h"
#include "runtime/files/mapped_file.h"
#include "runtime/jinja/text.h"
#include "runtime/tokenizer/named_templates.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t mostBytes = 16 << 20;

std::string_view trimmed(std::string_view text, jinja::Side side = jinja::Side::Both) {
  return jinja::stripped(text, side);
}

/// Returns tokenizer_config.json of a folder; null if there is none.
Json configOf(const std::filesystem::path &folder) {
  std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file))
    return {};
  Json config = Json::parse(readWholeFile(file.string(), mostBytes), nullptr, false);
  if (config.is_discarded() || !config.is_object())
    throw DataError(file.string(), "not a JSON object");
  return config;
}

/// Returns the template of a tokenizer; empty if it has none.
std::string templateText(const std::filesystem::path &folder, const Json &config) {
  if (std::filesystem::path file = folder / "chat_template.jinja"; std::filesystem::exists(file))
    return readWholeFile(file.string(), mostBytes);
  Json text = config.is_object() ? config.value("chat_template", Json()) : Json();
  if (text.is_array()) // named templates; `default` is for chats
    for (const Json &one : Json(text))
      if (one.is_object() && one.value("name", Json()) == "default")
        text = one.value("template", Json());
  return text.is_string() ? text.get<std::string>() : "";
}

/// Returns the text of a token of the configuration: a string, or an object with its content.
std::string tokenOf(const Json &config, const char *key) {
  Json token = config.is_object() ? config.value(key, Json()) : Json();
  if (token.is_object())
    token = token.value("content", Json());
  return token.is_string() ? token.get<std::string>() : "";
}

/// Returns what the template writes behind an answer, if it is a mark as <|im_end|> or [/A]; empty if not.
std::string endOfAnswers(const ChatTemplate &chat) {
  const std::string answer = "An answer.";
  try {
    Json messages = {{{"role", "user"}, {"content", "A question."}}, {{"role", "assistant"}, {"content", answer}}};
    std::string text = chat.render(messages, /*addsGenerationPrompt=*/false).text;
    size_t at = text.rfind(answer);
    if (at == std::string::npos)
      return "";
    std::string_view rest = trimmed(std::string_view(text).substr(at + answer.size()));
    size_t end = rest.find(rest.starts_with('[') ? ']' : '>');
    bool isMark = (rest.starts_with('<') || rest.starts_with('[')) && end != std::string_view::npos && end > 1;
    return isMark ? std::string(rest.substr(0, end + 1)) : "";
  } catch (const ChatRefused &) {
    return "";
  }
}

Json jsonOf(std::span<const ChatMessage> messages) {
  Json list = Json::array();
  for (const ChatMessage &message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return list;
}

/// Returns where the answer that ends a text from `begin` ends: behind the answer's own words and the mark behind them,
/// without white space after the mark.
size_t answerEnd(std::string_view text, size_t begin, std::string_view content) {
  std::string_view added = text.substr(begin);
  size_t words = added.find(trimmed(content));
  size_t least = words == std::string_view::npos ? 0 : words + trimmed(content).size();
  if (trimmed(added.substr(least)).empty()) // no mark
    return text.size();
  return begin + least + trimmed(added.substr(least), jinja::Side::Right).size();
}

/// Returns the positions of the answers of a template without `generation` blocks, in the text of all messages.
std::vector<std::pair<size_t, size_t>> answersOf(const ChatTemplate &chat, std::span<const ChatMessage> messages,
                                                 std::string_view text, const Json &more) {
  std::vector<std::pair<size_t, size_t>> answers;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant")
      continue;
    std::string before = chat.render(jsonOf(messages.first(i)), /*addsGenerationPrompt=*/true, more).text;
    std::string until = chat.render(jsonOf(messages.first(i + 1)), /*addsGenerationPrompt=*/false, more).text;
    size_t end = until.starts_with(before) ? answerEnd(until, before.size(), messages[i].content) : 0;
    if (end == 0 || text.substr(0, end) != std::string_view(until).substr(0, end))
      throw ChatRefused(fmt::format("the template writes message {} in another way when it is generated or when others "
                                    "follow, so that its tokens are not known; put {{% generation %}} around the "
                                    "answers of the template",
                                    i + 1));
    answers.emplace_back(before.size(), end);
  }
  return answers;
}

} // namespace

jinja::Rendered ChatTemplate::render(const Json &messages, bool addsGenerationPrompt, const Json &more) const {
  if (messages.empty())
    throw ChatRefused("messages has no message");
  Json variables = {{"messages", messages}, {"tools", nullptr},
                    {"documents", nullptr}, {"add_generation_prompt", addsGenerationPrompt},
                    {"bos_token", bos},     {"eos_token", eos}};
  if (isNamed())
    variables["fault"] = fmt::format("template {} takes messages of user and assistant in turn, beginning {}with user; "
                                     "a system message may come first",
                                     name, addsGenerationPrompt ? "and ending " : "");
  for (const auto &[key, value] : more.items())
    variables[key] = value;
  try {
    return program.render(variables, std::time(nullptr));
  } catch (const jinja::TemplateError &error) {
    throw ChatRefused(error.reason);
  }
}

std::vector<std::string> chatTemplateNames() {
  std::vector<std::string> names;
  for (const NamedTemplate &format : namedTemplates())
    names.emplace_back(format.name);
  return names;
}

ChatTemplatePtr chatTemplateNamed(std::string_view name) {
  const NamedTemplate &format =
      *std::ranges::find_if(namedTemplates(), [&](const NamedTemplate &one) { return one.name == name; });
  return std::make_shared<const ChatTemplate>(ChatTemplate{format.name, format.source, jinja::Template(format.source),
                                                           format.bos, format.eos, format.stops, format.specials});
}

std::vector<ChatPart> renderMessages(const ChatTemplate &chat, std::span<const ChatMessage> messages,
                                     const std::string &eos) {
  Json more = Json::object();
  if (chat.eos.empty())
    more["eos_token"] = eos;
  jinja::Rendered rendered = chat.render(jsonOf(messages), /*addsGenerationPrompt=*/false, more);
  std::string_view text = rendered.text;
  if (!chat.program.hasGeneration())
    rendered.generated = answersOf(chat, messages, text, more);
  std::vector<ChatPart> parts;
  size_t at = 0;
  for (auto [begin, end] : rendered.generated) {
    if (begin < at || end > text.size())
      throw ChatRefused("the generation blocks of the template do not follow one another");
    parts.push_back({std::string(text.substr(at, begin - at))});
    parts.push_back({std::string(text.substr(begin, end - begin)), /*isAnswer=*/true});
    at = end;
  }
  parts.push_back({std::string(text.substr(at))});
  std::erase_if(parts, [](const ChatPart &part) { return part.text.empty(); });
  if (parts.empty())
    throw ChatRefused("the template writes no text for these messages");
  return parts;
}

std::vector<ChatMessage> alpacaMessages(std::string instruction, const std::string &input, std::string output) {
  if (trimmed(input).empty())
    return {{"user", std::move(instruction)}, {"assistant", std::move(output)}};
  return {{"system", "Below is an instruction that describes a task, paired with an input that provides further "
                     "context. Write a response that appropriately completes the request."},
          {"user", fmt::format("{}\n\n### Input:\n{}", trimmed(instruction), trimmed(input))},
          {"assistant", std::move(output)}};
}

FoundChatTemplate findChatTemplate(const std::filesystem::path &tokenizer) {
  std::filesystem::path folder = std::filesystem::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
  Json config = tokenizer.empty() ? Json() : configOf(folder);
  std::string text = tokenizer.empty() ? "" : templateText(folder, config);
  std::string whyNot = "the tokenizer has no chat_template";
  if (!text.empty()) {
    try {
      ChatTemplate chat{
          "tokenizer", text, jinja::Template(text), tokenOf(config, "bos_token"), tokenOf(config, "eos_token"), {}, {}};
      for (const std::string &stop : {chat.eos, endOfAnswers(chat)})
        if (!stop.empty() && std::ranges::find(chat.stops, stop) == chat.stops.end())
          chat.stops.push_back(stop);
      return {std::make_shared<const ChatTemplate>(std::move(chat)), ""};
    } catch (const jinja::TemplateError &error) {
      whyNot = fmt::format("the chat_template of the tokenizer is refused: {}", error.what());
    }
  }
  return {nullptr, whyNot};
}

} // namespace espalier::rt
