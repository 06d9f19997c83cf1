#include "runtime/generate/chat_template.h"

#include "runtime/files/data_error.h"
#include "runtime/files/mapped_file.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

namespace {

/// One row per format.
struct Format {
  const char *name;
  std::vector<std::string> stops;
  /// Literals of a Jinja template that renders the format: those that it must have, and others that it may have.
  std::vector<std::string> needed, allowed;
  /// Whether messages lose white space at both ends.
  bool isTrimmed;
};

constexpr const char *alpacaTask =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

const Format &formatOf(ChatTemplate chat) {
  static const std::array<Format, 4> formats = {{
      {"chatml", {"<|im_end|>"}, {"<|im_start|>", "<|im_end|>", "assistant"}, {"user", "system"}, false},
      {"llama2",
       {"</s>", "[INST]"},
       {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"},
       {"user", "system", "assistant"},
       true},
      {"llama3",
       {"<|eot_id|>"},
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "assistant"},
       {"user", "system", "<|begin_of_text|>"},
       true},
      {"alpaca",
       {"### Instruction:", "</s>"},
       {"### Instruction:", "### Response:"},
       {"user", "system", "assistant", alpacaTask},
       true},
  }};
  return formats[static_cast<size_t>(chat)];
}

constexpr std::array all = {ChatTemplate::chatml, ChatTemplate::llama2, ChatTemplate::llama3, ChatTemplate::alpaca};

std::string trimmed(std::string_view text) {
  constexpr std::string_view white = " \t\n\r\f\v";
  size_t first = text.find_first_not_of(white), last = text.find_last_not_of(white);
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

std::string renderLlama2(std::span<const ChatMessage> messages) {
  std::string text, system;
  if (messages.front().role == "system") {
    system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", trimmed(messages.front().content));
    messages = messages.subspan(1);
  }
  for (const ChatMessage &message : messages)
    text += message.role == "user"
                ? fmt::format("<s>[INST] {} [/INST]", trimmed(std::exchange(system, "") + message.content))
                : fmt::format(" {} </s>", trimmed(message.content));
  return text;
}

std::string renderAlpaca(std::span<const ChatMessage> messages) {
  bool hasSystem = messages.front().role == "system";
  std::string text = hasSystem ? trimmed(messages.front().content) : alpacaTask;
  for (const ChatMessage &message : messages.subspan(hasSystem ? 1 : 0))
    text +=
        fmt::format("\n\n### {}:\n{}", message.role == "user" ? "Instruction" : "Response", trimmed(message.content));
  return text + "\n\n### Response:\n";
}

/// Returns the string literals of a Jinja template and its text outside of braces, with escapes replaced. Leaves out
/// the messages of raise_exception. Returns nothing for a literal without an end.
std::optional<std::vector<std::string>> literalsOf(std::string_view jinja) {
  std::vector<std::string> literals = {""}; // the last one is the current text outside of braces
  bool isInside = false;
  for (size_t at = 0; at < jinja.size(); ++at) {
    std::string_view rest = jinja.substr(at);
    if (!isInside && (rest.starts_with("{{") || rest.starts_with("{%"))) {
      isInside = true;
      ++at;
    } else if (isInside && (rest.starts_with("}}") || rest.starts_with("%}"))) {
      isInside = false;
      literals.emplace_back();
      ++at;
    } else if (isInside && (jinja[at] == '\'' || jinja[at] == '"')) {
      bool isException = jinja.substr(0, at).ends_with("raise_exception(");
      char quote = jinja[at];
      std::string literal;
      for (++at; at < jinja.size() && jinja[at] != quote; ++at) {
        bool isEscape = jinja[at] == '\\' && at + 1 < jinja.size();
        char next = isEscape ? jinja[++at] : jinja[at];
        literal += isEscape && next == 'n' ? '\n' : next;
      }
      if (at >= jinja.size())
        return std::nullopt;
      if (!isException)
        literals.push_back(literal);
    } else if (!isInside) {
      literals.back() += jinja[at];
    }
  }
  return literals;
}

/// Whether a literal consists of parts of the format, white space and the keys of a message.
bool isMadeOf(std::string literal, const Format &format) {
  std::vector<std::string> parts = format.needed;
  parts.insert(parts.end(), format.allowed.begin(), format.allowed.end());
  parts.insert(parts.end(), {"role", "content"});
  std::ranges::sort(parts, std::ranges::greater{},
                    &std::string::size); // the longest first, as parts may contain others
  for (const std::string &part : parts)
    for (size_t at = literal.find(part); at != std::string::npos; at = literal.find(part))
      literal.replace(at, part.size(), " ");
  return trimmed(literal).empty();
}

bool renders(std::string_view jinja, const std::vector<std::string> &literals, const Format &format) {
  bool isTrimmed = jinja.find("trim") != std::string_view::npos || jinja.find("strip()") != std::string_view::npos;
  return isTrimmed == format.isTrimmed &&
         std::ranges::all_of(literals, [&](const std::string &literal) { return isMadeOf(literal, format); }) &&
         std::ranges::all_of(format.needed, [&](const std::string &part) {
           return std::ranges::any_of(
               literals, [&](const std::string &literal) { return literal.find(part) != std::string::npos; });
         });
}

/// Returns the template of a tokenizer; empty if it has none.
std::string templateText(const std::filesystem::path &folder) {
  constexpr uint64_t most = 16 << 20;
  if (std::filesystem::path file = folder / "chat_template.jinja"; std::filesystem::exists(file))
    return readWholeFile(file.string(), most);
  std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file))
    return "";
  nlohmann::json config = nlohmann::json::parse(readWholeFile(file.string(), most), nullptr, false);
  if (config.is_discarded() || !config.is_object())
    throw DataError(file.string(), "not a JSON object");
  nlohmann::json text = config.value("chat_template", nlohmann::json());
  if (text.is_array()) // named templates; `default` is for chats
    for (const nlohmann::json &one : nlohmann::json(text))
      if (one.is_object() && one.value("name", nlohmann::json()) == "default")
        text = one.value("template", nlohmann::json());
  return text.is_string() ? text.get<std::string>() : "";
}

} // namespace

