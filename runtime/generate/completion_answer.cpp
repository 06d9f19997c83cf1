#include "runtime/generate/completion_answer.h"

#include "runtime/generate/text_stream.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

using Json = nlohmann::ordered_json;

int64_t charactersOf(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += decodeUtf8(text, at).bytes)
    ++count;
  return count;
}

Json bytesOf(const std::string &text) {
  Json bytes = Json::array();
  for (char one : text)
    bytes.push_back(static_cast<unsigned char>(one));
  return bytes;
}

Json chatToken(const std::string &text, double logProbability) {
  return {{"token", text}, {"logprob", logProbability}, {"bytes", bytesOf(text)}};
}

} // namespace

std::string jsonText(const nlohmann::ordered_json &value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string errorJson(const std::string &message, const std::string &type) {
  return jsonText({{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}});
}

std::string CompletionAnswer::textOf(int32_t token, std::span<const int32_t> before) const {
  if (!tokenizer || !tokenizer->hasToken(token))
    return fmt::format("token_id:{}", token);
  return continuationOf(*tokenizer, before, {&token, 1}).added();
}

CompletionAnswer::Written CompletionAnswer::behindPrompt(size_t choice) const {
  Written written{body.promptOf(choice).ids, 0, ""};
  if (tokenizer) {
    std::string text = continuationOf(*tokenizer, {}, written.ids).text;
    written.open = text.substr(wholeCharacters(text)); // the text of the choice begins with this character
  }
  return written;
}

Json CompletionAnswer::open(const char *object) const {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json CompletionAnswer::usage(std::span<const Completion> ends) const {
  size_t prompts = 0, tokens = 0;
  for (const Prompt &prompt : body.prompts)
    prompts += prompt.ids.size();
  for (const Completion &end : ends)
    tokens += end.tokens.size();
  return {{"prompt_tokens", prompts}, {"completion_tokens", tokens}, {"total_tokens", prompts + tokens}};
}

Json CompletionAnswer::logProbabilities(std::span<const TokenScore> scores, Written &written,
                                        const Prompt *echo) const {
  Json tokens = Json::array(), values = Json::array(), best = Json::array(), offsets = Json::array();
  auto add = [&](int32_t token, const Json &value, const Json &alternatives) {
    std::string text = textOf(token, written.ids);
    tokens.push_back(text);
    values.push_back(value);
    best.push_back(alternatives);
    offsets.push_back(std::max<int64_t>(0, written.characters));
    written.open += text;
    size_t whole = wholeCharacters(written.open);
    written.characters += charactersOf(std::string_view(written.open).substr(0, whole));
    written.open.erase(0, whole);
    written.ids.push_back(token);
  };
  if (echo) {
    // The text of the prompt's tokens may be longer than the prompt, by the token that begins a document.
    if (tokenizer)
      written.characters = charactersOf(echo->text) - charactersOf(textOfPrompt(*tokenizer, echo->ids));
    add(echo->ids.front(), nullptr, nullptr);
  }
  for (const TokenScore &score : scores) {
    Json alternatives = Json::object();
    auto name = [&](int32_t token, double value) {
      std::string text = textOf(token, written.ids);
      if (!alternatives.contains(text)) // tokens of equal text: the most probable one
        alternatives[text] = value;
    };
    for (const auto &[token, value] : score.best)
      name(token, value);
    if (!score.best.empty())
      name(score.token, score.logProbability);
    add(score.token, score.logProbability, score.best.empty() ? Json(nullptr) : alternatives);
  }
  return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", best}, {"text_offset", offsets}};
}

Json CompletionAnswer::chatLogProbabilities(std::span<const TokenScore> scores, Written &written) const {
  Json content = Json::array();
  for (const TokenScore &score : scores) {
    Json one = chatToken(textOf(score.token, written.ids), score.logProbability);
    one["top_logprobs"] = Json::array();
    for (const auto &[token, value] : score.best)
      one["top_logprobs"].push_back(chatToken(textOf(token, written.ids), value));
    content.push_back(one);
    written.ids.push_back(score.token);
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json CompletionAnswer::reasonOf(const Completion *end, bool hasCalls) {
  if (!end)
    return nullptr;
  return hasCalls && end->finish == Finish::Stop ? "tool_calls" : std::string(finishName(end->finish));
}

Json CompletionAnswer::callJson(size_t choice, size_t index, const ToolCall &call) const {
  // Templates of Mistral refuse ids that are not 9 letters and digits.
  uint64_t bits = std::hash<std::string>()(fmt::format("{} {} {}", head.id, choice, index));
  std::string id;
  for (; id.size() < 9; bits /= 36)
    id += "0123456789abcdefghijklmnopqrstuvwxyz"[bits % 36];
  return {{"id", id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json CompletionAnswer::wholeChoice(size_t choice, const Completion &end) const {
  const Prompt &prompt = body.promptOf(choice);
  Json one = {{"index", choice}};
  Json scores = nullptr;
  bool hasCalls = false;
  if (body.isChat) {
    AnswerParts parts = splitAnswer(body.calls, end.text, /*isEnd=*/true);
    hasCalls = !parts.calls.empty();
    bool hasText = !parts.content.empty() || !hasCalls;
    one["message"] = {
        {"role", "assistant"}, {"content", hasText ? Json(parts.content) : Json(nullptr)}, {"refusal", nullptr}};
    if (!parts.reasoning.empty())
      one["message"]["reasoning_content"] = parts.reasoning;
    for (size_t i = 0; i < parts.calls.size(); ++i)
      one["message"]["tool_calls"].push_back(callJson(choice, i, parts.calls[i]));
    Written written = behindPrompt(choice);
    if (body.options.bestTokens)
      scores = chatLogProbabilities(end.scores, written);
  } else {
    one["text"] = (body.echo ? prompt.text : "") + end.text;
    if (body.options.bestTokens) {
      std::vector<TokenScore> all;
      if (body.echo)
        all = end.promptScores;
      all.insert(all.end(), end.scores.begin(), end.scores.end());
      Written written = body.echo ? Written() : behindPrompt(choice);
      scores = logProbabilities(all, written, body.echo ? &prompt : nullptr);
    }
  }
  one["logprobs"] = scores;
  one["finish_reason"] = reasonOf(&end, hasCalls);
  if (body.returnsIds || !tokenizer) {
    one["prompt_token_ids"] = prompt.ids;
    one["token_ids"] = end.tokens;
  }
  return one;
}

std::string CompletionAnswer::whole(std::span<const Completion> ends) const {
  Json answer = open(body.isChat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (size_t choice = 0; choice < ends.size(); ++choice)
    answer["choices"].push_back(wholeChoice(choice, ends[choice]));
  answer["usage"] = usage(ends);
  if (!body.note.empty())
    answer["note"] = body.note;
  return jsonText(answer);
}

Json CompletionAnswer::deltaOf(size_t choice, const News &news, bool &hasCalls) {
  Sent &before = sent[choice];
  before.text += news.text;
  AnswerParts parts = splitAnswer(body.calls, before.text, news.end != nullptr);
  Json delta = Json::object();
  if (parts.content.size() > before.content)
    delta["content"] = parts.content.substr(before.content);
  if (parts.reasoning.size() > before.reasoning)
    delta["reasoning_content"] = parts.reasoning.substr(before.reasoning);
  for (size_t i = before.calls; i < parts.calls.size(); ++i) {
    delta["tool_calls"].push_back({{"index", i}});
    delta["tool_calls"].back().update(callJson(choice, i, parts.calls[i]));
  }
  before.content = parts.content.size();
  before.reasoning = parts.reasoning.size();
  before.calls = parts.calls.size();
  hasCalls = before.calls > 0;
  return delta;
}

std::string CompletionAnswer::event(size_t choice, const News &news) {
  Json one = {{"index", choice}};
  Json scores = nullptr;
  bool hasCalls = false;
  if (body.isChat) {
    one["delta"] = deltaOf(choice, news, hasCalls);
    if (body.options.bestTokens && !news.scores.empty())
      scores = chatLogProbabilities(news.scores, streamed[choice]);
  } else {
    one["text"] = news.text;
    if (body.options.bestTokens)
      scores = logProbabilities(news.scores, streamed[choice]);
  }
  one["logprobs"] = scores;
  one["finish_reason"] = reasonOf(news.end, hasCalls);
  if (body.returnsIds || !tokenizer)
    one["token_ids"] = news.tokens;
  Json answer = open(body.isChat ? "chat.completion.chunk" : "text_completion");
  answer["choices"] = Json::array({one});
  return jsonText(answer);
}

std::string CompletionAnswer::firstEvent(size_t choice) const {
  Json answer = open("chat.completion.chunk");
  answer["choices"] = Json::array({{{"index", choice},
                                    {"delta", {{"role", "assistant"}, {"content", ""}}},
                                    {"logprobs", nullptr},
                                    {"finish_reason", nullptr}}});
  if (!body.note.empty())
    answer["note"] = body.note;
  return jsonText(answer);
}

std::string CompletionAnswer::usageEvent(std::span<const Completion> ends) const {
  Json answer = open(body.isChat ? "chat.completion.chunk" : "text_completion");
  answer["choices"] = Json::array();
  answer["usage"] = usage(ends);
  return jsonText(answer);
}

} // namespace espalier::rt
