// `espalier serve`: the options of the server.
#include "tools/commands.h"
#include "tools/run/chat_format.h"
#include "tools/run/model_arguments.h"

#include "runtime/generate/serve/server.h"
#include "runtime/http/access.h"
#include "runtime/status.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>

namespace espalier {
namespace {

/// The signal that asks the server to end. Any thread may set it, and the main thread reads it.
std::atomic<int> endSignal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

struct ServeArguments {
  ModelArguments model;
  std::string tokenFile, chatTemplate;
  rt::ServerOptions options;
};

/// Returns the first line of --token-file, or ESPALIER_TOKEN.
std::string readToken(const std::string &file) {
  const char *given = std::getenv("ESPALIER_TOKEN");
  return file.empty() ? std::string(given ? given : "") : rt::http::readTokenFile(file, "--token-file");
}

int serveModel(ServeArguments &arguments) {
  arguments.options.token = readToken(arguments.tokenFile);
  rt::http::requireToken(arguments.options.token, arguments.options.host, "--host " + arguments.options.host,
                         "set ESPALIER_TOKEN or give --token-file"); // before the weights are read
  Model model = openModel(arguments.model);
  if (model.run.comm != rt::Comm::local)
    throw rt::PlanError(fmt::format(
        "{}: a server has its ranks as threads of one process; start it once, without mpirun", arguments.model.plan));
  rt::Decoder decoder(*model.program, model.weights.get(), model.run.threads);
  if (!arguments.chatTemplate.empty() && !arguments.model.hasTokenizer)
    throw rt::PlanError("--chat-template needs a tokenizer; give --tokenizer KIND");
  ChatFormat chat = openChats(arguments.model, arguments.chatTemplate);
  arguments.options.chat = chat.found;
  arguments.options.model = model.program->plan().model();
  arguments.options.stopSignal = [] { return endSignal.load(); };
  for (int number : {SIGTERM, SIGINT, SIGHUP})
    std::signal(number, [](int came) { endSignal = came; });
  int signal = rt::serve(decoder, {model.tokenizer.get(), chat.tokenizer.get()}, arguments.options);
  return signal ? 128 + signal : int(Success);
}

} // namespace

void addServeCommand(const Verb &app) {
  Verb verb = app.verb("serve", "Continue prompts and answer chats over HTTP, as OpenAI's API");
  auto arguments = std::make_shared<ServeArguments>();
  addModelOptions(verb, arguments->model);
  verb.option("--host", arguments->options.host, "address to listen on; default 127.0.0.1, others need a token");
  verb.option("--port", arguments->options.port, "default 0: a free one").range(0, 65535);
  verb.option("--token-file", arguments->tokenFile, "its first line is the token that callers must send");
  verb.option("--waiting", arguments->options.waiting, "texts that may wait; more are refused with 503")
      .range(1, 1 << 20);
  verb.option("--chat-template", arguments->chatTemplate, "format of chats; default: the tokenizer's chat_template")
      .oneOf(rt::chatTemplateNames());
  verb.option("--allow-origin", arguments->options.allowedOrigins,
              "origin of web pages that may send requests, https://HOST or *; may be repeated")
      .oneValueEach();
  verb.option("--allow-host", arguments->options.allowedHosts,
              "name of this server beside localhost and its address, as behind a proxy; may be repeated")
      .oneValueEach();
  verb.action([arguments] { return serveModel(*arguments); });
}

} // namespace espalier
