// Listening for HTTP, for `espalier serve` and `espalier run --prometheus`.
#pragma once

#include <functional>
#include <string>

namespace httplib {
class Server;
}

namespace espalier::rt {

/// Makes the server listen at a port of an address of this machine; port 0 takes a free one. Returns the URL,
/// "http://127.0.0.1:8000". Throws PlanError if the place is taken or not of this machine; its text ends with `advice`.
std::string listenForHttp(httplib::Server &http, const std::string &host, int port, const std::string &advice);

/// Stops the server, also if its thread is about to accept connections: httplib's stop() has no effect before. Returns
/// when the server was told, or when `hasEnded()`.
void stopHttp(httplib::Server &http, const std::function<bool()> &hasEnded);

} // namespace espalier::rt