std::vector<std::string> chatTemplateNames() {
  std::vector<std::string> names;
  for (ChatTemplate chat : all)
    names.push_back(nameOf(chat));
  return names;
}

ChatTemplate chatTemplateNamed(std::string_view name) {
  return *std::ranges::find_if(all, [&](ChatTemplate chat) { return formatOf(chat).name == name; });
}

std::string nameOf(ChatTemplate chat) { return formatOf(chat).name; }

std::string whyNotRendered(ChatTemplate chat, std::span<const ChatMessage> messages) {
  if (messages.empty())
    return "messages has no message";
  bool alternates = chat == ChatTemplate::llama2 || chat == ChatTemplate::alpaca;
  if (!alternates)
    return "";
  std::span<const ChatMessage> turns = messages.subspan(messages.front().role == "system" ? 1 : 0);
  bool isRight = turns.size() % 2 == 1;
  for (size_t i = 0; i < turns.size(); ++i)
    isRight &= turns[i].role == (i % 2 == 0 ? "user" : "assistant");
  return isRight ? ""
                 : fmt::format("template {} takes messages of user and assistant in turn, beginning and ending with "
                               "user; a system message may come first",
                               nameOf(chat));
}

std::string renderChat(ChatTemplate chat, std::span<const ChatMessage> messages) {
  std::string text;
  switch (chat) {
  case ChatTemplate::chatml:
    for (const ChatMessage &message : messages)
      text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", message.role, message.content);
    return text + "<|im_start|>assistant\n";
  case ChatTemplate::llama3:
    text = "<|begin_of_text|>";
    for (const ChatMessage &message : messages)
      text +=
          fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", message.role, trimmed(message.content));
    return text + "<|start_header_id|>assistant<|end_header_id|>\n\n";
  case ChatTemplate::llama2:
    return renderLlama2(messages);
  case ChatTemplate::alpaca:
    return renderAlpaca(messages);
  }
  return text;
}

std::vector<std::string> chatStops(ChatTemplate chat) { return formatOf(chat).stops; }

std::optional<ChatTemplate> recognizeChatTemplate(std::string_view jinja) {
  std::optional<std::vector<std::string>> literals = literalsOf(jinja);
  if (literals)
    for (ChatTemplate chat : all)
      if (renders(jinja, *literals, formatOf(chat)))
        return chat;
  return std::nullopt;
}

FoundChatTemplate findChatTemplate(const std::filesystem::path &tokenizer) {
  std::filesystem::path folder = std::filesystem::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
  std::string text = tokenizer.empty() ? "" : templateText(folder);
  FoundChatTemplate found{recognizeChatTemplate(text), ""};
  if (!found.chat)
    found.whyNot =
        fmt::format("{}; start the server with --chat-template {}",
                    text.empty() ? "the server's tokenizer has no chat_template"
                                 : "the chat_template of the server's tokenizer is none that is known by name",
                    fmt::join(chatTemplateNames(), "|"));
  return found;
}

} // namespace espalier::rt
