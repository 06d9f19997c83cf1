#include "runtime/generate/generator.h"

#include "runtime/generate/sample.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

std::string_view finishName(Finish finish) {
  switch (finish) {
  case Finish::Stop:
    return "stop";
  case Finish::Length:
    return "length";
  case Finish::None:
    break;
  }
  return "";
}

std::string whyNotServed(const Request &request, const GenerationSizes &sizes) {
  auto size = static_cast<int64_t>(request.prompt.size());
  if (size == 0)
    return "the prompt has no token";
  int64_t most = sizes.context - (request.maxTokens == 0 ? 0 : 1);
  if (size > most)
    return fmt::format("the prompt has {} tokens; with a context of {} it may have {}", size, sizes.context, most);
  for (int32_t token : request.prompt)
    if (token < 0 || token >= sizes.vocabulary)
      return fmt::format("token {} is outside of the model's vocabulary of {}", token, sizes.vocabulary);
  if (request.maxTokens < 0)
    return fmt::format("max_tokens is {}, needs to be at least 0", request.maxTokens);
  const Sampling &sampling = request.sampling;
  if (!(sampling.temperature >= 0 && std::isfinite(sampling.temperature)))
    return fmt::format("temperature is {}, needs to be at least 0", sampling.temperature);
  if (!(sampling.topP > 0 && sampling.topP <= 1))
    return fmt::format("top_p is {}, needs to be above 0 and at most 1", sampling.topP);
  if (sampling.topK < 0)
    return fmt::format("top_k is {}, needs to be at least 0", sampling.topK);
  if (!(sampling.minP >= 0 && sampling.minP <= 1))
    return fmt::format("min_p is {}, needs to be 0 to 1", sampling.minP);
  for (auto [name, penalty] : {std::pair("presence_penalty", sampling.presencePenalty),
                               std::pair("frequency_penalty", sampling.frequencyPenalty)})
    if (!(std::abs(penalty) <= 2))
      return fmt::format("{} is {}, needs to be -2 to 2", name, penalty);
  if (!(sampling.repetitionPenalty > 0 && std::isfinite(sampling.repetitionPenalty)))
    return fmt::format("repetition_penalty is {}, needs to be above 0", sampling.repetitionPenalty);
  for (auto [token, bias] : sampling.bias)
    if (token < 0 || token >= sizes.vocabulary)
      return fmt::format("logit_bias names token {}, which is outside of the model's vocabulary of {}", token,
                         sizes.vocabulary);
  return "";
}

void Generator::add(Request request, Listener listener, Abandoned isAbandoned) {
  if (request.grammar && !tokenBytes)
    tokenBytes.emplace(*tokenizer);
  TextStream text(tokenizer, request.prompt, request.stop, request.showsMarks);
  active.push_back(
      {std::move(request), std::move(listener), std::move(isAbandoned), std::move(text), *slots.acquire(), {}});
}

void Generator::dropAbandoned() {
  active.remove_if([&](const Active &one) {
    bool isAbandoned = one.isAbandoned();
    if (isAbandoned)
      slots.release(one.sequence);
    return isAbandoned;
  });
}

void Generator::step() {
  dropAbandoned();
  active.remove_if([&](Active &one) { return one.needsNoModel() && !end(one, Finish::Length, ""); });
  double begin = secondsNow();
  bool hasPrompts = std::ranges::any_of(active, [&](const Active &one) { return isPrefilling(one); });
  std::vector<Feed> feeds;
  std::vector<Active *> fed, ready;
  for (Active &one : active) {
    bool isPrompt = isPrefilling(one);
    if (!isPrompt && hasPrompts && !decoder.mixesPrompts())
      continue;
    feeds.push_back(isPrompt ? nextOfPrompt(one) : nextToken(one));
    slots.append(one.sequence, std::ssize(feeds.back().tokens));
    fed.push_back(&one);
    if (!isPrompt || !isPrefilling(one))
      ready.push_back(&one);
  }
  if (hasPrompts)
    decoder.prefill(feeds);
  else if (!feeds.empty())
    decoder.decode(feeds);
  double seconds = secondsNow() - begin;
  for (Active &one : active)
    (one.completion.tokens.empty() ? one.completion.prefillSeconds : one.completion.decodeSeconds) += seconds;
  std::vector<Active *> ended;
  for (Active *one : ready)
    if (!advance(*one))
      ended.push_back(one);
  active.remove_if([&](Active &one) { return std::ranges::count(ended, &one) > 0; });
}

