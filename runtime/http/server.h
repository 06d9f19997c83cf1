// An HTTP/1.1 server with bounds: one thread owns all connections and never blocks. It reads heads and bodies with
// Beast's parser, after admission.h has checked the head. Deadlines and sizes limit what each client can take.
#pragma once

#include "runtime/http/access.h"
#include "runtime/http/message.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace espalier::rt::http {

/// Bounds of a server. Memory is below twice `bodies`, because strings grow by doubling, plus for each connection three
/// times `headBytes` for its buffer and its parsed head, plus for each response that is written its own size or, of a
/// stream, twice `unsentBytes`.
struct Limits {
  using Seconds = std::chrono::duration<double>;

  size_t headBytes = 16 << 10;
  size_t bodyBytes = 1 << 20;
  size_t bodies = 64 << 20;     ///< bytes of the bodies of all requests
  size_t connections = 2048;    ///< fewer if the process may not open so many files
  size_t unsentBytes = 1 << 20; ///< of a stream that its client does not read; beyond, the connection is closed
  Seconds idle{75};             ///< before the first byte of a request; above the 60 s of common proxies
  Seconds head{10};             ///< from the first byte of a request to the end of its head
  Seconds request{30};          ///< from the first byte of a request to the end of its body
  Seconds write{30};            ///< for a whole response, or for what a stream had to send at one time
  Seconds linger{2};            ///< for reading and dropping after a refusal, so that the client receives the refusal
  Seconds stop{20};             ///< for the responses in work when the server stops
};

class Connection;
struct ServerState;

/// The response to one request. All functions may be called by any thread, and do nothing if the client has gone.
class Reply : public std::enable_shared_from_this<Reply> {
public:
  Reply(ServerState &server, std::weak_ptr<Connection> connection)
      : server(server), connection(std::move(connection)) {}

  /// Sends a whole response.
  void send(Response response) const;
  /// Starts a response whose body follows by write(), until end().
  void begin(Response head) const;
  void write(std::string text) const;
  void end() const;
  /// Returns whether the client has closed its connection or was too slow.
  bool isGone() const { return hasGone.load(std::memory_order_relaxed); }

private:
  friend class Connection;
  void tell(std::function<void(Connection &)> work) const;

  ServerState &server;
  const std::weak_ptr<Connection> connection;
  std::atomic<bool> hasGone = false;
};

/// Answers the requests of a server. The thread of the server calls its functions, so they must not block.
class Handler {
public:
  virtual ~Handler() = default;
  /// Returns why a request is refused, before its body is read. The connection is closed after the refusal.
  virtual std::optional<Refusal> refuse(const Head &head) = 0;
  /// Answers a request by its reply, now or later. HEAD comes as GET. Bodies of other methods than POST are not read.
  virtual void answer(Request request, std::shared_ptr<const Reply> reply) = 0;
  /// Returns the response that carries a refusal.
  virtual Response responseOf(const Refusal &refusal) = 0;
  /// Counts a response. The path is empty if the head was not read.
  virtual void count(const std::string &path, int status) {}
};

/// A server. Listens when constructed and answers in run().
class Server {
public:
  /// Port 0 takes a free one. Throws PlanError if the place is taken or not of this machine; its text ends with
  /// `advice`.
  Server(const std::string &host, int port, const std::string &advice, Access access, const Limits &limits,
         Handler &handler);
  ~Server();

  /// Returns "http://127.0.0.1:8000".
  const std::string &url() const { return theUrl; }
  /// Answers until `shouldStop`, which is polled often. Then finishes the responses in work, within `Limits::stop`.
  void run(const std::function<bool()> &shouldStop);
  /// Lets the thread of the server do work. May be called by any thread.
  void post(std::function<void()> work);

private:
  std::unique_ptr<ServerState> state;
  std::string theUrl;
};

} // namespace espalier::rt::http
