#include "tools/run/chat_format.h"

#include "runtime/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {
namespace {

/// Returns where the template of the tokenizer is looked for.
std::filesystem::path templatePlace(const ModelArguments &arguments) {
  bool isOfFolder = !arguments.folder.empty() && arguments.tokenizerGiven.count() == 0;
  return isOfFolder ? arguments.folder : std::filesystem::path(arguments.tokenizer.modelFile);
}

} // namespace

ChatFormat openChats(const ModelArguments &arguments, const std::string &name) {
  ChatFormat chat;
  if (!arguments.hasTokenizer)
    return chat;
  rt::TokenizerOptions options = rt::withOwnKind(arguments.tokenizer);
  chat.found = name.empty() ? rt::findChatTemplate(templatePlace(arguments))
                            : rt::FoundChatTemplate{rt::chatTemplateNamed(name), ""};
  if (!chat.found.chat)
    chat.found.whyNot += fmt::format("; --chat-template {} names one", fmt::join(rt::chatTemplateNames(), "|"));
  options.specialTokens = options.kind != "hf"; // hf finds special tokens in a text without it
  options.addBos = false;
  chat.tokenizer = rt::openTokenizer(options);
  if (chat.found.chat && options.kind == "sentencepiece")
    for (const std::string &special : chat.found.chat->specials)
      if (chat.tokenizer->encode(special).size() != 1)
        throw rt::PlanError(
            fmt::format("{}: chats of the template {} need {} as one token, the tokenizer makes {} of it; "
                        "give the tokenizer of a model of this template, or another --chat-template",
                        options.modelFile, chat.found.chat->name, special, chat.tokenizer->encode(special).size()));
  return chat;
}

} // namespace espalier
