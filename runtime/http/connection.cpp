#include "runtime/http/connection.h"

#include "runtime/http/admission.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http/status.hpp>
#include <fmt/format.h>
#include <poll.h>

namespace espalier::rt::http {

namespace {

namespace beast = boost::beast;
using Error = boost::system::error_code;

constexpr std::string_view headEnd = "\r\n\r\n";

/// Returns whether the other side has closed the connection or its sending half.
bool hasHungUp(int socket) {
  pollfd one{socket, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/// Returns the path of a target, without its query and its final slash.
std::string pathOf(std::string_view target) {
  std::string_view path = target.substr(0, target.find('?'));
  if (path.size() > 1 && path.ends_with('/'))
    path.remove_suffix(1);
  return std::string(path);
}

std::string addressOf(const Tcp::socket &socket) {
  Error error;
  boost::asio::ip::address address = socket.local_endpoint(error).address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
  return address.to_string();
}

/// Refuses chunk extensions, which nobody uses and proxies read differently.
void refuseExtensions(uint64_t, beast::string_view extensions, Error &error) {
  if (!extensions.empty())
    error = beast::http::error::bad_chunk_extension;
}

/// Returns whether the type is application/json, with or without parameters.
bool isJson(std::string_view type) {
  std::string_view name = type.substr(0, type.find(';'));
  return equalsIgnoringCase(name.substr(0, name.find_last_not_of(" \t") + 1), "application/json");
}

} // namespace

Connection::Connection(ServerState &server, Tcp::socket given)
    : server(server), socket(std::move(given)), buffer(server.limits.headBytes) {
  Error ignored;
  socket.non_blocking(true, ignored);
}

void Connection::start() {
  head.localAddress = addressOf(socket);
  awaitRequest();
}

void Connection::awaitRequest() {
  std::string localAddress = std::move(head.localAddress);
  head = {};
  head.localAddress = std::move(localAddress);
  state = Idle;
  scanned = 0;
  keepsAlive = isHead = isOld = hasBegun = isLast = isChunked = false;
  reply = nullptr;
  share = BodyShare(&server.bodies);
  parser.emplace();
  parser->header_limit(static_cast<uint32_t>(server.limits.headBytes) + 1);
  parser->body_limit(server.limits.bodyBytes);
  parser->eager(false);
  expireAfter(server.limits.idle);
  buffer.size() > 0 ? take() : read();
}

/// Reads more bytes of the request.
void Connection::read() {
  size_t room = server.limits.headBytes - buffer.size();
  if (room == 0)
    return refuse({400, "a chunk has a head that is too long"});
  hasRead = true;
  // An idle connection has a small buffer.
  auto space = buffer.prepare(state == Body ? room : beast::read_size(buffer, room));
  socket.async_read_some(space, [self = shared_from_this()](Error error, size_t bytes) {
    self->hasRead = false;
    if (self->state == Draining)
      return self->drain();
    if (!self->isReading())
      return;
    if (error)
      return self->close();
    self->buffer.commit(bytes);
    self->take();
  });
}

/// Uses the bytes of the buffer.
void Connection::take() {
  if (state == Body)
    return takeBody();
  std::string_view bytes(static_cast<const char *>(buffer.data().data()), buffer.size());
  if (state == Idle) {
    state = Head;
    begun = Clock::now();
    deadline = begun + toClock(server.limits.head);
  }
  takeHead(bytes);
}

void Connection::takeHead(std::string_view bytes) {
  size_t end = bytes.find(headEnd, scanned);
  bool isWhole = end != std::string_view::npos;
  if (hasBadLineEnd(bytes.substr(0, isWhole ? end : bytes.size()), scanned))
    return refuse({400, "a line of the head does not end by CR LF"});
  if (isWhole)
    return parseHead(end + headEnd.size());
  if (bytes.size() >= server.limits.headBytes)
    return refuse({431, fmt::format("the head is longer than {} bytes", server.limits.headBytes)});
  scanned = bytes.size() - std::min(bytes.size(), headEnd.size() - 1);
  read();
}

void Connection::parseHead(size_t size) {
  std::string_view bytes(static_cast<const char *>(buffer.data().data()), size);
  std::optional<Refusal> refusal = whyNotAdmitted(bytes);
  if (refusal)
    return refuse(*refusal);
  Error error;
  size_t used = parser->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  while (!error && !parser->is_header_done())
    used += parser->put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), error);
  using Field = beast::http::field;
  const auto &message = parser->get();
  auto valueOf = [&](Field field) { return std::string(message[field]); };
  head.method = std::string(message.method_string());
  head.path = pathOf(std::string_view(message.target().data(), message.target().size()));
  isOld = message.version() < 11;
  isHead = head.method == "HEAD";
  head.host = valueOf(Field::host);
  head.origin = valueOf(Field::origin);
  head.authorization = valueOf(Field::authorization);
  head.contentType = valueOf(Field::content_type);
  head.contentEncoding = valueOf(Field::content_encoding);
  head.requestedFields = valueOf(Field::access_control_request_headers);
  if (error == beast::http::error::body_limit)
    return refuse({413, fmt::format("the body is longer than {} bytes", server.limits.bodyBytes)});
  if (error || used != size)
    return refuse({400, fmt::format("the head is malformed: {}", error.message())});
  head.hasBody = parser->chunked() || parser->content_length().value_or(0) > 0;
  keepsAlive = !isOld && parser->keep_alive() && !server.isStopping;
  buffer.consume(size);
  if (isHead)
    head.method = "GET";
  admit();
}

/// Decides about the request by its head.
void Connection::admit() {
  if (std::optional<Refusal> refusal = server.access.whyNot(head))
    return refuse(*refusal);
  if (isPreflight(head)) {
    state = Answering;
    keepsAlive &= !head.hasBody;
    return send({.status = 204, .type = ""});
  }
  if (std::optional<Refusal> refusal = server.handler.refuse(head))
    return refuse(*refusal);
  if (head.method != "POST") {
    keepsAlive &= !head.hasBody;
    return dispatch();
  }
  if (!isJson(head.contentType))
    return refuse({415, "the body is not JSON; send it with Content-Type: application/json"});
  if (!head.contentEncoding.empty() && !equalsIgnoringCase(head.contentEncoding, "identity"))
    return refuse({415, "the body is compressed; send it without Content-Encoding"});
  state = Body;
  deadline = begun + toClock(server.limits.request);
  parser->eager(true);
  parser->on_chunk_header(refuseExtensions);
  bool expects = !isOld && parser->get()[beast::http::field::expect].size() > 0;
  if (expects && head.hasBody && buffer.size() == 0) {
    // The text is shorter than any send buffer, so a socket that does not take it belongs to no honest client.
    constexpr std::string_view go = "HTTP/1.1 100 Continue\r\n\r\n";
    if (Error error; socket.write_some(boost::asio::buffer(go.data(), go.size()), error) != go.size())
      return close();
  }
  takeBody();
}

void Connection::takeBody() {
  Error error;
  if (!parser->is_done() && buffer.size() > 0)
    buffer.consume(parser->put(buffer.data(), error));
  if (!share.growTo(parser->get().body().size(), server.limits.bodies))
    return refuse({503, "the bodies of all requests are too long; try again later"});
  if (error == beast::http::error::body_limit)
    return refuse({413, fmt::format("the body is longer than {} bytes", server.limits.bodyBytes)});
  if (error && error != beast::http::error::need_more)
    return refuse({400, fmt::format("the body is malformed: {}", error.message())});
  parser->is_done() ? dispatch() : read();
}

void Connection::dispatch() {
  state = Answering;
  deadline = Clock::time_point::max();
  reply = std::make_shared<Reply>(server, weak_from_this());
  Request request{head, std::move(parser->get().body()), std::move(share)};
  parser.reset();
  server.handler.answer(std::move(request), reply);
}

void Connection::refuse(const Refusal &refusal) {
  state = Answering;
  keepsAlive = false;
  share = BodyShare();
  parser.reset();
  send(server.handler.responseOf(refusal));
}

void Connection::writeHead(const Response &response, const std::string &framing) {
  keepsAlive &= response.status < 400 && !server.isStopping;
  beast::string_view reason = beast::http::obsolete_reason(static_cast<beast::http::status>(response.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, std::string_view(reason.data(), reason.size()));
  auto add = [&](const std::string &name, const std::string &value) { text += name + ": " + value + "\r\n"; };
  if (!response.type.empty())
    add("Content-Type", response.type);
  for (const auto &[name, value] : response.fields)
    add(name, value);
  for (const auto &[name, value] : server.access.fieldsFor(head))
    add(name, value);
  if (response.status == 401)
    add("WWW-Authenticate", "Bearer");
  if (response.status == 503)
    add("Retry-After", "1");
  server.handler.count(head.path, response.status);
  put(text + framing + (keepsAlive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n"));
}

void Connection::send(const Response &response) {
  isLast = true;
  // A response without content has no length, RFC 9110.
  writeHead(response, response.status == 204 ? "" : fmt::format("Content-Length: {}\r\n", response.body.size()));
  put(isHead ? "" : response.body);
}

void Connection::begin(const Response &response) {
  isChunked = !isOld;
  keepsAlive &= isChunked;
  hasBegun = true;
  writeHead(response, isChunked ? "Transfer-Encoding: chunked\r\n" : "");
}

void Connection::write(const std::string &text) {
  if (!hasBegun || text.empty())
    return;
  if (pending.size() + text.size() > server.limits.unsentBytes && isWriting)
    return close(); // the client does not read
  put(isChunked ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text);
}

void Connection::end() {
  isLast = true;
  put(isChunked ? "0\r\n\r\n" : "");
}

/// Queues bytes of the response.
void Connection::put(std::string text) {
  pending.empty() ? pending.swap(text) : void(pending += text);
  if (!isWriting)
    flush();
}

void Connection::flush() {
  // Bytes that were queued by the same turn of the loop are written at once.
  isWriting = true;
  expireAfter(server.limits.write);
  boost::asio::post(server.loop, [self = shared_from_this()] {
    self->sending = std::exchange(self->pending, "");
    boost::asio::async_write(self->socket, boost::asio::buffer(self->sending), [self](Error error, size_t) {
      if (self->state == Closed)
        return;
      if (error)
        return self->close();
      self->isWriting = false;
      self->deadline = Clock::time_point::max();
      self->sending.clear();
      if (!self->pending.empty())
        return self->flush();
      if (self->isLast)
        self->finish();
    });
  });
}

/// Continues after a whole response.
void Connection::finish() {
  reply = nullptr;
  sending.shrink_to_fit();
  if (keepsAlive)
    return awaitRequest();
  state = Draining;
  expireAfter(server.limits.linger);
  buffer.consume(buffer.size());
  Error ignored;
  socket.shutdown(Tcp::socket::shutdown_send, ignored);
  drain();
}

/// Reads and drops what the client still sends. A close with unread bytes would reset the connection, and the client
/// would lose the response.
void Connection::drain() {
  if (hasRead)
    return;
  socket.async_read_some(buffer.prepare(server.limits.headBytes),
                         [self = shared_from_this()](Error error, size_t bytes) {
                           self->drained += bytes;
                           if (self->state == Closed)
                             return;
                           if (error || self->drained > 4 * self->server.limits.bodyBytes)
                             return self->close();
                           self->drain();
                         });
}

void Connection::check(Clock::time_point now) {
  bool isLate = now > deadline;
  if (isLate && (state == Head || state == Body))
    return refuse({408, "the request has not come in time"});
  if (isLate || (state == Answering && !isLast && hasHungUp(socket.native_handle())))
    close();
}

void Connection::close() {
  if (state == Closed)
    return;
  state = Closed;
  if (reply)
    reply->hasGone = true;
  Error ignored;
  socket.close(ignored);
  share = BodyShare();
  server.connections.remove(shared_from_this());
}

void Reply::tell(std::function<void(Connection &)> work) const {
  boost::asio::dispatch(server.loop, [connection = connection, work = std::move(work), self = shared_from_this()] {
    std::shared_ptr<Connection> to = connection.lock();
    if (to && to->answers(self.get()))
      work(*to);
  });
}

void Reply::send(Response response) const {
  tell([response = std::move(response)](Connection &to) { to.send(response); });
}

void Reply::begin(Response head) const {
  tell([head = std::move(head)](Connection &to) { to.begin(head); });
}

void Reply::write(std::string text) const {
  tell([text = std::move(text)](Connection &to) { to.write(text); });
}

void Reply::end() const {
  tell([](Connection &to) { to.end(); });
}

} // namespace espalier::rt::http
