#include "tools/run/chat_format.h"

#include "runtime/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {
namespace {

/// Returns where the template of the tokenizer is looked for.
std::filesystem::path templatePlace(const ModelWords &words) {
  bool isOfFolder = !words.folder.empty() && words.tokenizerGiven.count() == 0;
  return isOfFolder ? words.folder : std::filesystem::path(words.tokenizer.modelFile);
}

} // namespace

ChatFormat openChats(const ModelWords &words, const std::string &name) {
  ChatFormat chat;
  if (!words.hasTokenizer)
    return chat;
  rt::TokenizerOptions options = rt::withOwnKind(words.tokenizer);
  chat.found = name.empty() ? rt::findChatTemplate(templatePlace(words))
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
