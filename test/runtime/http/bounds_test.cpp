// What a client can take: bytes, time, connections.
#include "test/runtime/http/raw_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace espalier::rt::http {
namespace {

using testing::EndsWith;
using testing::StartsWith;
using Seconds = Limits::Seconds;

std::string chunk(size_t size) { return fmt::format("{:x}\r\n{}\r\n", size, std::string(size, 'x')); }

TEST(HttpBounds, BodiesOfAnyFraming) {
  TestServer server({}, {.bodyBytes = 1000});
  for (const std::string &request :
       {post("/echo", std::string(1001, 'x')), postChunked("/echo") + chunk(600) + chunk(401) + "0\r\n\r\n",
        postChunked("/echo") + "3e9\r\n", postChunked("/echo") + "ffffffff\r\n"}) {
    RawClient client(server.port());
    client.send(request);
    EXPECT_THAT(client.receiveAll(), StartsWith("HTTP/1.1 413 ")) << request.substr(0, 200);
  }
  for (const std::string &request :
       {post("/echo", std::string(1000, 'x')), postChunked("/echo") + chunk(600) + chunk(400) + "0\r\n\r\n"}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.send(request));
    EXPECT_THAT(client.receiveUntil(std::string(1000, 'x')), StartsWith("HTTP/1.1 200 "));
  }
}

// The client sends more than any socket holds, and receives the refusal.
TEST(HttpBounds, ARefusedClientReceivesTheRefusal) {
  TestServer server;
  for (const std::string &head : {post("/nothing", ""), postChunked("/nothing")}) {
    RawClient client(server.port());
    client.send(head);
    for (int i = 0; i < 30; ++i)
      client.send(std::string(100000, 'x'));
    EXPECT_THAT(client.receiveAll(), StartsWith("HTTP/1.1 404 "));
  }
  RawClient endless(server.port());
  ASSERT_TRUE(endless.send(post("/nothing", "")));
  auto begin = std::chrono::steady_clock::now();
  while (endless.send(std::string(100000, 'x')) && std::chrono::steady_clock::now() - begin < Seconds(20))
    ;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Seconds(20)) << "it is not read for ever";
}

