// A client that sends bytes as they are given, and a server of an own thread.
#pragma once

#include "runtime/http/server.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace espalier::rt::http {

/// A connection to a port of this machine.
class RawClient {
public:
  /// A small receive buffer lets the server notice early that the client does not read.
  explicit RawClient(int port, int receiveBytes = 0) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receiveBytes > 0)
      setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receiveBytes, sizeof receiveBytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr *>(&address), sizeof address), 0) << strerror(errno);
  }
  RawClient(RawClient &&other) noexcept : socket(std::exchange(other.socket, -1)) {}
  ~RawClient() { close(); }

  /// Sends all bytes. Returns false if the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0)
        return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  /// Receives until the server closes the connection.
  std::string receiveAll() {
    std::string all;
    while (receive(all))
      ;
    return all;
  }
  /// Receives until the bytes contain `text`, or the server closes the connection.
  std::string receiveUntil(const std::string &text, size_t times = 1) {
    std::string all;
    while (countOf(all, text) < times && receive(all))
      ;
    return all;
  }
  /// Returns whether the server closes the connection within 20 s. Drops what it receives.
  bool isClosed() {
    receiveAll();
    return !hasTimedOut;
  }

  void finishSending() { shutdown(socket, SHUT_WR); }
  void close() {
    if (socket >= 0)
      ::close(std::exchange(socket, -1));
  }

  static size_t countOf(const std::string &all, const std::string &text) {
    size_t count = 0;
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + text.size()))
      ++count;
    return count;
  }

private:
  bool receive(std::string &all) {
    pollfd one{socket, POLLIN, 0};
    if (::poll(&one, 1, 20000) <= 0) {
      hasTimedOut = true;
      return false;
    }
    char bytes[4096];
    ssize_t size = recv(socket, bytes, sizeof bytes, 0);
    if (size > 0)
      all.append(bytes, static_cast<size_t>(size));
    return size > 0;
  }

  int socket;
  bool hasTimedOut = false;
};

/// A server on a free port, until it is destroyed. GET /small answers "small"; POST /echo its body; POST /later nothing
/// until the test does; GET /counted counts.
class TestServer : public Handler {
public:
  explicit TestServer(Access access = {}, Limits limits = {})
      : server("127.0.0.1", 0, "", std::move(access), limits, *this),
        thread([this] { server.run([this] { return isEnding.load(); }); }) {}
  ~TestServer() override { stop(); }

  int port() const { return std::stoi(server.url().substr(server.url().rfind(':') + 1)); }
  void stop() {
    isEnding = true;
    if (thread.joinable())
      thread.join();
  }
  /// Returns the reply of the next POST /later.
  std::shared_ptr<const Reply> later() {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (std::lock_guard lock(mutex); !waiting.empty()) {
        std::shared_ptr<const Reply> reply = waiting.front();
        waiting.erase(waiting.begin());
        return reply;
      }
  }

  std::optional<Refusal> refuse(const Head &head) override {
    if (head.path == "/counted")
      ++counted;
    bool isKnown = head.method == "POST" ? head.path == "/echo" || head.path == "/later"
                                         : head.method == "GET" && (head.path == "/small" || head.path == "/counted");
    return isKnown ? std::nullopt : std::optional(Refusal{404, "nothing here"});
  }
  Response responseOf(const Refusal &refusal) override { return {refusal.status, "text/plain", refusal.message}; }
  void count(const std::string &, int status) override {
    std::lock_guard lock(mutex);
    statuses.push_back(status);
  }
  void answer(Request request, std::shared_ptr<const Reply> reply) override {
    if (request.head.path == "/later") {
      std::lock_guard lock(mutex);
      waiting.push_back(std::move(reply));
      return;
    }
    reply->send({200, "text/plain", request.head.path == "/echo" ? request.body : "small"});
  }

  std::atomic<int> counted = 0;
  std::mutex mutex; ///< of the members below
  std::vector<int> statuses;
  std::vector<std::shared_ptr<const Reply>> waiting;

private:
  std::atomic<bool> isEnding = false;
  Server server;
  std::thread thread;
};

inline std::string get(const std::string &path, const std::string &fields = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
}

inline std::string post(const std::string &path, const std::string &body, const std::string &fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// Returns the head of a POST with a chunked body.
inline std::string postChunked(const std::string &path, const std::string &fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + fields +
         "Transfer-Encoding: chunked\r\n\r\n";
}

} // namespace espalier::rt::http
