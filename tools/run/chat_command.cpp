// `espalier chat`: a conversation with the model of a folder, on the terminal.
#include "tools/commands.h"
#include "tools/run/chat_format.h"
#include "tools/run/describe_completion.h"
#include "tools/run/model_arguments.h"

#include "runtime/generate/chat_prompt.h"
#include "runtime/generate/generator.h"
#include "runtime/generate/text_stream.h"
#include "runtime/status.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {
namespace {

struct ChatArguments {
  ModelArguments model;
  std::vector<std::string> prompts;
  std::string system, chatTemplate;
  std::optional<int64_t> maxTokens;
  rt::Sampling sampling{.temperature = 0.7, .topP = 0.95};
  bool json = false;
};

/// The conversation so far, and the model that answers.
class Conversation {
public:
  Conversation(const ChatArguments &arguments, const Model &model, const ChatFormat &format, rt::Decoder &decoder)
      : arguments(arguments), format(format), tokenizer(format.found.chat ? *format.tokenizer : *model.tokenizer),
        decoder(decoder), generator(decoder, &tokenizer), context(decoder.sizes().context) {
    if (!arguments.system.empty())
      messages.push_back({"system", arguments.system});
  }

  /// Prints the answer to a message while it is generated, or as JSON at its end. Without a format of chats, continues
  /// the text.
  void say(const std::string &text) {
    rt::Request request;
    messages.push_back({"user", text});
    request.prompt = format.found.chat ? promptOfChat() : tokenizer.encode(text);
    if (format.found.chat)
      request.stop = format.found.chat->stops;
    request.maxTokens = arguments.maxTokens.value_or(format.found.chat ? context : 128);
    request.sampling = arguments.sampling;
    request.sampling.seed += turns++;
    if (std::string reason = rt::whyNotServed(request, decoder.sizes()); !reason.empty()) {
      if (arguments.json)
        throw rt::PlanError(reason);
      messages.pop_back();
      fmt::print(stderr, "espalier: note: {}\n", reason);
      return;
    }
    if (!format.found.chat)
      print(rt::textOfPrompt(tokenizer, request.prompt));
    size_t promptTokens = request.prompt.size();
    rt::Completion answer;
    bool isEnded = false;
    generator.add(std::move(request), [&](const rt::News &news) {
      print(news.text);
      if ((isEnded = news.end != nullptr))
        answer = *news.end;
      return true;
    });
    while (!isEnded)
      generator.step();
    print("\n");
    if (arguments.json)
      fmt::print("{}\n", describeCompletion(promptTokens, answer).dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
    messages.push_back({"assistant", answer.text});
  }

private:
  using Json = nlohmann::ordered_json;

  void print(const std::string &text) const {
    if (arguments.json)
      return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  /// Returns the tokens of the conversation. Drops its oldest turns while it leaves no room for an answer.
  std::vector<int32_t> promptOfChat() {
    auto list = nlohmann::ordered_json::array();
    for (const rt::ChatMessage &message : messages)
      list.push_back({{"role", message.role}, {"content", message.content}});
    try {
      rt::ChatPrompt prompt =
          rt::renderWithin(*format.found.chat, tokenizer, list, context, arguments.maxTokens.value_or(context));
      if (!prompt.note.empty())
        fmt::print(stderr, "espalier: note: {}\n", prompt.note);
      auto first = messages.begin() + (messages.front().role == "system" ? 1 : 0);
      messages.erase(first, first + static_cast<std::ptrdiff_t>(prompt.leftOut));
      return prompt.ids;
    } catch (const rt::ChatRefused &refused) {
      throw rt::PlanError(refused.what());
    }
  }

  const ChatArguments &arguments;
  const ChatFormat &format;
  rt::Tokenizer &tokenizer;
  rt::Decoder &decoder;
  rt::Generator generator;
  const int64_t context;
  std::vector<rt::ChatMessage> messages;
  uint64_t turns = 0;
};

/// Returns the next line of standard input, or nothing at its end.
std::optional<std::string> readLine(bool isTerminal) {
  if (isTerminal)
    fmt::print("> ");
  std::fflush(stdout);
  std::string line;
  return std::getline(std::cin, line) ? std::optional(line) : std::nullopt;
}

/// Returns the text of a line that is a JSON string. Throws PlanError for other lines.
std::string parseMessage(const std::string &line) {
  auto message = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!message.is_string())
    throw rt::PlanError(fmt::format("standard input: with --json a line is a JSON string, such as \"Hello\"; got {}",
                                    line.substr(0, 40)));
  return message;
}

int chat(ChatArguments &arguments) {
  arguments.model.texts = 1;
  if (!isFolderOrGguf(arguments.model.plan))
    throw rt::PlanError(fmt::format("{}: is no folder; chat takes a checkpoint, a folder of transformers, "
                                    "models--ORG--NAME of the hub's cache, or a .gguf file",
                                    arguments.model.plan));
  Model model = openModel(arguments.model);
  if (!model.tokenizer)
    throw rt::PlanError(
        fmt::format("{}: holds no tokenizer; --tokenizer KIND names one", arguments.model.checkpoint.string()));
  ChatFormat format = openChats(arguments.model, arguments.chatTemplate);
  rt::Decoder decoder(*model.program, model.weights.get(), model.run.threads);
  if (!format.found.chat)
    fmt::print(stderr,
               "espalier: note: {}: no format of chats is known for its tokenizer, so each line is continued; "
               "--chat-template names one\n",
               arguments.model.checkpoint.string());
  Conversation conversation(arguments, model, format, decoder);
  for (const std::string &prompt : arguments.prompts)
    conversation.say(prompt);
  bool isTerminal = isatty(STDIN_FILENO) == 1 && !arguments.json;
  while (arguments.prompts.empty())
    if (std::optional<std::string> line = readLine(isTerminal); !line)
      break;
    else if (!line->empty())
      conversation.say(arguments.json ? parseMessage(*line) : *line);
  return Success;
}

} // namespace

void addChatCommand(const Verb &app) {
  Verb verb = app.verb("chat", "Talk to a checkpoint, or to a model of transformers or llama.cpp");
  auto arguments = std::make_shared<ChatArguments>();
  verb.option("DIR", arguments->model.plan,
              "a checkpoint, the folder of a run (its newest one), a folder of transformers, models--ORG--NAME of the "
              "hub's cache, or a .gguf file of llama.cpp")
      .required();
  addFolderOptions(verb, arguments->model);
  verb.option("--prompt", arguments->prompts,
              "message to answer in place of the lines of standard input; may be repeated")
      .oneValueEach();
  verb.option("--system,--system-message", arguments->system, "instructions for the model, before the conversation");
  verb.option("--chat-template", arguments->chatTemplate, "format of chats; default: the tokenizer's chat_template")
      .oneOf(rt::chatTemplateNames());
  verb.option("--max-tokens", arguments->maxTokens, "tokens of an answer at most").range(1, 1 << 30);
  verb.option("--temperature", arguments->sampling.temperature, "default 0.7; 0: the best token each time")
      .range(0.0, 1e6);
  addSamplingOptions(verb, arguments->sampling);
  verb.flag("--json", arguments->json, "print each answer as JSON; a line of standard input is then a JSON string");
  verb.action([arguments] { return chat(*arguments); });
}

} // namespace espalier
