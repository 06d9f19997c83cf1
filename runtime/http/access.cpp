#include "runtime/http/access.h"

#include "runtime/http/admission.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>

namespace espalier::rt::http {

namespace {

/// Bytes of a client's text that a message repeats.
constexpr size_t mostRepeated = 100;

/// Compares in constant time for equal lengths, so that timing does not reveal the token.
bool isEqual(std::string_view a, std::string_view b) {
  unsigned char differences = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differences |= static_cast<unsigned char>(a[i] ^ b[i % std::max<size_t>(b.size(), 1)]);
  return differences == 0;
}

/// Returns the name of HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT; empty for other texts.
std::string nameOf(std::string_view host) {
  size_t end = host.starts_with('[') ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos)
    return "";
  std::string_view name = host.substr(host.starts_with('['), end - host.starts_with('[')),
                   rest = host.substr(end + host.starts_with('['));
  bool isPort = rest.starts_with(':') && rest.size() <= 6 &&
                std::ranges::all_of(rest.substr(1), [](char one) { return one >= '0' && one <= '9'; });
  return rest.empty() || isPort ? std::string(name) : "";
}

bool contains(const std::vector<std::string> &list, const std::string &name) {
  return std::ranges::any_of(list, [&](const std::string &one) { return equalsIgnoringCase(one, name); });
}

bool isOwnOrigin(const Head &head) {
  size_t slashes = head.origin.find("://");
  return slashes != std::string::npos && equalsIgnoringCase(head.origin.substr(slashes + 3), head.host);
}

} // namespace

std::optional<Refusal> Access::whyNot(const Head &head) const {
  std::string name = nameOf(head.host);
  // HTTP/1.0 has no Host, and no browser sends it.
  bool isOwnName = head.host.empty() || isLoopback(name) || equalsIgnoringCase(name, "localhost") ||
                   name == head.localAddress || (!name.empty() && contains(hosts, name));
  if (!takesAnyHost && !isOwnName)
    return Refusal{403, fmt::format("host '{}' is not a name of this server; start it with --allow-host NAME",
                                    head.host.substr(0, mostRepeated))};
  if (!head.origin.empty() && !isOwnOrigin(head) && fieldsFor(head).empty())
    return Refusal{403, fmt::format("web pages of {} may not send requests; start the server with --allow-origin",
                                    head.origin.substr(0, mostRepeated))};
  bool isOpen = token.empty() || isPreflight(head) || std::ranges::count(openPaths, head.path) > 0;
  if (!isOpen && !isEqual(head.authorization, "Bearer " + token))
    return Refusal{401, "the token is missing or wrong; send it as `Authorization: Bearer TOKEN`"};
  return std::nullopt;
}

Fields Access::fieldsFor(const Head &head) const {
  bool takesAll = std::ranges::count(origins, "*") > 0;
  if (head.origin.empty() || !(takesAll || std::ranges::count(origins, head.origin) > 0))
    return {};
  Fields fields = {{"Access-Control-Allow-Origin", takesAll ? "*" : head.origin}, {"Vary", "Origin"}};
  if (isPreflight(head)) {
    bool asks = !head.requestedFields.empty();
    fields.insert(fields.end(),
                  {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                   {"Access-Control-Allow-Headers", asks ? head.requestedFields : "Authorization, Content-Type"},
                   {"Access-Control-Max-Age", "600"}});
  }
  return fields;
}

bool isLoopback(const std::string &host) {
  bool isFour = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || isFour;
}

bool isPreflight(const Head &head) { return head.method == "OPTIONS" && !head.origin.empty(); }

void requireToken(const std::string &token, const std::string &host, const std::string &option,
                  const std::string &wayOut) {
  if (token.empty() && !isLoopback(host))
    throw PlanError(
        fmt::format("{} lets others in, and there is no token; {}, or listen on 127.0.0.1", option, wayOut));
}

std::string readTokenFile(const std::string &file, const std::string &option) {
  std::ifstream stream(file);
  std::string token;
  if (!std::getline(stream, token) || token.empty())
    throw PlanError(fmt::format("{}: {} holds no token in its first line", option, file));
  return token;
}

} // namespace espalier::rt::http
