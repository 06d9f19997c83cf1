#include "runtime/http/server.h"

#include "runtime/http/connection.h"
#include "runtime/status.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <new>
#include <sys/resource.h>
#include <thread>

namespace espalier::rt::http {

namespace {

using Error = boost::system::error_code;

/// Connections that the system accepts for the server before it looks; those beyond wait a second for the next try.
constexpr int backlog = 1024;
/// Connections beyond the bound that are told so. Those beyond these are closed without a word.
constexpr size_t mostRefused = 64;
/// Files that the process opens beside connections.
constexpr size_t otherFiles = 256;
/// The time between two looks at deadlines.
constexpr auto period = std::chrono::milliseconds(50);

/// Raises the process's bound of open files, if it may. Returns how many connections fit.
size_t connectionsWithin(size_t wanted) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  rlim_t needed = wanted + mostRefused + otherFiles;
  if (files.rlim_cur < needed) {
    rlimit raised{std::min(needed, files.rlim_max), files.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
      files = raised;
  }
  return files.rlim_cur >= needed ? wanted : std::max<size_t>(files.rlim_cur / 2, 1);
}

/// Lets the system notice that the machine of a client has gone, after about a minute.
void watchPeer(Tcp::socket &socket) {
  Error ignored;
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  socket.set_option(Tcp::no_delay(true), ignored);
  for (auto [option, value] : {std::pair(TCP_KEEPIDLE, 30), {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}})
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
}

/// Listens at the first address of the host that can be bound. Without SO_REUSEPORT, which would let two servers share
/// a port. Returns the system's reason if that fails, or an empty text.
std::string listen(ServerState &state, const std::string &host, int port) {
  Error error;
  Tcp::resolver resolver(state.loop);
  for (const auto &entry : resolver.resolve(host, std::to_string(port), Tcp::resolver::passive, error)) {
    Tcp::acceptor acceptor(state.loop);
    acceptor.open(entry.endpoint().protocol(), error);
    if (!error)
      acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error)
      acceptor.bind(entry.endpoint(), error);
    if (!error)
      acceptor.listen(backlog, error);
    if (error)
      continue;
    state.acceptor = std::move(acceptor);
    return "";
  }
  return error ? error.message() : "the host has no address";
}

/// Makes room by closing the connection that has waited longest for a request. Returns false if all are in work.
bool makeRoom(ServerState &state) {
  if (state.connections.size() < state.limits.connections)
    return true;
  for (const std::shared_ptr<Connection> &one : state.connections)
    if (!one->isAnswering()) {
      std::shared_ptr<Connection>(one)->close();
      return true;
    }
  return false;
}

void admit(ServerState &state, Tcp::socket socket) {
  watchPeer(socket);
  bool hasRoom = makeRoom(state);
  if (!hasRoom && state.connections.size() >= state.limits.connections + mostRefused)
    return; // the destructor closes the socket
  auto connection = std::make_shared<Connection>(state, std::move(socket));
  state.connections.push_back(connection);
  if (hasRoom)
    connection->start();
  else
    connection->refuse({503, "too many connections; try again later"});
}

void accept(ServerState &state) {
  state.isAccepting = true;
  state.acceptor.async_accept([&state](Error error, Tcp::socket socket) {
    state.isAccepting = false;
    if (error) // such as no file left: the timer tries again
      return;
    admit(state, std::move(socket));
    accept(state);
  });
}

} // namespace

Server::Server(const std::string &host, int port, const std::string &advice, Access access, const Limits &limits,
               Handler &handler) {
  access.hosts.push_back(host);
  state = std::make_unique<ServerState>(std::move(access), limits, handler);
  if (std::string fault = listen(*state, host, port); !fault.empty())
    throw PlanError(fmt::format("cannot listen on {} port {}: {}; {}", host, port, fault, advice));
  state->limits.connections = connectionsWithin(limits.connections);
  bool isV6 = host.find(':') != std::string::npos;
  theUrl =
      fmt::format("http://{}{}{}:{}", isV6 ? "[" : "", host, isV6 ? "]" : "", state->acceptor.local_endpoint().port());
}

Server::~Server() {
  for (const auto &one : std::list(state->connections))
    one->close();
}

void Server::post(std::function<void()> work) { boost::asio::post(state->loop, std::move(work)); }

void Server::run(const std::function<bool()> &shouldStop) {
  boost::asio::steady_timer timer(state->loop);
  Clock::time_point end = Clock::time_point::max();
  std::function<void(Error)> look = [&](Error error) {
    if (error) // another wait has replaced this one
      return;
    Clock::time_point now = Clock::now();
    if (!state->isStopping && shouldStop()) {
      state->isStopping = true;
      end = now + std::chrono::duration_cast<Clock::duration>(state->limits.stop);
      state->acceptor.close();
    }
    for (const auto &one : std::list(state->connections)) {
      one->check(now);
      if (now > end || (state->isStopping && one->isReading()))
        one->close();
    }
    if (state->isStopping && state->connections.empty())
      return state->loop.stop();
    if (!state->isAccepting && !state->isStopping)
      accept(*state);
    timer.expires_after(period);
    timer.async_wait(look);
  };
  for (;;) {
    try {
      look({});
      state->loop.run();
      return;
    } catch (const std::bad_alloc &) { // the process may have memory again, or ends with a report of its own
      std::this_thread::sleep_for(period);
    }
  }
}

} // namespace espalier::rt::http
