// Requests and responses over sockets: keep-alive, pipelines, refusals, streams.
#include "test/runtime/http/raw_client.h"

#include <gmock/gmock.h>

namespace espalier::rt::http {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(HttpServer, AnswersSeveralRequestsOfAConnection) {
  TestServer server;
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post("/echo", "body " + std::to_string(i))));
    std::string said = client.receiveUntil("body " + std::to_string(i));
    EXPECT_THAT(said, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(said, HasSubstr("Connection: keep-alive\r\n"));
  }
  ASSERT_TRUE(client.send(get("/small", "Connection: close\r\n")));
  EXPECT_THAT(client.receiveAll(), EndsWith("Connection: close\r\n\r\nsmall"));
}

TEST(HttpServer, AnswersAPipelineInOrder) {
  TestServer server;
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 200; ++i)
    all += i % 2 ? get("/small") : post("/echo", "body " + std::to_string(i));
  std::thread sender([&] { EXPECT_TRUE(client.send(all + get("/small", "Connection: close\r\n"))); });
  std::string said = client.receiveAll();
  sender.join();
  EXPECT_EQ(RawClient::countOf(said, "HTTP/1.1 200 OK\r\n"), 201U);
  EXPECT_LT(said.find("body 100"), said.find("body 102"));
}

TEST(HttpServer, ReadsRequestsByteByByte) {
  TestServer server;
  RawClient client(server.port());
  std::string text = postChunked("/echo", "Connection: close\r\n") + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
  for (char one : text)
    ASSERT_TRUE(client.send(std::string_view(&one, 1)));
  EXPECT_THAT(client.receiveAll(), EndsWith("\r\n\r\nabcd"));
}

TEST(HttpServer, AnswersHead) {
  TestServer server;
  RawClient client(server.port());
  ASSERT_TRUE(client.send("HEAD /small HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/small", "Connection: close\r\n")));
  std::string said = client.receiveAll();
  EXPECT_EQ(RawClient::countOf(said, "Content-Length: 5\r\n"), 2U);
  EXPECT_EQ(RawClient::countOf(said, "small"), 1U);
}

