// One connection of a server. Private to this folder.
#pragma once

#include "runtime/http/server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <list>
#include <memory>

namespace espalier::rt::http {

using Clock = std::chrono::steady_clock;
using Tcp = boost::asio::ip::tcp;

/// The state that the connections of a server share. Used by the thread of the server.
struct ServerState {
  ServerState(Access access, const Limits &limits, Handler &handler)
      : access(std::move(access)), limits(limits), handler(handler) {}

  std::atomic<size_t> bodies = 0; ///< bytes of all bodies
  boost::asio::io_context loop{1};
  Tcp::acceptor acceptor{loop};
  const Access access;
  Limits limits;
  Handler &handler;
  std::list<std::shared_ptr<Connection>> connections;
  bool isAccepting = false, isStopping = false;
};

/// A body that takes memory when its bytes come, not when its length is announced.
struct GrowingBody {
  using value_type = std::string;

  class reader {
  public:
    template <bool isRequest, class Fields>
    reader(boost::beast::http::header<isRequest, Fields> &, value_type &body) : body(body) {}
    void init(const boost::optional<uint64_t> &, boost::system::error_code &error) { error = {}; }
    template <class Buffers> size_t put(const Buffers &buffers, boost::system::error_code &error) {
      error = {};
      size_t size = body.size();
      for (boost::asio::const_buffer buffer : boost::beast::buffers_range(buffers))
        body.append(static_cast<const char *>(buffer.data()), buffer.size());
      return body.size() - size;
    }
    void finish(boost::system::error_code &error) { error = {}; }

  private:
    value_type &body;
  };
};

/// A connection: reads a request, waits for its reply, writes it, and reads the next request if the client agrees.
class Connection : public std::enable_shared_from_this<Connection> {
public:
  Connection(ServerState &server, Tcp::socket socket);

  /// Reads requests.
  void start();
  /// Sends a refusal and closes the connection.
  void refuse(const Refusal &refusal);
  /// Ends what has passed its deadline, and notices that the client of a request in work has gone.
  void check(Clock::time_point now);
  /// Closes the socket and leaves the server's list.
  void close();
  /// Whether no whole request has come since the last response.
  bool isReading() const { return state <= Body; }
  /// Whether a request is in work.
  bool isAnswering() const { return state == Answering; }
  /// Whether the request of `reply` is in work.
  bool answers(const Reply *one) const { return state == Answering && reply.get() == one; }

  // The functions of Reply.
  void send(const Response &response);
  void begin(const Response &head);
  void write(const std::string &text);
  void end();

private:
  enum State { Idle, Head, Body, Answering, Draining, Closed };
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  void awaitRequest();
  void read();
  void take();
  void takeHead(std::string_view bytes);
  void parseHead(size_t size);
  void admit();
  void takeBody();
  void dispatch();
  void put(std::string text);
  void flush();
  void finish();
  void drain();
  void writeHead(const Response &response, const std::string &framing);
  void expireAfter(Limits::Seconds seconds) { deadline = Clock::now() + toClock(seconds); }
  static Clock::duration toClock(Limits::Seconds seconds) {
    return std::chrono::duration_cast<Clock::duration>(seconds);
  }

  ServerState &server;
  Tcp::socket socket;
  boost::beast::flat_buffer buffer; ///< bytes that are read and not used: of the request, and of the next ones
  State state = Idle;
  Clock::time_point deadline = Clock::time_point::max(), begun;

  // The request.
  std::optional<Parser> parser;
  http::Head head;
  BodyShare share;
  size_t scanned = 0; ///< bytes of the buffer that do not end a head
  bool keepsAlive = false, isHead = false, isOld = false;
  std::shared_ptr<Reply> reply; ///< null unless a request is in work

  // The response.
  std::string pending, sending; ///< bytes that wait, and that are written
  bool hasRead = false;         ///< a read is pending
  bool isWriting = false, isLast = false, isChunked = false, hasBegun = false;
  size_t drained = 0;
};

} // namespace espalier::rt::http
