#include "runtime/generate/chat_prompt.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

ChatPrompt renderWithin(const ChatTemplate &chat, Tokenizer &tokenizer, const nlohmann::ordered_json &messages,
                        int64_t context, int64_t mostTokens, const nlohmann::ordered_json &more) {
  std::vector<size_t> turns; // where they begin
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].value("role", "") == "user")
      turns.push_back(i);
  int64_t room = std::clamp<int64_t>(mostTokens, 0, context / 4);
  auto without = [&](size_t count) {
    ChatPrompt prompt;
    nlohmann::ordered_json kept = messages;
    if (count > 0) {
      prompt.leftOut = turns[count] - turns.front();
      auto begin = kept.begin() + static_cast<std::ptrdiff_t>(turns.front());
      kept.erase(begin, begin + static_cast<std::ptrdiff_t>(prompt.leftOut));
      std::string left = prompt.leftOut == 1 ? "oldest message is left out"
                                             : fmt::format("{} oldest messages are left out", prompt.leftOut);
      prompt.note = fmt::format("the conversation exceeds the context of {} tokens; its {}", context, left);
    }
    prompt.text = chat.render(kept, /*addsGenerationPrompt=*/true, more).text;
    prompt.ids = tokenizer.encode(prompt.text);
    return prompt;
  };
  auto fits = [&](const ChatPrompt &prompt) { return static_cast<int64_t>(prompt.ids.size()) + room <= context; };
  ChatPrompt best = without(0);
  size_t fewest = 1, most = turns.empty() ? 0 : turns.size() - 1;
  if (fits(best) || most == 0)
    return best;
  // A prompt without more turns is shorter, so that bisection finds the fewest.
  for (best = without(most); fewest < most;) {
    size_t middle = (fewest + most) / 2;
    ChatPrompt prompt = without(middle);
    if (fits(prompt)) {
      most = middle;
      best = std::move(prompt);
    } else {
      fewest = middle + 1;
    }
  }
  return best;
}

} // namespace espalier::rt
