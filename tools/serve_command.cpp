// `espalier serve`: the options of the server.
#include "tools/commands.h"
#include "tools/generate_words.h"

#include "runtime/generate/serve/server.h"
#include "runtime/status.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>

namespace espalier {
namespace {

/// The signal that asks the server to end. Any thread may set it, and the main thread reads it.
std::atomic<int> endSignal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

struct ServeWords {
  ModelWords model;
  std::string tokenFile;
  rt::ServerOptions options;
};

/// Returns the first line of --token-file, or ESPALIER_TOKEN.
std::string readToken(const std::string &file) {
  const char *given = std::getenv("ESPALIER_TOKEN");
  std::string token = given ? given : "";
  if (file.empty())
    return token;
  std::ifstream stream(file);
  if (!std::getline(stream, token) || token.empty())
    throw rt::PlanError(fmt::format("--token-file: {} holds no token in its first line", file));
  return token;
}

int serveModel(ServeWords &words) {
  words.options.token = readToken(words.tokenFile);
  if (words.options.token.empty() && !rt::isLoopback(words.options.host)) // checked before the weights are read
    throw rt::PlanError(fmt::format("--host {} lets others in, and there is no token; set ESPALIER_TOKEN or give "
                                    "--token-file, or listen on 127.0.0.1",
                                    words.options.host));
  Model model = openModel(words.model);
  if (model.run.comm != rt::Comm::local)
    throw rt::PlanError(fmt::format(
        "{}: a server has its ranks as threads of one process; start it once, without mpirun", words.model.plan));
  rt::Decoder decoder(*model.program, model.weights.get(), model.run.threads);
  words.options.model = model.program->plan().model();
  words.options.stopSignal = [] { return endSignal.load(); };
  for (int number : {SIGTERM, SIGINT, SIGHUP})
    std::signal(number, [](int came) { endSignal = came; });
  int signal = rt::serve(decoder, model.tokenizer.get(), words.options);
  return signal ? 128 + signal : int(Success);
}

} // namespace

void addServeCommand(const Verb &app) {
  Verb verb = app.verb("serve", "Continue prompts over HTTP, as OpenAI's /v1/completions");
  auto words = std::make_shared<ServeWords>();
  addModelOptions(verb, words->model);
  verb.option("--host", words->options.host, "address to listen on; default 127.0.0.1, others need a token");
  verb.option("--port", words->options.port, "default 0: a free one").range(0, 65535);
  verb.option("--token-file", words->tokenFile, "its first line is the token that callers must send");
  verb.option("--waiting", words->options.waiting, "requests that may wait; more are refused with 503")
      .range(1, 1 << 20);
  verb.action([words] { return serveModel(*words); });
}

} // namespace espalier
