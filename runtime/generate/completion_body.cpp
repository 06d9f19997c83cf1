#include "runtime/generate/completion_body.h"

#include "runtime/files/data_error.h"
#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier::rt {

namespace {

using Json = nlohmann::ordered_json;

constexpr int deepest = 8;

/// Parses a JSON object. Throws BodyError if it is larger or nested deeper than a valid body can be.
Json parse(std::string_view text, size_t most) {
  if (text.size() > most)
    throw BodyError(fmt::format("the body has {} bytes, at most {} are taken", text.size(), most));
  bool isDeep = false;
  auto limit = [&](int depth, Json::parse_event_t, Json &) {
    isDeep |= depth > deepest;
    return !isDeep;
  };
  Json body = Json::parse(text.begin(), text.end(), limit, /*allow_exceptions=*/false);
  if (isDeep || body.is_discarded() || !body.is_object())
    throw BodyError("the body is not a JSON object");
  return body;
}

class BodyReader {
public:
  BodyReader(const Json &body, const BodyLimits &limits) : body(body), limits(limits) {}

  double number(const char *key, double otherwise) const {
    const Json *value = find(key);
    if (value && !value->is_number())
      throw BodyError(fmt::format("{} is not a number", key));
    return value ? value->get<double>() : otherwise;
  }
  int64_t integer(const char *key, int64_t otherwise) const {
    const Json *value = find(key);
    if (value && (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)))
      throw BodyError(fmt::format("{} is not an integer", key));
    return value ? value->get<int64_t>() : otherwise;
  }
  bool flag(const char *key) const {
    const Json *value = find(key);
    if (value && !value->is_boolean())
      throw BodyError(fmt::format("{} is neither true nor false", key));
    return value && value->get<bool>();
  }

  /// Returns the stop strings: one string, or a list of strings.
  std::vector<std::string> stops() const {
    const Json *value = find("stop");
    if (!value)
      return {};
    std::vector<std::string> stops;
    for (const Json &stop : value->is_array() ? *value : Json::array({*value})) {
      if (!stop.is_string() || stop.get_ref<const std::string &>().empty())
        throw BodyError("stop is neither a string nor a list of strings with text");
      stops.push_back(stop.get<std::string>());
      if (stops.size() > limits.stops || stops.back().size() > limits.stopBytes)
        throw BodyError(fmt::format("stop has more than {} strings of {} bytes", limits.stops, limits.stopBytes));
    }
    return stops;
  }

  void readPrompt(Tokenizer *tokenizer, CompletionBody &out) const {
    const Json *value = find("prompt");
    if (value && value->is_array() && value->size() == 1 && !value->front().is_number())
      value = &value->front(); // a batch of one
    if (value && value->is_string()) {
      if (!tokenizer)
        throw BodyError("prompt is text and the server has no tokenizer; give a list of token ids");
      out.prompt = value->get<std::string>();
      out.request.prompt = tokenizer->encode(out.prompt);
      return;
    }
    bool isIds = value && value->is_array() && static_cast<int64_t>(value->size()) <= limits.tokens &&
                 std::ranges::all_of(
                     *value, [](const Json &id) { return id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX; });
    if (!isIds)
      throw BodyError("prompt is neither one string nor one list of token ids");
    for (const Json &id : *value)
      out.request.prompt.push_back(id.get<int32_t>());
  }

  /// Throws BodyError for known options that would change the answer and are not supported.
  void refuseOthers() const {
    static const std::map<std::string, Json> nothing = {{"n", 1},
                                                        {"best_of", 1},
                                                        {"logprobs", nullptr},
                                                        {"suffix", nullptr},
                                                        {"logit_bias", Json::object()},
                                                        {"presence_penalty", 0},
                                                        {"frequency_penalty", 0}};
    static const std::set<std::string> known = {"model", "prompt", "max_tokens", "temperature",    "top_p", "top_k",
                                                "seed",  "stop",   "stream",     "stream_options", "echo",  "user"};
    for (const auto &[key, value] : body.items()) {
      auto asked = nothing.find(key);
      bool asksNothing = asked != nothing.end() && (value == asked->second || value.is_null());
      if (!known.count(key) && !asksNothing)
        throw BodyError(
            fmt::format("{} is not supported{}", key.substr(0, 64), asked == nothing.end() ? "" : "; omit it"));
    }
  }

private:
  /// Returns null if the key is missing or its value is null.
  const Json *find(const char *key) const {
    auto found = body.find(key);
    return found == body.end() || found->is_null() ? nullptr : &*found;
  }

  const Json &body;
  const BodyLimits &limits;
};

} // namespace

CompletionBody parseCompletionBody(std::string_view text, Tokenizer *tokenizer, const BodyLimits &limits) {
  Json json = parse(text, limits.bytes);
  BodyReader reader(json, limits);
  reader.refuseOthers();
  CompletionBody body;
  try {
    reader.readPrompt(tokenizer, body);
  } catch (const DataError &error) {
    throw BodyError(error.what());
  }
  Request &request = body.request;
  request.maxTokens = reader.integer("max_tokens", 16);
  request.sampling.temperature = reader.number("temperature", 1);
  request.sampling.topP = reader.number("top_p", 1);
  request.sampling.topK = reader.integer("top_k", 0);
  request.sampling.seed = static_cast<uint64_t>(reader.integer("seed", 0));
  request.stop = reader.stops();
  body.stream = reader.flag("stream");
  body.echo = reader.flag("echo");
  if (body.stream && body.echo)
    throw BodyError("echo is not supported for streams; omit it");
  return body;
}

std::string completionJson(const std::string &id, const std::string &model, const CompletionBody &body,
                           const Completion *end, const std::optional<std::string> &piece, int64_t created) {
  Json reason = end ? Json(std::string(finishName(end->finish))) : Json(nullptr);
  std::string text = piece ? *piece : (body.echo ? body.prompt : "") + end->text;
  Json answer = {
      {"id", id},
      {"object", "text_completion"},
      {"created", created},
      {"model", model},
      {"choices", Json::array({{{"text", text}, {"index", 0}, {"logprobs", nullptr}, {"finish_reason", reason}}})}};
  if (end) {
    size_t prompt = body.request.prompt.size(), tokens = end->tokens.size();
    answer["usage"] = {{"prompt_tokens", prompt}, {"completion_tokens", tokens}, {"total_tokens", prompt + tokens}};
  }
  return answer.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string errorJson(const std::string &message, const std::string &type) {
  Json answer = {{"error", {{"message", message}, {"type", type}}}};
  return answer.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

} // namespace espalier::rt
