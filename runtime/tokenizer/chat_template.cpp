#include "runtime/tokenizer/chat_template.h"

#include "messages/data_error.h"
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/unicode_classes.h"
#include "runtime/tokenizer/utf8.h"

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
  /// Tokens that a tokenizer must have for the format, and the first of them in a text; empty: none.
  std::vector<std::string> specials;
  const char *bos;
};

constexpr const char *alpacaTask =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

constexpr const char *alpacaTaskWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.";

const Format &formatOf(ChatTemplate chat) {
  static const std::array<Format, 4> formats = {{
      {"chatml",
       {"<|im_end|>"},
       {"<|im_start|>", "<|im_end|>", "assistant"},
       {"user", "system"},
       false,
       {"<|im_start|>", "<|im_end|>"},
       ""},
      {"llama2",
       {"</s>", "[INST]"},
       {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"},
       {"user", "system", "assistant"},
       true,
       {"<s>", "</s>"},
       "<s>"},
      {"llama3",
       {"<|eot_id|>"},
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "assistant"},
       {"user", "system", "<|begin_of_text|>"},
       true,
       {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       "<|begin_of_text|>"},
      {"alpaca",
       {"### Instruction:", "</s>"},
       {"### Instruction:", "### Response:"},
       {"user", "system", "assistant", alpacaTask},
       true,
       {},
       ""},
  }};
  return formats[static_cast<size_t>(chat)];
}

constexpr std::array all = {ChatTemplate::chatml, ChatTemplate::llama2, ChatTemplate::llama3, ChatTemplate::alpaca};

/// Returns whether Python's str.strip() removes this character.
bool isWhite(char32_t codePoint) {
  bool isSeparator = codePoint >= 0x1c && codePoint <= 0x1f; // Python counts these, \\s does not
  return isSeparator || unicodeClasses().of(codePoint) == CharClass::space;
}

/// Returns the text without white space at both ends, as Python's str.strip() and Jinja's trim do.
std::string trimmed(std::string_view text) {
  while (!text.empty()) {
    DecodedChar first = decodeUtf8(text, 0);
    if (!isWhite(first.codePoint))
      break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    size_t last = charBefore(text, text.size());
    if (!isWhite(decodeUtf8(text, last).codePoint))
      break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

/// Returns the text between the end of a message and the answer that follows it.
std::string answerStart(ChatTemplate chat) {
  switch (chat) {
  case ChatTemplate::chatml:
    return "<|im_start|>assistant\n";
  case ChatTemplate::llama3:
    return "<|start_header_id|>assistant<|end_header_id|>\n\n";
  case ChatTemplate::alpaca:
    return "\n\n### Response:\n";
  case ChatTemplate::llama2:
    break;
  }
  return "";
}

std::vector<ChatPart> renderLlama2(std::span<const ChatMessage> messages) {
  std::vector<ChatPart> parts;
  std::string system;
  if (messages.front().role == "system") {
    system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", messages.front().content);
    messages = messages.subspan(1);
  }
  for (const ChatMessage &message : messages)
    if (message.role == "user")
      parts.push_back({fmt::format("<s>[INST] {} [/INST]", trimmed(std::exchange(system, "") + message.content))});
    else
      parts.push_back({fmt::format(" {} </s>", trimmed(message.content)), /*isAnswer=*/true});
  return parts;
}

std::vector<ChatPart> renderAlpaca(std::span<const ChatMessage> messages, const std::string &eos) {
  bool hasSystem = messages.front().role == "system";
  std::vector<ChatPart> parts = {{hasSystem ? trimmed(messages.front().content) : alpacaTask}};
  for (const ChatMessage &message : messages.subspan(hasSystem ? 1 : 0)) {
    bool isAnswer = message.role == "assistant";
    parts.push_back({isAnswer ? answerStart(ChatTemplate::alpaca) : "\n\n### Instruction:\n"});
    parts.push_back({trimmed(message.content) + (isAnswer ? eos : ""), isAnswer});
  }
  return parts;
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

std::string whyNotRendered(ChatTemplate chat, std::span<const ChatMessage> messages, bool endsWithUser) {
  if (messages.empty())
    return "messages has no message";
  bool alternates = chat == ChatTemplate::llama2 || chat == ChatTemplate::alpaca;
  if (!alternates)
    return "";
  std::span<const ChatMessage> turns = messages.subspan(messages.front().role == "system" ? 1 : 0);
  bool isRight = !turns.empty() && (!endsWithUser || turns.size() % 2 == 1);
  for (size_t i = 0; i < turns.size(); ++i)
    isRight &= turns[i].role == (i % 2 == 0 ? "user" : "assistant");
  return isRight ? ""
                 : fmt::format("template {} takes messages of user and assistant in turn, beginning {}with user; a "
                               "system message may come first",
                               nameOf(chat), endsWithUser ? "and ending " : "");
}

std::vector<ChatPart> renderMessages(ChatTemplate chat, std::span<const ChatMessage> messages, const std::string &eos) {
  if (chat == ChatTemplate::llama2)
    return renderLlama2(messages);
  if (chat == ChatTemplate::alpaca)
    return renderAlpaca(messages, eos);
  std::vector<ChatPart> parts = {{formatOf(chat).bos}};
  for (const ChatMessage &message : messages) {
    bool isAnswer = message.role == "assistant";
    if (chat == ChatTemplate::chatml) {
      parts.push_back({fmt::format("<|im_start|>{}\n", message.role)});
      parts.push_back({message.content + "<|im_end|>", isAnswer});
      parts.push_back({"\n"});
    } else {
      parts.push_back({fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", message.role)});
      parts.push_back({trimmed(message.content) + "<|eot_id|>", isAnswer});
    }
  }
  return parts;
}

std::string renderChat(ChatTemplate chat, std::span<const ChatMessage> messages) {
  std::string text;
  for (const ChatPart &part : renderMessages(chat, messages, /*eos=*/""))
    text += part.text;
  return text + answerStart(chat);
}

std::vector<ChatMessage> alpacaMessages(std::string instruction, const std::string &input, std::string output) {
  if (trimmed(input).empty())
    return {{"user", std::move(instruction)}, {"assistant", std::move(output)}};
  return {{"system", alpacaTaskWithInput},
          {"user", fmt::format("{}\n\n### Input:\n{}", trimmed(instruction), trimmed(input))},
          {"assistant", std::move(output)}};
}

std::vector<std::string> specialTokensOf(ChatTemplate chat) { return formatOf(chat).specials; }

std::string bosOf(ChatTemplate chat) { return formatOf(chat).bos; }

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
