#include "runtime/generate/serve/server.h"

#include "runtime/generate/completion_answer.h"
#include "runtime/generate/serve/assets.h"
#include "runtime/generate/serve/decode_thread.h"
#include "runtime/generate/serve/job_thread.h"
#include "runtime/generate/serve/metrics.h"
#include "runtime/http/server.h"
#include "runtime/prometheus_text.h"
#include "runtime/status.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

constexpr const char *json = "application/json", *failedModel = "the model has failed; the server's log says how",
                     *tooMany = "too many requests wait; try again later";

/// The paths that are served, with their methods.
constexpr std::pair<std::string_view, std::string_view> routes[] = {
    {"GET", "/"},          {"GET", "/health"},          {"GET", "/metrics"},
    {"GET", "/v1/models"}, {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"}};

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A request whose choices are decoded. Used by the thread of jobs until the choices are queued, and from their end on;
/// by the thread of the server between.
struct Asked final : Answer, std::enable_shared_from_this<Asked> {
  using Listener = std::function<void(std::shared_ptr<Asked>)>;

  Asked(CompletionBody body, std::shared_ptr<const http::Reply> reply, Listener onNews)
      : Answer(body.choices()), body(std::move(body)), reply(std::move(reply)), onNews(std::move(onNews)) {}

  bool isAbandoned() const override { return reply->isGone(); }
  void wake() override { onNews(shared_from_this()); }

  const CompletionBody body;
  const std::shared_ptr<const http::Reply> reply;
  const Listener onNews;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<CompletionAnswer> writer;
  double begin = 0, first = 0; ///< first: when the first output came
  bool isDone = false;         ///< nothing more is sent
};

class Service final : public http::Handler {
public:
  Service(Decoder &decoder, const ServerTokenizers &tokenizers, const ServerOptions &options)
      : decoder(decoder), tokenizers(tokenizers), options(options), started(static_cast<int64_t>(std::time(nullptr))),
        server(options.host, options.port, "give another --port, or 0 for a free one",
               {.token = options.token,
                .openPaths = {"/", "/health"},
                .hosts = options.allowedHosts,
                .origins = options.allowedOrigins},
               {.bodyBytes = BodyLimits().bytes}, *this),
        decoding(decoder, tokenizers.texts, options.waiting), jobs(options.waiting) {}

  int run() {
    fmt::print("listening on {}\n", server.url());
    std::fflush(stdout);
    int signal = 0;
    server.run([&] { return (signal = options.stopSignal()) > 0 || decoding.failure(); });
    if (std::exception_ptr fault = decoding.failure())
      std::rethrow_exception(fault);
    return signal;
  }

  std::optional<http::Refusal> refuse(const http::Head &head) override {
    if (std::ranges::any_of(routes,
                            [&](const auto &one) { return one.first == head.method && one.second == head.path; }))
      return std::nullopt;
    std::string served;
    for (const auto &[method, path] : routes)
      served += fmt::format("{}{} {}", served.empty() ? "" : ", ", method, path);
    constexpr size_t mostRepeated = 200;
    return http::Refusal{
        404, fmt::format("{} {} is not served; these are: {}", head.method, head.path.substr(0, mostRepeated), served)};
  }

  http::Response responseOf(const http::Refusal &refusal) override {
    int status = refusal.status;
    const char *type = status == 401 ? "authentication_error" : status < 500 ? "invalid_request_error" : "server_error";
    return {status, json, errorJson(refusal.message, type)};
  }

  /// Strangers cannot add rows by paths that are not served.
  void count(const std::string &path, int status) override {
    bool isKnown = std::ranges::any_of(routes, [&](const auto &route) { return path == route.second; });
    metrics.countResponse(isKnown ? path : "other", status);
  }

  void answer(http::Request request, std::shared_ptr<const http::Reply> reply) override {
    if (request.head.method == "GET")
      return reply->send(page(request.head.path));
    // A function object has copies, and a request has none.
    auto taken = std::make_shared<http::Request>(std::move(request));
    if (!jobs.offer([this, taken, reply] { complete(*taken, reply); }))
      reply->send(responseOf({503, tooMany}));
  }

private:
  http::Response page(const std::string &path) {
    if (path == "/")
      return {200,
              "text/html; charset=utf-8",
              assets::chatPage,
              {{"Content-Security-Policy",
                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                "img-src data:; frame-ancestors 'none'; base-uri 'none'"}}};
    if (path == "/v1/models")
      return {200, json, modelsText()};
    if (path == "/health")
      return decoding.failure() ? http::Response{500, json, "{\"status\":\"failed\"}"}
                                : http::Response{200, json, "{\"status\":\"ok\"}"};
    DecodeThread::Load load = decoding.load();
    return {200, prometheusType, metrics.text(load.running, load.waiting)};
  }

  std::string modelsText() const {
    nlohmann::ordered_json model = {{"id", options.model},
                                    {"object", "model"},
                                    {"created", started},
                                    {"owned_by", "espalier"},
                                    {"max_model_len", decoder.sizes().context},
                                    {"chat_template", nullptr}};
    if (tokenizers.chats && options.chat.chat)
      model["chat_template"] = options.chat.chat->name;
    return jsonText({{"object", "list"}, {"data", nlohmann::ordered_json::array({model})}});
  }

  /// Parses a body. Throws BodyError.
  CompletionBody parse(const std::string &text, bool isChat, Tokenizer *own) const {
    if (!isChat)
      return parseCompletionBody(text, own);
    if (!tokenizers.chats)
      throw BodyError("the server has no tokenizer, so that it takes token ids by /v1/completions alone");
    if (!options.chat.chat)
      throw BodyError(options.chat.whyNot);
    return parseChatBody(text, *tokenizers.chats->clone(), *options.chat.chat, decoder.sizes().context);
  }

  /// Answers a POST, on the thread of jobs.
  void complete(const http::Request &request, const std::shared_ptr<const http::Reply> &reply) {
    if (reply->isGone())
      return;
    try {
      if (std::optional<http::Refusal> refusal = start(request, reply))
        reply->send(responseOf(*refusal));
    } catch (const BodyError &error) {
      reply->send(responseOf({400, error.what()}));
    } catch (const std::exception &error) {
      reply->send(responseOf({500, error.what()}));
    }
  }

  /// Parses a request and queues its choices. Returns why it is refused. Throws BodyError.
  std::optional<http::Refusal> start(const http::Request &request, const std::shared_ptr<const http::Reply> &reply) {
    double begin = secondsNow();
    bool isChat = request.head.path == "/v1/chat/completions";
    std::unique_ptr<Tokenizer> tokenizer = tokenizers.texts ? tokenizers.texts->clone() : nullptr;
    auto asked = std::make_shared<Asked>(
        parse(request.body, isChat, tokenizer.get()), reply,
        [this](std::shared_ptr<Asked> asked) { server.post([this, asked = std::move(asked)] { advance(asked); }); });
    asked->begin = begin;
    asked->tokenizer = std::move(tokenizer);
    std::vector<Request> choices;
    for (size_t choice = 0; choice < asked->body.choices(); ++choice) {
      choices.push_back(asked->body.request(choice));
      if (std::string reason = whyNotServed(choices.back(), decoder.sizes()); !reason.empty())
        return http::Refusal{400, reason};
    }
    auto created = static_cast<int64_t>(std::time(nullptr));
    AnswerHead head{fmt::format("{}-{}-{}", isChat ? "chatcmpl" : "cmpl", created, ++answers), options.model, created};
    asked->writer = std::make_unique<CompletionAnswer>(head, asked->body, asked->tokenizer.get());
    if (!decoding.ask(asked, std::move(choices)))
      return http::Refusal{503, tooMany};
    return std::nullopt;
  }

  /// Sends what was decoded since the last call, on the thread of the server.
  void advance(const std::shared_ptr<Asked> &asked) {
    if (asked->isDone)
      return;
    std::optional<std::vector<Answer::Piece>> pieces = asked->take();
    asked->isDone = !pieces || asked->isOver();
    bool isFirst = asked->first == 0;
    if (isFirst)
      asked->first = secondsNow();
    if (asked->body.stream)
      return stream(*asked, pieces, isFirst);
    if (!pieces)
      asked->reply->send(responseOf({500, failedModel}));
    else if (asked->isDone)
      jobs.insist([this, asked] {
        count(*asked);
        asked->reply->send({200, json, asked->writer->whole(asked->ends())});
      });
  }

  void count(const Asked &asked) {
    size_t prompt = 0, tokens = 0;
    for (const Prompt &one : asked.body.prompts)
      prompt += one.ids.size();
    for (const Completion &end : asked.ends())
      tokens += end.tokens.size();
    metrics.countCompletion(prompt, tokens, asked.first - asked.begin, secondsNow() - asked.begin);
  }

  /// Sends server-sent events, one per piece.
  void stream(Asked &asked, std::optional<std::vector<Answer::Piece>> &pieces, bool isFirst) {
    if (isFirst)
      asked.reply->begin({200, "text/event-stream", "", {{"Cache-Control", "no-cache"}}});
    std::string text;
    auto add = [&](const std::string &event) { text += "data: " + event + "\n\n"; };
    if (!pieces)
      add(errorJson(failedModel, "server_error"));
    for (size_t choice = 0; pieces && isFirst && asked.body.isChat && choice < asked.body.choices(); ++choice)
      add(asked.writer->firstEvent(choice));
    for (Answer::Piece &piece : pieces ? *pieces : std::vector<Answer::Piece>()) {
      if (piece.isEnd)
        piece.news.end = &asked.ends()[piece.choice];
      add(asked.writer->event(piece.choice, piece.news));
    }
    if (pieces && asked.isDone) {
      count(asked);
      if (asked.body.includesUsage)
        add(asked.writer->usageEvent(asked.ends()));
    }
    if (asked.isDone)
      add("[DONE]");
    asked.reply->write(std::move(text));
    if (asked.isDone)
      asked.reply->end();
  }

  Decoder &decoder;
  const ServerTokenizers tokenizers;
  const ServerOptions &options;
  const int64_t started; ///< in seconds since 1970
  ServerMetrics metrics;
  uint64_t answers = 0; ///< used by the thread of jobs
  // The threads of the last two use the ones before.
  http::Server server;
  DecodeThread decoding;
  JobThread jobs;
};

} // namespace

int serve(Decoder &decoder, const ServerTokenizers &tokenizers, const ServerOptions &options) {
  return Service(decoder, tokenizers, options).run();
}

} // namespace espalier::rt