/// Returns the next tokens of a prompt that fit into a prefill.
Feed Generator::nextOfPrompt(const Active &one) const {
  int64_t done = slots.length(one.sequence);
  auto prompt = std::span(one.request.prompt).subspan(static_cast<size_t>(done));
  return {one.sequence, done, prompt.first(std::min(prompt.size(), static_cast<size_t>(decoder.sizes().promptTokens)))};
}

/// Returns the last token of the text, or the next token of a prompt with scores.
Feed Generator::nextToken(const Active &one) const {
  int64_t done = slots.length(one.sequence);
  return {one.sequence, done,
          done < one.promptSize() ? std::span(one.request.prompt).subspan(static_cast<size_t>(done), 1)
                                  : std::span<const int32_t>(one.completion.tokens).last(1)};
}

bool Generator::advance(Active &one) {
  int64_t done = slots.length(one.sequence);
  if (done >= one.promptSize())
    return sample(one);
  int32_t next = one.request.prompt[static_cast<size_t>(done)];
  one.completion.promptScores.push_back(
      scoreToken(decoder.logits(one.sequence), next, one.request.bestTokens.value_or(0)));
  bool isLast = one.request.maxTokens == 0 && done + 1 == one.promptSize();
  return !isLast || end(one, Finish::Length, "");
}

std::optional<int32_t> Generator::choose(Active &one, std::span<const float> logits) {
  const Request &request = one.request;
  const Sampling &sampling = request.sampling;
  std::vector<int32_t> &tokens = one.completion.tokens;
  if (!request.grammar && sampling.leavesLogits())
    return sampleToken(logits, sampling, tokens.size());
  std::vector<float> adjusted = adjustedLogits(logits, sampling, request.prompt, tokens);
  if (request.grammar && !tokenBytes->forbid(*request.grammar, one.place, adjusted))
    return std::nullopt;
  int32_t token = sampleToken(adjusted, sampling, tokens.size());
  if (request.grammar)
    request.grammar->push(one.place, tokenBytes->bytesOf(token));
  return token;
}

/// Samples the next token.
bool Generator::sample(Active &one) {
  std::vector<int32_t> &tokens = one.completion.tokens;
  std::span<const float> logits = decoder.logits(one.sequence);
  std::optional<int32_t> chosen = choose(one, logits);
  if (!chosen)
    return end(one, Finish::Length, "");
  int32_t token = *chosen;
  if (one.request.bestTokens)
    one.completion.scores.push_back(scoreToken(logits, token, *one.request.bestTokens));
  if (tokenizer && token == tokenizer->eodToken())
    return end(one, Finish::Stop, "");
  tokens.push_back(token);
  std::string piece = one.text.push(token);
  if (one.text.isStopped() || (one.request.grammar && one.request.grammar->isComplete(one.place)))
    return end(one, Finish::Stop, piece);
  auto size = static_cast<int64_t>(tokens.size());
  if (size >= one.request.maxTokens || one.promptSize() + size >= decoder.sizes().context)
    return end(one, Finish::Length, piece);
  one.completion.text += piece;
  if (!piece.empty() || !tokenizer)
    tell(one, piece);
  return true;
}

/// Passes on the text with the tokens and scores since the last call.
void Generator::tell(Active &one, std::string text) {
  const Completion &all = one.completion;
  News news{std::move(text),
            {all.tokens.begin() + static_cast<std::ptrdiff_t>(one.toldTokens), all.tokens.end()},
            {all.scores.begin() + static_cast<std::ptrdiff_t>(one.toldScores), all.scores.end()},
            all.finish == Finish::None ? nullptr : &all};
  one.toldTokens = all.tokens.size();
  one.toldScores = all.scores.size();
  one.listener(std::move(news));
}

/// Flushes held-back text, which may still contain a stop string that the last token completed.
bool Generator::end(Active &one, Finish finish, std::string text) {
  if (!one.text.isStopped())
    text += one.text.finish();
  one.completion.text += text;
  one.completion.finish = one.text.isStopped() ? Finish::Stop : finish;
  slots.release(one.sequence);
  tell(one, std::move(text));
  return false;
}

} // namespace espalier::rt