TEST(HttpServer, AnswersOldClientsAndCloses) {
  TestServer server;
  RawClient client(server.port());
  ASSERT_TRUE(client.send("GET /small HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_THAT(client.receiveAll(), EndsWith("Connection: close\r\n\r\nsmall"));
}

TEST(HttpServer, SaysThatTheBodyMayCome) {
  TestServer server;
  RawClient client(server.port());
  std::string request = post("/echo", "body", "Expect: 100-continue\r\n");
  ASSERT_TRUE(client.send(request.substr(0, request.size() - 4)));
  EXPECT_EQ(client.receiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.send("body"));
  EXPECT_THAT(client.receiveUntil("\r\n\r\nbody"), StartsWith("HTTP/1.1 200 OK\r\n"));
  ASSERT_TRUE(client.send(request)); // the body comes without waiting
  EXPECT_THAT(client.receiveUntil("\r\n\r\nbody"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

/// A request whose body is not read as a request.
struct Smuggled {
  std::string request;
  int status;
};

// Each text ends with a whole request that must not be answered.
TEST(HttpServer, NeverReadsABodyAsARequest) {
  std::string inner = get("/counted"), length = "Content-Length: " + std::to_string(inner.size()) + "\r\n";
  std::string json = "Content-Type: application/json\r\n", chunked = "Transfer-Encoding: chunked\r\n";
  auto request = [&](const std::string &line, const std::string &fields) {
    return line + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n" + inner;
  };
  std::vector<Smuggled> all = {
      {request("POST /nothing", json + length), 404},
      {request("GET /small", length), 200},
      {request("GET /small", chunked), 200},
      {request("GET /nothing", length), 404},
      {request("HEAD /small", length), 200},
      {request("DELETE /echo", length), 404},
      {request("OPTIONS /echo", length), 404},
      {request("OPTIONS /echo", "Origin: https://page.test\r\n" + length), 204},
      {request("OPTIONS /echo", "Origin: https://evil.test\r\n" + length), 403},
      {request("POST /echo", json + length + chunked), 400},
      {request("POST /echo", json + chunked + length), 400},
      {request("POST /echo", json + "Content-Length: 0, 0\r\n"), 400},
      {request("POST /echo", json + "Content-Length: 0\r\nContent-Length: 0\r\n"), 400},
      {request("POST /echo", json + "Transfer-Encoding: chunked, chunked\r\n"), 400},
      {request("POST /echo", json + "Transfer-Encoding : chunked\r\n"), 400},
      {request("POST /echo", json + "X: y\r\n Transfer-Encoding: chunked\r\n"), 400},
      {request("POST /echo", json + "X: y\nTransfer-Encoding: chunked\r\n"), 400},
      {request("POST /echo", json + "Content-Length: 99999999999\r\n"), 413},
      {request("POST /echo", json + "Content-Encoding: gzip\r\n" + length), 415},
      {request("POST /echo", "Content-Type: text/plain\r\n" + length), 415},
      {request("POST /echo", length), 415},
      {request("POST /echo", json + "Expect: something\r\n" + length), 417},
      {request("POST /echo", json + "Host: evil.test\r\n" + length), 400},
      {"POST /echo HTTP/1.1\r\nHost: evil.test\r\n" + json + length + "\r\n" + inner, 403},
      {"POST /echo HTTP/1.0\r\n" + json + chunked + "\r\n" + inner, 400},
      {"POST /echo HTTP/1.0\r\n" + json + "Content-Length: 0\r\n\r\n" + inner, 200}, // HTTP/1.0 is not kept alive
      {postChunked("/echo") + "0;a=b\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "1;a\r\nx\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "1;\nx\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "1 \r\nx\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "0x1\r\nx\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "-1\r\nx\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "1\nx\n0\n\n" + inner, 400},
      {postChunked("/echo") + "1\r\nxy\r\n0\r\n\r\n" + inner, 400},
      {postChunked("/echo") + "ffffffffffffffff\r\n" + inner, 413},
      {postChunked("/echo") + "10000000000000000\r\n" + inner, 400},
      {postChunked("/echo") + "g\r\n" + inner, 400},
      {postChunked("/echo") + "\r\n" + inner, 400},
      {"\n" + inner, 400},
      {"GET / HTTP/1.1\r\n\r\n" + inner, 400},
      {"nonsense\r\n\r\n" + inner, 400}};
  TestServer server({.origins = {"https://page.test"}});
  for (const Smuggled &one : all) {
    RawClient client(server.port());
    ASSERT_TRUE(client.send(one.request));
    std::string said = client.receiveAll();
    EXPECT_THAT(said, StartsWith("HTTP/1.1 " + std::to_string(one.status) + " ")) << one.request;
    EXPECT_EQ(RawClient::countOf(said, "HTTP/1.1 "), 1U) << one.request << "\n" << said;
    EXPECT_THAT(said, HasSubstr("\r\nConnection: close\r\n")) << one.request;
  }
  EXPECT_EQ(server.counted, 0);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(inner));
  EXPECT_THAT(client.receiveUntil("small"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server.counted, 1);
}

// A refused request that is cut by the network between its head and its body.
TEST(HttpServer, NeverReadsALateBodyAsARequest) {
  TestServer server;
  for (const char *line : {"POST /nothing", "GET /small", "DELETE /small"}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.send(std::string(line) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n"));
    std::string said = client.receiveUntil("\r\n\r\n");
    client.send(get("/counted"));
    EXPECT_EQ(RawClient::countOf(said + client.receiveAll(), "HTTP/1.1 "), 1U) << line;
  }
  EXPECT_EQ(server.counted, 0);
}

TEST(HttpServer, WritesStreamsInChunks) {
  TestServer server;
  RawClient client(server.port());
  ASSERT_TRUE(client.send(post("/later", "{}")));
  std::shared_ptr<const Reply> reply = server.later();
  reply->begin({200, "text/event-stream", "", {{"Cache-Control", "no-cache"}}});
  reply->write("one");
  EXPECT_THAT(client.receiveUntil("one\r\n"), EndsWith("Connection: keep-alive\r\n\r\n3\r\none\r\n"));
  reply->write("seventeen letters");
  reply->end();
  EXPECT_EQ(client.receiveUntil("0\r\n\r\n"), "11\r\nseventeen letters\r\n0\r\n\r\n");
  ASSERT_TRUE(client.send(get("/small")));
  EXPECT_THAT(client.receiveUntil("small"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_FALSE(reply->isGone());
}

TEST(HttpServer, WritesStreamsOfOldClientsUntilTheEnd) {
  TestServer server;
  RawClient client(server.port());
  ASSERT_TRUE(client.send("POST /later HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));
  std::shared_ptr<const Reply> reply = server.later();
  reply->begin({200, "text/event-stream"});
  reply->write("one");
  reply->write("two");
  reply->end();
  std::string said = client.receiveAll();
  EXPECT_THAT(said, EndsWith("Connection: close\r\n\r\nonetwo"));
  EXPECT_THAT(said, Not(HasSubstr("chunked")));
}

TEST(HttpServer, NoticesThatAClientHasGone) {
  TestServer server;
  for (bool isStream : {false, true}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.send(post("/later", "{}") + get("/counted"))); // unread bytes do not hide the end
    std::shared_ptr<const Reply> reply = server.later();
    if (isStream) {
      reply->begin({200, "text/event-stream"});
      reply->write("one");
      client.receiveUntil("one");
    }
    EXPECT_FALSE(reply->isGone());
    client.close();
    for (int i = 0; i < 10000 && !reply->isGone(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(reply->isGone());
    reply->write("two"); // no effect
    reply->send({200, "text/plain", "late"});
  }
  EXPECT_EQ(server.counted, 0);
}

TEST(HttpServer, TellsPagesOfAllowedOrigins) {
  TestServer server({.origins = {"https://page.test"}});
  RawClient client(server.port());
  ASSERT_TRUE(client.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://page.test\r\n"
                          "Access-Control-Request-Headers: x-own\r\n\r\n" +
                          get("/small", "Origin: https://page.test\r\nConnection: close\r\n")));
  std::string said = client.receiveAll();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 204 No Content\r\n"));
  EXPECT_THAT(said, HasSubstr("Access-Control-Allow-Headers: x-own\r\n"));
  EXPECT_EQ(RawClient::countOf(said, "Access-Control-Allow-Origin: https://page.test\r\n"), 2U);
}

TEST(HttpServer, ClosesAfterARefusalOfTheHandler) {
  TestServer server;
  RawClient client(server.port());
  ASSERT_TRUE(client.send(post("/later", "{}") + get("/counted")));
  server.later()->send({400, "text/plain", "no"});
  EXPECT_THAT(client.receiveAll(), EndsWith("Connection: close\r\n\r\nno"));
  EXPECT_EQ(server.counted, 0);
}

TEST(HttpServer, FinishesTheResponsesInWork) {
  TestServer server;
  RawClient idle(server.port()), working(server.port());
  ASSERT_TRUE(working.send(post("/later", "{}")));
  std::shared_ptr<const Reply> reply = server.later();
  std::thread stopper([&] { server.stop(); });
  EXPECT_TRUE(idle.isClosed());
  reply->send({200, "text/plain", "the end"});
  EXPECT_THAT(working.receiveAll(), EndsWith("Connection: close\r\n\r\nthe end"));
  stopper.join();
}

} // namespace
} // namespace espalier::rt::http
