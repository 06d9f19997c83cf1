// `espalier generate`: reads prompts and prints completions.
#include "tools/commands.h"
#include "tools/run/chat_format.h"
#include "tools/run/describe_completion.h"
#include "tools/run/model_arguments.h"

#include "messages/data_error.h"
#include "runtime/generate/chat_prompt.h"
#include "runtime/generate/decode_processes.h"
#include "runtime/generate/generator.h"
#include "runtime/status.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace espalier {
namespace {

struct GenerateArguments {
  ModelArguments model;
  std::vector<std::string> prompts, ids;
  std::string file, system, chatTemplate;
  rt::Request request; ///< all settings except the prompt
  bool json = false, isChat = false;
  Option maxTokens;
  std::vector<Option> ofDraws; ///< options without effect at temperature 0
};

/// Rejects sampling options at temperature 0, where they would have no effect.
void refuseUnusedOptions(const GenerateArguments &arguments) {
  if (arguments.request.sampling.temperature > 0)
    return;
  for (const Option &option : arguments.ofDraws)
    if (option.count() > 0)
      throw rt::PlanError(fmt::format("{} is of draws, and at temperature 0 the best token is taken each time; give "
                                      "--temperature T above 0, or leave {} out",
                                      option.name(), option.name()));
}

/// Prints which texts the context length ends before --max-tokens.
void noteShortContext(const GenerateArguments &arguments, const rt::Request &request, const std::string &name,
                      int64_t context) {
  int64_t left = context - static_cast<int64_t>(request.prompt.size());
  if (arguments.maxTokens.count() > 0 && request.maxTokens > left)
    fmt::print(stderr, "espalier: note: {}: the context of {} tokens has room for {} of --max-tokens {}\n", name,
               context, left, request.maxTokens);
}

/// Parses decimal ids, separated by spaces or commas.
std::vector<int32_t> parseIds(const std::string &text) {
  std::vector<int32_t> ids;
  std::stringstream arguments(text);
  for (std::string word; arguments >> word;) {
    size_t end = word.find_last_not_of(',') + 1, used = 0;
    try {
      ids.push_back(std::stoi(word.substr(0, end), &used));
    } catch (const std::exception &) {
      used = 0;
    }
    if (used == 0 || used != end)
      throw rt::PlanError(fmt::format("--tokens: '{}' is no token id; give ids with spaces between", word));
  }
  return ids;
}

/// A text to continue, and its name in error messages.
struct Prompt {
  std::string text, name;
};

/// Reads one prompt per line of a file.
std::vector<Prompt> readLines(const std::string &file) {
  std::ifstream stream(file);
  if (!stream || std::filesystem::is_directory(file))
    throw rt::PlanError(fmt::format("--file: {} cannot be read", file));
  std::vector<Prompt> lines;
  for (std::string line; std::getline(stream, line);)
    lines.push_back({line, fmt::format("{}:{}", file, lines.size() + 1)});
  return lines;
}

/// Opens the format of chats. Throws PlanError if the model has none.
ChatFormat openChat(const GenerateArguments &arguments, const std::vector<Prompt> &texts) {
  if (!arguments.ids.empty() || texts.empty())
    throw rt::PlanError("--chat is for prompts that are text; give --prompt TEXT or --file FILE, without --tokens");
  ChatFormat chat = openChats(arguments.model, arguments.chatTemplate);
  if (!chat.found.chat)
    throw rt::PlanError(fmt::format("--chat: {}", chat.found.whyNot));
  return chat;
}

/// Returns the tokens of a chat whose user says the prompt.
std::vector<int32_t> promptOfChat(const ChatFormat &chat, const GenerateArguments &arguments, const Prompt &prompt,
                                  int64_t context) {
  auto messages = nlohmann::ordered_json::array();
  if (!arguments.system.empty())
    messages.push_back({{"role", "system"}, {"content", arguments.system}});
  messages.push_back({{"role", "user"}, {"content", prompt.text}});
  try {
    return rt::renderWithin(*chat.found.chat, *chat.tokenizer, messages, context, arguments.request.maxTokens).ids;
  } catch (const rt::ChatRefused &refused) {
    throw rt::PlanError(fmt::format("{}: {}", prompt.name, refused.what()));
  }
}

std::vector<rt::Request> requestsOf(const GenerateArguments &arguments, rt::Tokenizer *tokenizer,
                                    const rt::GenerationSizes &sizes) {
  std::vector<Prompt> texts;
  for (const std::string &text : arguments.prompts)
    texts.push_back({text, fmt::format("prompt '{}'", text.substr(0, 40))});
  if (!arguments.file.empty())
    for (Prompt &line : readLines(arguments.file))
      texts.push_back(std::move(line));
  if (!tokenizer && (!texts.empty() || !arguments.request.stop.empty()))
    throw rt::PlanError("text needs a tokenizer; give --tokenizer KIND, or prompts as ids with --tokens");
  std::optional<ChatFormat> chat;
  if (arguments.isChat)
    chat = openChat(arguments, texts);
  std::vector<rt::Request> requests;
  auto add = [&](std::vector<int32_t> prompt, const std::string &name) {
    requests.push_back(arguments.request);
    requests.back().prompt = std::move(prompt);
    if (chat)
      requests.back().stop.insert(requests.back().stop.end(), chat->found.chat->stops.begin(),
                                  chat->found.chat->stops.end());
    if (std::string reason = rt::whyNotServed(requests.back(), sizes); !reason.empty())
      throw rt::PlanError(fmt::format("{}: {}", name, reason));
    noteShortContext(arguments, requests.back(), name, sizes.context);
  };
  for (const Prompt &prompt : texts)
    add(chat ? promptOfChat(*chat, arguments, prompt, sizes.context) : tokenizer->encode(prompt.text), prompt.name);
  for (const std::string &text : arguments.ids)
    add(parseIds(text), fmt::format("--tokens '{}'", text.substr(0, 40)));
  if (requests.empty())
    throw rt::PlanError("no prompt is given; say --prompt TEXT, --file FILE or --tokens \"1 2 3\"");
  return requests;
}

/// Completes requests in batches of the plan's number of sequences. Returns completions in the order of requests.
std::vector<rt::Completion> completeAll(rt::Decoder &decoder, const Model &model,
                                        const std::vector<rt::Request> &requests) {
  rt::Generator generator(decoder, model.tokenizer.get());
  std::vector<rt::Completion> completions(requests.size());
  for (size_t next = 0; next < requests.size() || !generator.isIdle(); generator.step())
    for (; next < requests.size() && !generator.isFull(); ++next)
      generator.add(requests[next], [&to = completions[next]](const rt::News &news) {
        if (news.end)
          to = *news.end;
      });
  return completions;
}

void print(const GenerateArguments &arguments, const Model &model, const std::vector<rt::Request> &requests,
           const std::vector<rt::Completion> &completions) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (arguments.json)
      all.push_back(describeCompletion(requests[i].prompt.size(), completions[i]));
    else if (model.tokenizer)
      fmt::print("{}{}\n", arguments.isChat ? "" : rt::textOfPrompt(*model.tokenizer, requests[i].prompt),
                 completions[i].text);
    else
      fmt::print("{}\n", fmt::join(completions[i].tokens, " "));
  }
  if (arguments.json)
    fmt::print("{}\n", all.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace));
}

