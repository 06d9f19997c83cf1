#include "runtime/generate/serve/server.h"

#include "runtime/generate/completion_body.h"
#include "runtime/generate/serve/bounded_queue.h"
#include "runtime/generate/serve/decode_thread.h"
#include "runtime/status.h"

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

namespace espalier::rt {

namespace {

constexpr int readSeconds = 10, writeSeconds = 30;
constexpr size_t httpThreads = 16;
/// Connections that the system accepts for the server before it looks; those beyond wait a second for the next try.
constexpr int backlog = 1024;

/// Compares in constant time for equal lengths, so that timing does not reveal the token.
bool isEqual(std::string_view a, std::string_view b) {
  unsigned char differences = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differences |= static_cast<unsigned char>(a[i] ^ b[i % std::max<size_t>(b.size(), 1)]);
  return differences == 0;
}

/// Returns the message for an error that httplib answers itself.
std::string reasonOf(const httplib::Request &request, int status) {
  if (status == 404)
    return fmt::format("{} {} is not served; POST /v1/completions and GET /health are", request.method, request.path);
  if (status == 413)
    return fmt::format("the body is longer than {} bytes", BodyLimits().bytes);
  return fmt::format("status {}", status);
}

class Service {
public:
  Service(Decoder &decoder, const Tokenizer *tokenizer, const ServerOptions &options)
      : decoder(decoder), tokenizer(tokenizer), options(options), decoding(decoder, tokenizer, options.waiting) {
    http.new_task_queue = [&] { return new BoundedQueue(httpThreads, this->options.waiting); };
    http.set_payload_max_length(BodyLimits().bytes);
    http.set_read_timeout(readSeconds, 0);
    http.set_write_timeout(writeSeconds, 0);
    http.set_keep_alive_timeout(2);
    http.set_socket_options([this](socket_t opened) {
      httplib::default_socket_options(opened);
      listener = opened;
    });
    http.set_pre_routing_handler([&](const httplib::Request &request, httplib::Response &response) {
      return admits(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                       : httplib::Server::HandlerResponse::Handled;
    });
    http.Get("/health", [&](const httplib::Request &, httplib::Response &response) {
      response.status = decoding.failure() ? 500 : 200;
      response.set_content(decoding.failure() ? "{\"status\":\"failed\"}" : "{\"status\":\"ok\"}", "application/json");
    });
    http.Post("/v1/completions",
              [&](const httplib::Request &request, httplib::Response &response) { complete(request, response); });
    http.set_error_handler([](const httplib::Request &request, httplib::Response &response) {
      if (response.body.empty())
        refuse(response, response.status, reasonOf(request, response.status));
    });
  }

  int run() {
    int port = options.port == 0 ? http.bind_to_any_port(options.host) : options.port;
    if (port < 0 || (options.port != 0 && !http.bind_to_port(options.host, port)))
      throw PlanError(fmt::format("cannot listen on {} port {}; give another --port, or 0 for a free one", options.host,
                                  options.port));
    ::listen(listener, backlog); // again, as the library keeps 5
    bool isV6 = options.host.find(':') != std::string::npos;
    fmt::print("listening on http://{}{}{}:{}\n", isV6 ? "[" : "", options.host, isV6 ? "]" : "", port);
    std::fflush(stdout);
    std::atomic<int> signal = 0;
    {
      std::jthread watcher([&](const std::stop_token &over) {
        while (!over.stop_requested() && !(signal = options.stopSignal()) && !decoding.failure())
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        http.stop();
      });
      http.listen_after_bind();
    }
    if (std::exception_ptr fault = decoding.failure())
      std::rethrow_exception(fault);
    return signal;
  }

private:
  static void refuse(httplib::Response &response, int status, const std::string &message) {
    response.status = status;
    const char *type = status == 401 ? "authentication_error" : status < 500 ? "invalid_request_error" : "server_error";
    response.set_content(errorJson(message, type), "application/json");
  }

  /// Checks the queue bound and the bearer token. Sends the error response if a check fails.
  bool admits(const httplib::Request &request, httplib::Response &response) const {
    if (BoundedQueue::isRefusing()) {
      response.set_header("Connection", "close");
      refuse(response, 503, "too many requests wait; try again later");
      return false;
    }
    bool isOpen = options.token.empty() || request.path == "/health";
    if (isOpen || isEqual(request.get_header_value("Authorization"), "Bearer " + options.token))
      return true;
    refuse(response, 401, "the token is missing or wrong; send it as `Authorization: Bearer TOKEN`");
    return false;
  }

  void complete(const httplib::Request &request, httplib::Response &response) {
    CompletionBody body;
    try {
      std::unique_ptr<Tokenizer> own = tokenizer ? tokenizer->clone() : nullptr;
      body = parseCompletionBody(request.body, own.get());
    } catch (const BodyError &error) {
      return refuse(response, 400, error.what());
    }
    if (std::string reason = whyNotServed(body.request, decoder.sizes()); !reason.empty())
      return refuse(response, 400, reason);
    std::shared_ptr<Answer> answer = decoding.ask(body.request);
    if (!answer)
      return refuse(response, 503, "too many requests wait; try again later");
    auto created = static_cast<int64_t>(std::time(nullptr));
    std::string id = fmt::format("cmpl-{}-{}", created, ++answers);
    if (body.stream)
      return stream(response, {id, std::move(body), std::move(answer), created});
    for (;;) {
      auto heard = answer->next();
      if (!heard)
        return refuse(response, 500, "the model has failed; the server's log says how");
      if (heard->second)
        break;
    }
    response.set_content(completionJson(id, options.model, body, &answer->completion(), {}, created),
                         "application/json");
  }

  struct Stream {
    std::string id;
    CompletionBody body;
    std::shared_ptr<Answer> answer;
    int64_t created;
  };

  /// Streams server-sent events, one per piece of text.
  void stream(httplib::Response &response, Stream given) const {
    auto told = std::make_shared<Stream>(std::move(given));
    auto write = [this, told](size_t, httplib::DataSink &sink) {
      auto heard = told->answer->next();
      std::string event =
          heard ? completionJson(told->id, options.model, told->body,
                                 heard->second ? &told->answer->completion() : nullptr, heard->first, told->created)
                : errorJson("the model has failed; the server's log says how", "server_error");
      std::string text = "data: " + event + "\n\n";
      bool isLast = !heard || heard->second;
      if (isLast)
        text += "data: [DONE]\n\n";
      if (!sink.write(text.data(), text.size()))
        return false;
      if (isLast)
        sink.done();
      return true;
    };
    response.set_chunked_content_provider("text/event-stream", write, [told](bool) { told->answer->abandon(); });
  }

  Decoder &decoder;
  const Tokenizer *tokenizer;
  const ServerOptions &options;
  DecodeThread decoding;
  std::atomic<uint64_t> answers = 0;
  httplib::Server http;
  socket_t listener = INVALID_SOCKET;
};

} // namespace

bool isLoopback(const std::string &host) {
  bool isFour = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || isFour;
}

int serve(Decoder &decoder, const Tokenizer *tokenizer, const ServerOptions &options) {
  return Service(decoder, tokenizer, options).run();
}

} // namespace espalier::rt
