// Sends any bytes to an HTTP server by a socket, in pieces whose size is the first byte, and closes the sending half.
// The server must answer with whole responses, nothing after a refusal, and close the connection in time. Seeds:
// test/fuzz/seeds/http.
#include "runtime/http/server.h"

#include <arpa/inet.h>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace espalier::rt::http;

/// Beyond, the server hangs: its own deadlines are longer, so that an input cannot end by one.
constexpr int mostSeconds = 5;
constexpr size_t mostBody = 4096;

void require(bool isTrue) {
  if (!isTrue)
    std::abort();
}

/// A server of this process. GET /a answers a constant, POST /a its body.
class FuzzedServer final : public Handler {
public:
  FuzzedServer()
      : server("127.0.0.1", 0, "", {.token = "t", .openPaths = {"/a"}, .origins = {"https://page.test"}},
               {.headBytes = 2048, .bodyBytes = mostBody, .linger = Limits::Seconds(0.5)}, *this),
        thread([this] { server.run([this] { return isEnding.load(); }); }) {}
  ~FuzzedServer() override {
    isEnding = true;
    thread.join();
  }

  int port() const { return std::stoi(server.url().substr(server.url().rfind(':') + 1)); }

  std::optional<Refusal> refuse(const Head &head) override {
    bool isKnown = head.path == "/a" && (head.method == "GET" || head.method == "POST");
    return isKnown ? std::nullopt : std::optional(Refusal{404, "nothing here"});
  }
  Response responseOf(const Refusal &refusal) override { return {refusal.status, "text/plain", refusal.message}; }
  void answer(Request request, std::shared_ptr<const Reply> reply) override {
    require(request.body.size() <= mostBody && (request.head.method == "POST" || request.body.empty()));
    reply->send({200, "text/plain", request.head.method == "POST" ? request.body : "constant"});
  }

private:
  std::atomic<bool> isEnding = false;
  Server server;
  std::thread thread;
};

/// Sends the bytes and returns all that the server says. Sends and receives in turn, so that no side blocks the other.
std::string exchange(int port, std::string_view bytes, size_t piece) {
  int socket = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  timeval most{mostSeconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(connect(socket, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
  std::string said;
  char buffer[4096];
  while (!bytes.empty()) {
    std::string_view next = bytes.substr(0, piece);
    if (send(socket, next.data(), next.size(), MSG_NOSIGNAL) != std::ssize(next))
      break; // closed by the server
    bytes.remove_prefix(next.size());
    while (ssize_t size = recv(socket, buffer, sizeof buffer, MSG_DONTWAIT)) {
      if (size < 0)
        break;
      said.append(buffer, static_cast<size_t>(size));
    }
  }
  shutdown(socket, SHUT_WR);
  for (ssize_t size; (size = recv(socket, buffer, sizeof buffer, 0)) != 0;) {
    require(size > 0 || errno == ECONNRESET); // no time-out
    if (size < 0) { // the input is longer than what the server drops, and the answer may be lost
      close(socket);
      return "";
    }
    said.append(buffer, static_cast<size_t>(size));
  }
  close(socket);
  return said;
}

/// Removes a whole response from the text and returns its status. `isHead`: the request may have been a HEAD.
int takeResponse(std::string_view &text, bool mayBeHead) {
  constexpr std::string_view version = "HTTP/1.1 ", length = "\r\nContent-Length: ";
  require(text.starts_with(version) && text.size() > version.size() + 3);
  int status = 0;
  std::from_chars(text.data() + version.size(), text.data() + version.size() + 3, status);
  size_t end = text.find("\r\n\r\n");
  require(end != std::string_view::npos);
  std::string_view head = text.substr(0, end);
  text.remove_prefix(end + 4);
  size_t at = head.find(length);
  size_t size = 0;
  if (at != std::string_view::npos)
    std::from_chars(head.data() + at + length.size(), head.data() + head.size(), size);
  require(at != std::string_view::npos || status == 204 || status == 100);
  if (mayBeHead && (text.empty() || text.starts_with(version)))
    return status;
  require(text.size() >= size);
  text.remove_prefix(size);
  return status;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FuzzedServer server;
  if (size == 0)
    return 0;
  std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
  auto begin = std::chrono::steady_clock::now();
  std::string said = exchange(server.port(), bytes, data[0] == 0 ? size : data[0]);
  require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(mostSeconds));
  bool mayBeHead = bytes.find("HEAD ") != std::string_view::npos;
  bool isRefused = false;
  // A body that a client sends may look like a response, so only requests without one tell where responses end.
  for (std::string_view rest = said; !rest.empty();) {
    require(!isRefused);
    isRefused = takeResponse(rest, mayBeHead) >= 400;
  }
  return 0;
}