TEST(HttpBounds, HeadsChunkHeadsAndTrailers) {
  TestServer server({}, {.headBytes = 2048});
  std::string longLine(4000, 'x');
  for (const auto &[request, status] : {std::pair("GET /" + longLine, 431),
                                        {"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + longLine, 431},
                                        {get("/small", "X: " + longLine + "\r\n"), 431},
                                        {postChunked("/echo") + "1;" + longLine, 400},
                                        {postChunked("/echo") + std::string(4000, '0'), 400},
                                        {postChunked("/echo") + "0\r\nTrailer: " + longLine, 400}}) {
    RawClient client(server.port());
    client.send(request);
    EXPECT_THAT(client.receiveAll(), StartsWith(fmt::format("HTTP/1.1 {} ", status))) << request.substr(0, 200);
  }
  RawClient client(server.port());
  ASSERT_TRUE(client.send(postChunked("/echo", "Connection: close\r\n") + "1\r\nx\r\n0\r\nTrailer: y\r\n\r\n"));
  EXPECT_THAT(client.receiveAll(), EndsWith("\r\n\r\nx"));
}

TEST(HttpBounds, AllBodiesTogether) {
  TestServer server({}, {.bodyBytes = 1000, .bodies = 2100});
  std::vector<RawClient> clients;
  std::string whole = post("/echo", std::string(1000, 'x')), rest = std::string(400, 'x'),
              part = whole.substr(0, whole.size() - rest.size());
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(part));
  }
  RawClient other(server.port());
  for (int i = 0; i < 1000; ++i) { // until the server has read the other two
    RawClient third(server.port());
    ASSERT_TRUE(third.send(whole));
    if (third.receiveUntil("\r\n\r\n").starts_with("HTTP/1.1 503 "))
      break;
    ASSERT_LT(i, 999);
  }
  ASSERT_TRUE(other.send(get("/small")));
  EXPECT_THAT(other.receiveUntil("small"), StartsWith("HTTP/1.1 200 "));
  for (RawClient &client : clients) {
    ASSERT_TRUE(client.send(rest));
    EXPECT_THAT(client.receiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  }
  RawClient third(server.port());
  ASSERT_TRUE(third.send(whole));
  EXPECT_THAT(third.receiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 ")) << "the memory is free again";
}

TEST(HttpBounds, DeadlinesOfIdleAndSlowClients) {
  TestServer server({}, {.idle = Seconds(0.3), .head = Seconds(0.3), .request = Seconds(0.5), .linger = Seconds(0.1)});
  RawClient idle(server.port()), kept(server.port()), slowHead(server.port()), slowBody(server.port());
  ASSERT_TRUE(kept.send(get("/small")));
  ASSERT_TRUE(slowHead.send("GET /small HTT"));
  std::string request = post("/echo", "long body");
  ASSERT_TRUE(slowBody.send(request.substr(0, request.size() - 4)));
  std::thread drip([&] { // a byte now and then does not extend the deadline
    for (int i = 0; i < 400 && slowHead.send("P"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_EQ(idle.receiveAll(), "");
  EXPECT_EQ(RawClient::countOf(kept.receiveAll(), "HTTP/1.1 "), 1U);
  EXPECT_THAT(slowBody.receiveAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(slowHead.receiveAll(), StartsWith("HTTP/1.1 408 "));
  drip.join();
}

TEST(HttpBounds, AStreamThatIsNotRead) {
  TestServer server({}, {.unsentBytes = 100000});
  RawClient client(server.port(), /*receiveBytes=*/4096);
  ASSERT_TRUE(client.send(post("/later", "{}")));
  std::shared_ptr<const Reply> reply = server.later();
  reply->begin({200, "text/event-stream"});
  int sent = 0;
  for (; sent < 20000 && !reply->isGone(); ++sent) {
    reply->write(std::string(10000, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(reply->isGone()) << sent;
}

TEST(HttpBounds, AResponseThatIsNotRead) {
  TestServer server({}, {.write = Seconds(0.3)});
  RawClient client(server.port(), /*receiveBytes=*/4096);
  ASSERT_TRUE(client.send(post("/later", "{}")));
  std::shared_ptr<const Reply> reply = server.later();
  reply->send({200, "text/plain", std::string(30 << 20, 'x')});
  for (int i = 0; i < 10000 && !reply->isGone(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(reply->isGone());
}

TEST(HttpBounds, ConnectionsBeyondTheBoundReplaceIdleOnes) {
  TestServer server({}, {.connections = 20});
  std::vector<RawClient> idle;
  for (int i = 0; i < 100; ++i) {
    idle.emplace_back(server.port());
    RawClient client(server.port());
    ASSERT_TRUE(client.send(get("/small")));
    EXPECT_THAT(client.receiveUntil("small"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_TRUE(idle.front().isClosed());
}

TEST(HttpBounds, ConnectionsBeyondTheBoundAreRefusedIfAllWork) {
  TestServer server({}, {.connections = 3});
  std::vector<RawClient> working;
  std::vector<std::shared_ptr<const Reply>> replies;
  for (int i = 0; i < 3; ++i) {
    working.emplace_back(server.port());
    ASSERT_TRUE(working.back().send(post("/later", "{}")));
    replies.push_back(server.later());
  }
  RawClient refused(server.port());
  std::string said = refused.receiveAll();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(said, testing::HasSubstr("Retry-After: 1\r\n"));
  for (size_t i = 0; i < 3; ++i) {
    replies[i]->send({200, "text/plain", "done"});
    EXPECT_THAT(working[i].receiveUntil("done"), StartsWith("HTTP/1.1 200 "));
  }
}

} // namespace
} // namespace espalier::rt::http
