#include "runtime/generate/serve/server.h"

#include "runtime/generate/completion_answer.h"
#include "runtime/generate/serve/assets.h"
#include "runtime/generate/serve/bounded_queue.h"
#include "runtime/generate/serve/decode_thread.h"
#include "runtime/generate/serve/metrics.h"
#include "runtime/http_place.h"
#include "runtime/prometheus_text.h"
#include "runtime/status.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <httplib.h>

namespace espalier::rt {

namespace {

constexpr int readSeconds = 10, writeSeconds = 30;
constexpr size_t httpThreads = 16;

/// Compares in constant time for equal lengths, so that timing does not reveal the token.
bool isEqual(std::string_view a, std::string_view b) {
  unsigned char differences = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differences |= static_cast<unsigned char>(a[i] ^ b[i % std::max<size_t>(b.size(), 1)]);
  return differences == 0;
}

constexpr const char *json = "application/json", *failedModel = "the model has failed; the server's log says how";

/// The paths that are served, with their methods.
constexpr std::pair<const char *, const char *> routes[] = {
    {"GET", "/"},          {"GET", "/health"},          {"GET", "/metrics"},
    {"GET", "/v1/models"}, {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"}};

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the message for an error that httplib answers itself.
std::string reasonOf(const httplib::Request &request, int status) {
  if (status == 404) {
    std::string served;
    for (const auto &[method, path] : routes)
      served += fmt::format("{}{} {}", served.empty() ? "" : ", ", method, path);
    return fmt::format("{} {} is not served; these are: {}", request.method, request.path, served);
  }
  if (status == 413)
    return fmt::format("the body is longer than {} bytes", BodyLimits().bytes);
  return fmt::format("status {}", status);
}

/// A request that is answered.
struct Asked {
  CompletionBody body;
  std::shared_ptr<Answer> answer;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<CompletionAnswer> writer;
  double begin = secondsNow(), first = 0; ///< first: when the first output came
};

class Service {
public:
  Service(Decoder &decoder, const ServerTokenizers &tokenizers, const ServerOptions &options)
      : decoder(decoder), tokenizers(tokenizers), options(options), started(static_cast<int64_t>(std::time(nullptr))),
        decoding(decoder, tokenizers.texts, options.waiting) {
    http.new_task_queue = [&] { return new BoundedQueue(httpThreads, this->options.waiting); };
    http.set_payload_max_length(BodyLimits().bytes);
    http.set_read_timeout(readSeconds, 0);
    http.set_write_timeout(writeSeconds, 0);
    http.set_keep_alive_max_count(1); // the library would read the unread body of a refused request as the next request
    http.set_pre_routing_handler([&](const httplib::Request &request, httplib::Response &response) {
      return admits(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                       : httplib::Server::HandlerResponse::Handled;
    });
    http.set_error_handler([](const httplib::Request &request, httplib::Response &response) {
      if (response.body.empty())
        refuse(response, response.status, reasonOf(request, response.status));
    });
    http.set_logger([&](const httplib::Request &request, const httplib::Response &response) {
      std::string path = request.path; // clients may add a final slash
      if (path.size() > 1 && path.ends_with('/'))
        path.pop_back();
      bool isKnown = std::ranges::any_of(routes, [&](const auto &route) { return path == route.second; });
      metrics.countResponse(isKnown ? path : "other", response.status);
    });
    route();
  }

  int run() {
    fmt::print("listening on {}\n",
               listenForHttp(http, options.host, options.port, "give another --port, or 0 for a free one"));
    std::fflush(stdout);
    std::atomic<int> signal = 0;
    {
      std::jthread watcher([&](const std::stop_token &over) {
        while (!over.stop_requested() && !(signal = options.stopSignal()) && !decoding.failure())
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        stopHttp(http, [&] { return over.stop_requested(); });
      });
      http.listen_after_bind();
    }
    if (std::exception_ptr fault = decoding.failure())
      std::rethrow_exception(fault);
    return signal;
  }

private:
  void route() {
    http.Get("/", [](const httplib::Request &, httplib::Response &response) {
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                          "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'");
      response.set_content(assets::chatPage, "text/html; charset=utf-8");
    });
    http.Get("/health", [&](const httplib::Request &, httplib::Response &response) {
      response.status = decoding.failure() ? 500 : 200;
      response.set_content(decoding.failure() ? "{\"status\":\"failed\"}" : "{\"status\":\"ok\"}", json);
    });
    http.Get("/metrics", [&](const httplib::Request &, httplib::Response &response) {
      DecodeThread::Load load = decoding.load();
      response.set_content(metrics.text(load.running, load.waiting), prometheusType);
    });
    http.Get("/v1/models/?",
             [&](const httplib::Request &, httplib::Response &response) { response.set_content(modelsText(), json); });
    http.Post("/v1/completions/?", [&](const httplib::Request &request, httplib::Response &response) {
      complete(request, response, /*isChat=*/false);
    });
    http.Post("/v1/chat/completions/?", [&](const httplib::Request &request, httplib::Response &response) {
      complete(request, response, /*isChat=*/true);
    });
  }

  static void refuse(httplib::Response &response, int status, const std::string &message) {
    response.status = status;
    const char *type = status == 401 ? "authentication_error" : status < 500 ? "invalid_request_error" : "server_error";
    response.set_content(errorJson(message, type), json);
  }

  /// Checks the queue bound and the bearer token, and answers what browsers ask before a request of another origin.
  /// Returns false if the response is complete.
  bool admits(const httplib::Request &request, httplib::Response &response) const {
    allowOrigin(request, response);
    if (BoundedQueue::isRefusing()) {
      response.set_header("Connection", "close");
      refuse(response, 503, "too many requests wait; try again later");
      return false;
    }
    if (request.method == "OPTIONS" && request.has_header("Origin")) {
      response.status = 204;
      return false;
    }
    bool isOpen = options.token.empty() || request.path == "/health" || request.path == "/";
    if (isOpen || isEqual(request.get_header_value("Authorization"), "Bearer " + options.token))
      return true;
    refuse(response, 401, "the token is missing or wrong; send it as `Authorization: Bearer TOKEN`");
    return false;
  }

  /// Adds the headers that let a web page of an allowed origin read the response.
  void allowOrigin(const httplib::Request &request, httplib::Response &response) const {
    std::string origin = request.get_header_value("Origin");
    auto allows = [&](const std::string &one) { return std::ranges::count(options.allowedOrigins, one) > 0; };
    if (origin.empty() || !(allows("*") || allows(origin)))
      return;
    response.set_header("Access-Control-Allow-Origin", allows("*") ? "*" : origin);
    response.set_header("Vary", "Origin");
    if (request.method != "OPTIONS")
      return;
    response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    std::string headers = request.get_header_value("Access-Control-Request-Headers");
    response.set_header("Access-Control-Allow-Headers", headers.empty() ? "Authorization, Content-Type" : headers);
    response.set_header("Access-Control-Max-Age", "600");
  }

  std::string modelsText() const {
    nlohmann::ordered_json model = {{"id", options.model},
                                    {"object", "model"},
                                    {"created", started},
                                    {"owned_by", "espalier"},
                                    {"max_model_len", decoder.sizes().context},
                                    {"chat_template", nullptr}};
    if (tokenizers.chats && options.chat.chat)
      model["chat_template"] = nameOf(*options.chat.chat);
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

  void complete(const httplib::Request &request, httplib::Response &response, bool isChat) {
    auto asked = std::make_shared<Asked>();
    asked->tokenizer = tokenizers.texts ? tokenizers.texts->clone() : nullptr;
    try {
      asked->body = parse(request.body, isChat, asked->tokenizer.get());
    } catch (const BodyError &error) {
      return refuse(response, 400, error.what());
    }
    std::vector<Request> choices;
    for (size_t choice = 0; choice < asked->body.choices(); ++choice) {
      choices.push_back(asked->body.request(choice));
      if (std::string reason = whyNotServed(choices.back(), decoder.sizes()); !reason.empty())
        return refuse(response, 400, reason);
    }
    asked->answer = decoding.ask(std::move(choices));
    if (!asked->answer)
      return refuse(response, 503, "too many requests wait; try again later");
    auto created = static_cast<int64_t>(std::time(nullptr));
    AnswerHead head{fmt::format("{}-{}-{}", isChat ? "chatcmpl" : "cmpl", created, ++answers), options.model, created};
    asked->writer = std::make_unique<CompletionAnswer>(head, asked->body, asked->tokenizer.get());
    if (asked->body.stream)
      return stream(response, asked);
    do {
      if (!hear(*asked))
        return refuse(response, 500, failedModel);
    } while (!asked->answer->isOver());
    count(*asked);
    response.set_content(asked->writer->whole(asked->answer->ends()), json);
  }

  /// Waits for output; nothing if the model failed.
  static std::optional<std::vector<Answer::Piece>> hear(Asked &asked) {
    std::optional<std::vector<Answer::Piece>> pieces = asked.answer->next();
    if (asked.first == 0)
      asked.first = secondsNow();
    return pieces;
  }

  void count(const Asked &asked) {
    size_t prompt = 0, tokens = 0;
    for (const Prompt &one : asked.body.prompts)
      prompt += one.ids.size();
    for (const Completion &end : asked.answer->ends())
      tokens += end.tokens.size();
    metrics.countCompletion(prompt, tokens, asked.first - asked.begin, secondsNow() - asked.begin);
  }

  /// Returns the next server-sent events, one per piece.
  std::string events(Asked &asked, bool &isLast) {
    std::string text;
    auto add = [&](const std::string &event) { text += "data: " + event + "\n\n"; };
    bool isFirst = asked.first == 0;
    std::optional<std::vector<Answer::Piece>> pieces = hear(asked);
    if (!pieces)
      add(errorJson(failedModel, "server_error"));
    for (size_t choice = 0; pieces && isFirst && asked.body.isChat && choice < asked.body.choices(); ++choice)
      add(asked.writer->firstEvent(choice));
    for (Answer::Piece &piece : pieces ? *pieces : std::vector<Answer::Piece>()) {
      if (piece.isEnd)
        piece.news.end = &asked.answer->ends()[piece.choice];
      add(asked.writer->event(piece.choice, piece.news));
    }
    isLast = !pieces || asked.answer->isOver();
    if (pieces && isLast) {
      count(asked);
      if (asked.body.includesUsage)
        add(asked.writer->usageEvent(asked.answer->ends()));
    }
    if (isLast)
      add("[DONE]");
    return text;
  }

  /// Streams server-sent events.
  void stream(httplib::Response &response, const std::shared_ptr<Asked> &asked) {
    auto write = [this, asked](size_t, httplib::DataSink &sink) {
      bool isLast = false;
      std::string text = events(*asked, isLast);
      if (!sink.write(text.data(), text.size()))
        return false;
      if (isLast)
        sink.done();
      return true;
    };
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider("text/event-stream", write, [asked](bool) { asked->answer->abandon(); });
  }

  Decoder &decoder;
  const ServerTokenizers tokenizers;
  const ServerOptions &options;
  const int64_t started; ///< in seconds since 1970
  ServerMetrics metrics;
  DecodeThread decoding;
  std::atomic<uint64_t> answers = 0;
  httplib::Server http;
};

} // namespace

bool isLoopback(const std::string &host) {
  bool isFour = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || isFour;
}

int serve(Decoder &decoder, const ServerTokenizers &tokenizers, const ServerOptions &options) {
  return Service(decoder, tokenizers, options).run();
}

} // namespace espalier::rt
