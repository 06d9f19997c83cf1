// The rules of access to a port: the token, the names of the server, and the origins of web pages. A page that a user
// opens can send requests to a server on the user's machine. Its own host name may also resolve to that machine.
#pragma once

#include "runtime/http/message.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::rt::http {

/// The rules of one port.
struct Access {
  std::string token = "";                  ///< bearer token that clients must send; empty: none
  std::vector<std::string> openPaths = {}; ///< which need no token
  std::vector<std::string> hosts = {};     ///< values of Host beside loopback names and the local address
  bool takesAnyHost = false;               ///< no check of Host
  std::vector<std::string> origins = {};   ///< of web pages of other servers that may send requests; "*": all

  /// Returns why the client may not send this request.
  std::optional<Refusal> whyNot(const Head &head) const;
  /// Returns the fields that let an allowed web page read the response.
  Fields fieldsFor(const Head &head) const;
};

/// Returns whether a host name is a loopback address.
bool isLoopback(const std::string &host);

/// Returns whether the request is the question of a browser that precedes a request of another origin.
bool isPreflight(const Head &head);

/// Throws PlanError if others than this machine reach `host` and there is no token. `option` names the place, and
/// `wayOut` says how to give a token.
void requireToken(const std::string &token, const std::string &host, const std::string &option,
                  const std::string &wayOut);

/// Returns the first line of a file with a token. Throws PlanError that begins with `option` if it is empty or
/// unreadable.
std::string readTokenFile(const std::string &file, const std::string &option);

} // namespace espalier::rt::http