int generate(GenerateArguments &arguments) {
  refuseUnusedOptions(arguments);
  if (!arguments.isChat && !(arguments.system.empty() && arguments.chatTemplate.empty()))
    throw rt::PlanError("--system and --chat-template are of chats; give --chat");
  arguments.model.texts =
      arguments.file.empty() && arguments.prompts.size() + arguments.ids.size() == 1 ? 1 : arguments.model.texts;
  Model model = openModel(arguments.model);
  std::vector<rt::Request> requests =
      requestsOf(arguments, model.tokenizer.get(), rt::GenerationSizes(model.program->plan()));
  auto work = [&](rt::Decoder &decoder, bool speaks) {
    std::vector<rt::Completion> completions = completeAll(decoder, model, requests);
    if (speaks)
      print(arguments, model, requests, completions);
  };
  switch (model.run.comm) {
  case rt::Comm::shm:
    rt::decodeInProcesses(*model.program, *model.weights, model.run, work);
    break;
  case rt::Comm::mpi:
    rt::decodeOverMpi(*model.program, *model.weights, model.run, work);
    break;
  case rt::Comm::hosts: // openModel refuses it
  case rt::Comm::local: {
    rt::Decoder decoder(*model.program, model.weights.get(), model.run.threads);
    work(decoder, /*speaks=*/true);
  }
  }
  return Success;
}

} // namespace

void addGenerateCommand(const Verb &app) {
  Verb generateVerb =
      app.verb("generate", "Continue prompts, by a plan of run_mode predict or from a folder of weights");
  auto arguments = std::make_shared<GenerateArguments>();
  addModelOptions(generateVerb, arguments->model);
  generateVerb.option("--prompt", arguments->prompts, "text to continue; may be repeated").oneValueEach();
  generateVerb.option("--file", arguments->file, "a file with a prompt per line");
  generateVerb.option("--tokens", arguments->ids, "a prompt as token ids, \"1 2 3\"; may be repeated").oneValueEach();
  rt::Request &request = arguments->request;
  arguments->maxTokens =
      generateVerb.option("--max-tokens", request.maxTokens, "tokens to generate at most").range(1, 1 << 30);
  generateVerb.option("--temperature", request.sampling.temperature, "0 (default): the best token each time")
      .range(0.0, 1e6);
  arguments->ofDraws = addSamplingOptions(generateVerb, request.sampling);
  generateVerb.flag("--chat", arguments->isChat, "a prompt is a message of a user, which the model answers");
  generateVerb.option("--system,--system-message", arguments->system,
                      "of chats: instructions for the model, before the message");
  generateVerb
      .option("--chat-template", arguments->chatTemplate, "format of chats; default: the tokenizer's chat_template")
      .oneOf(rt::chatTemplateNames());
  generateVerb.option("--stop", request.stop, "end before this text; may be repeated").oneValueEach();
  generateVerb.flag("--processes", arguments->model.comm.processes, "ranks as processes of this host");
  rt::RunOptions &run = arguments->model.run;
  generateVerb.option("--failure-report", run.failureReport,
                      "of ranks that are processes: write here, as JSON, which one failed, where and why");
  generateVerb
      .option("--failure-timeout", run.failureSeconds,
              "seconds within which all processes of this host have ended after one failed")
      .range(1.0, 3600.0);
  generateVerb.flag("--json", arguments->json, "as JSON");
  generateVerb.action([arguments] { return generate(*arguments); });
}

} // namespace espalier
