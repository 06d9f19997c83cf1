#include "runtime/http_place.h"

#include "runtime/status.h"

#include <chrono>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>
#include <thread>

namespace espalier::rt {

/// Connections that the system accepts for the server before it looks; those beyond wait a second for the next try.
static constexpr int backlog = 1024;

std::string listenForHttp(httplib::Server &http, const std::string &host, int port, const std::string &advice) {
  int listener = -1;
  http.set_socket_options([&](socket_t opened) {
    int yes = 1; // without SO_REUSEPORT, which would let two servers share a port
    setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listener = opened;
  });
  int bound = port;
  if (port == 0)
    bound = http.bind_to_any_port(host);
  else if (!http.bind_to_port(host, port))
    bound = -1;
  http.set_socket_options([](socket_t) {}); // the one above refers to this call
  if (bound < 0)
    throw PlanError(fmt::format("cannot listen on {} port {}; {}", host, port, advice));
  ::listen(listener, backlog); // again, as the library keeps 5
  bool isV6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", isV6 ? "[" : "", host, isV6 ? "]" : "", bound);
}

void stopHttp(httplib::Server &http, const std::function<bool()> &hasEnded) {
  while (!http.is_running() && !hasEnded())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http.stop();
}

} // namespace espalier::rt
