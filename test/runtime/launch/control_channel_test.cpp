// Tests frames, then a server and clients over loopback: members that join, are refused or are lost.
#include "runtime/launch/control_channel.h"

#include "runtime/launch/socket.h"
#include "test/sanitizer.h"

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <thread>

namespace espalier::rt::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string hex(const Digest &digest) {
  std::string text;
  for (uint8_t byte : digest)
    text += "0123456789abcdef"[byte / 16], text += "0123456789abcdef"[byte % 16];
  return text;
}

Digest hmacOf(const std::string &key, const std::string &text) {
  auto bytes = [](const std::string &s) { return std::span(reinterpret_cast<const uint8_t *>(s.data()), s.size()); };
  return hmacSha256(bytes(key), bytes(text));
}

// Test vectors 1, 2 and 6 of RFC 4231.
TEST(HmacTest, MatchesTheStandard) {
  EXPECT_EQ(hex(hmacOf(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmacOf("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmacOf(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

class FrameTest : public testing::Test {
protected:
  Digest key = joinKey("token", Digest{});
  FrameSealer sealer{key, Direction::ToServer};
  FrameOpener opener{key, Direction::ToServer};

  std::string refusal(FrameOpener &from, const std::string &bytes) {
    from.feed(bytes);
    try {
      from.next();
    } catch (const FrameError &error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(FrameTest, OpensSealedFramesByteByByte) {
  Message first{MessageKind::Failure, "rank 3"}, second{MessageKind::Heartbeat, ""};
  std::string bytes = sealer.seal(first) + sealer.seal(second);
  std::vector<Message> opened;
  for (char byte : bytes) {
    opener.feed({&byte, 1});
    while (auto message = opener.next())
      opened.push_back(*message);
  }
  EXPECT_THAT(opened, ElementsAre(first, second));
}

TEST_F(FrameTest, AnyChangedByteIsRefused) {
  std::string frame = sealer.seal({MessageKind::Failure, "rank 3"});
  for (size_t i = 0; i < frame.size(); ++i) {
    if (i >= 8 && i < 12)
      continue; // a larger length only waits for more bytes
    std::string changed = frame;
    changed[i] ^= 1;
    FrameOpener fresh(key, Direction::ToServer);
    EXPECT_NE(refusal(fresh, changed), "") << "byte " << i;
  }
}

TEST_F(FrameTest, RejectsAnotherSideKeyOrSequenceNumber) {
  std::string frame = sealer.seal({MessageKind::Stop, ""});
  FrameOpener otherSide(key, Direction::ToClient), otherKey(joinKey("other", Digest{}), Direction::ToServer);
  EXPECT_THAT(refusal(otherSide, frame), HasSubstr("another token"));
  EXPECT_THAT(refusal(otherKey, frame), HasSubstr("another token"));
  EXPECT_EQ(refusal(opener, frame), "");
  EXPECT_THAT(refusal(opener, frame), HasSubstr("sends message 0 where 1 was wanted")); // the same frame a second time
  FrameOpener http(key, Direction::ToServer);
  EXPECT_THAT(refusal(http, "GET / HTTP/1.1"), HasSubstr("another protocol"));
}

TEST_F(FrameTest, BoundsLengths) {
  std::string frame = sealer.seal({MessageKind::Stop, ""});
  frame[11] = '\x7f';
  EXPECT_THAT(refusal(opener, frame), HasSubstr("announces a message of"));
  EXPECT_THROW(sealer.seal({MessageKind::Blob, std::string(mostPayloadBytes + 1, 'x')}), FrameError);
  // Before a peer has proved that it knows the token, less is read.
  FrameSealer large(key, Direction::ToServer);
  FrameOpener unproved(key, Direction::ToServer), proved(key, Direction::ToServer);
  std::string bytes = large.seal({MessageKind::Blob, std::string(mostUnprovedBytes + 1, 'x')});
  EXPECT_THAT(refusal(unproved, bytes.substr(0, frameHeaderBytes)), HasSubstr("announces a message of"));
  proved.changeKey(key);
  EXPECT_EQ(refusal(proved, bytes), "");
}

// The first message of a server is the same for all tokens but for its nonce, so it gives nothing to guess a token by.
TEST_F(FrameTest, AStrangerLearnsNothingOfTheToken) {
  for (const char *token : {"one", "two"}) {
    ControlServer server({"127.0.0.1", 0}, token, {"hash", "1", {0}, "first"}, 2);
    Socket stranger = connectTo({"127.0.0.1", server.port()}, 1000);
    std::string bytes, error;
    for (int turn = 0; turn < 100 && bytes.empty(); ++turn) {
      server.poll(Milliseconds(20));
      stranger.read(bytes, 4096, error);
    }
    FrameOpener open(publicKey(), Direction::ToClient);
    open.feed(bytes);
    std::optional<Message> message = open.next();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->kind, MessageKind::Hello);
    EXPECT_EQ(message->payload.size(), sizeof(Digest));
    EXPECT_EQ(bytes.size(), frameHeaderBytes + 2 * sizeof(Digest));
  }
}

TEST(EndpointTest, IsHostAndPort) {
  EXPECT_EQ(parseEndpoint("a.b:80").port, 80);
  EXPECT_EQ(parseEndpoint("[::1]:80").host, "::1");
  for (const char *text : {"", "host", ":80", "host:", "host:x", "host:70000", "host:-1"})
    EXPECT_THROW(parseEndpoint(text), ChannelError) << text;
}

Member member(std::vector<int> ranks, std::string host, std::string plan = "hash") {
  int first = ranks.empty() ? 0 : ranks.front();
  return {std::move(plan), "1", std::move(ranks), std::move(host), 7, "", /*process=*/first >= 2, /*processes=*/2};
}

class ChannelTest : public testing::Test {
protected:
  ControlServer server{{"127.0.0.1", 0}, "token", member({0, 1}, "first"), 4};
  Endpoint endpoint{"127.0.0.1", server.port()};
  std::vector<ControlEvent> seen;

  std::future<std::unique_ptr<ControlClient>> join(Member own, std::string token = "token") {
    return std::async(std::launch::async, [this, own = std::move(own), token = std::move(token)] {
      return std::make_unique<ControlClient>(endpoint, token, own, Milliseconds(5000));
    });
  }

  /// Polls until an event of this kind arrives.
  const ControlEvent &await(ControlEvent::Kind kind) {
    for (int turn = 0; turn < 500; ++turn) {
      for (ControlEvent &event : server.poll(Milliseconds(20)))
        seen.push_back(std::move(event));
      for (const ControlEvent &event : seen)
        if (event.kind == kind)
          return event;
    }
    throw std::runtime_error("nothing has come");
  }

  static std::string reason(std::future<std::unique_ptr<ControlClient>> &client) {
    try {
      client.get();
    } catch (const ChannelError &error) {
      return error.what();
    }
    return "";
  }

  static std::vector<ControlEvent> awaitAt(ControlClient &client) {
    for (int turn = 0; turn < 500; ++turn)
      if (auto events = client.poll(Milliseconds(20)); !events.empty())
        return events;
    return {};
  }
};

TEST_F(ChannelTest, MembersJoinAndExchangeMessages) {
  EXPECT_FALSE(server.isComplete());
  auto joining = join(member({2, 3}, "second"));
  int peer = await(ControlEvent::Joined).peer;
  EXPECT_TRUE(server.isComplete());
  std::unique_ptr<ControlClient> client = joining.get();
  EXPECT_THAT(server.members(), ElementsAre(member({0, 1}, "first"), member({2, 3}, "second")));
  client->send({MessageKind::Failure, "rank 2"});
  EXPECT_EQ(await(ControlEvent::Received).message, (Message{MessageKind::Failure, "rank 2"}));
  server.send(peer, {MessageKind::Blob, std::string(1 << 20, 'n')});
  std::vector<ControlEvent> got = awaitAt(*client);
  for (int turn = 0; got.empty() && turn < 10; ++turn)
    server.poll(Milliseconds(1)), got = client->poll(Milliseconds(20));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].message.payload.size(), size_t{1} << 20);
  server.broadcast({MessageKind::Stop, ""});
  EXPECT_EQ(awaitAt(*client).at(0).message.kind, MessageKind::Stop);
  client.reset();
  EXPECT_THAT(await(ControlEvent::Lost).text, HasSubstr("closed by the other side"));
  EXPECT_EQ(await(ControlEvent::Lost).member.host, "second");
}

// A message that the server sends before it ends may arrive in one read with its reply to Join.
TEST_F(ChannelTest, ReadsMessagesBehindTheJoinReply) {
  for (int round = 0; round < 50; ++round) {
    auto first = std::make_unique<ControlServer>(Endpoint{"127.0.0.1", 0}, "token", member({0, 1}, "first"), 4);
    endpoint.port = first->port();
    auto joining = join(member({2, 3}, "second"));
    for (bool isIn = false; !isIn;)
      for (const ControlEvent &event : first->poll(Milliseconds(20)))
        isIn |= event.kind == ControlEvent::Joined;
    first->broadcast({MessageKind::Failure, "rank 0"});
    first.reset();
    std::unique_ptr<ControlClient> client = joining.get();
    std::vector<ControlEvent> heard;
    while (heard.empty() || heard.back().kind != ControlEvent::Lost) {
      std::vector<ControlEvent> more = awaitAt(*client);
      ASSERT_FALSE(more.empty()) << "neither the last words nor the end";
      heard.insert(heard.end(), more.begin(), more.end());
    }
    ASSERT_EQ(heard.size(), 2u);
    EXPECT_EQ(heard[0].message, (Message{MessageKind::Failure, "rank 0"}));
  }
}

TEST_F(ChannelTest, AnotherTokenIsRefusedOnBothSides) {
  auto joining = join(member({2, 3}, "second"), "other");
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("signs with another token"));
  EXPECT_THAT(reason(joining), HasSubstr("has another token: is it the first host of this run, with the same token?"));
  EXPECT_FALSE(server.isComplete());
}

TEST_F(ChannelTest, RejectsOtherPlansVersionsAndRanks) {
  auto plan = join(member({2}, "second", "other"));
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("second has another plan (hash other"));
  EXPECT_THAT(reason(plan), HasSubstr("second has another plan (hash other, the first host's is hash)"));
  seen.clear();
  Member newer = member({2}, "third");
  newer.version = "2";
  auto version = join(newer);
  EXPECT_THAT(await(ControlEvent::Refused).text,
              HasSubstr("third runs espalier 2, the first host, first, runs 1; install the same build on every host"));
  reason(version);
  seen.clear();
  auto twice = join(member({1}, "fourth"));
  EXPECT_THAT(await(ControlEvent::Refused).text,
              HasSubstr("fourth starts rank 1, which first (process 7) has started"));
  reason(twice);
  seen.clear();
  auto beyond = join(member({4}, "fifth"));
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("fifth starts rank 4, the plan has 4"));
  reason(beyond);
}

TEST_F(ChannelTest, MembersReportStartUpFailures) {
  Member own = member({2, 3}, "second", "unknown");
  own.refusal = "no device";
  auto joining = join(own);
  const ControlEvent &refused = await(ControlEvent::Refused);
  EXPECT_EQ(refused.text, "second cannot take part: no device");
  EXPECT_EQ(refused.member, own);
  EXPECT_THAT(reason(joining), HasSubstr("second cannot take part: no device"));
  EXPECT_FALSE(server.isComplete());
  EXPECT_TRUE(server.haveAllCome());
}

TEST_F(ChannelTest, TheFirstHostReportsItsStartUpFailureToAll) {
  Member own = member({0, 1}, "first");
  own.refusal = "no device";
  ControlServer refused({"127.0.0.1", 0}, "token", own, 4);
  endpoint.port = refused.port();
  auto joining = join(member({2, 3}, "second"));
  while (!refused.haveAllCome())
    refused.poll(Milliseconds(20));
  EXPECT_THAT(reason(joining), HasSubstr("first cannot take part: no device"));
  EXPECT_FALSE(refused.isComplete());
}

TEST_F(ChannelTest, RejectsStrangersAndReplays) {
  std::string error, recorded;
  Socket stranger = connectTo(endpoint, 1000);
  std::string request = "GET / HTTP/1.1\r\n\r\n";
  stranger.write(request, error);
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("speaks another protocol"));
  seen.clear();
  // A Join message of another connection of this run has another nonce.
  recorded = FrameSealer(joinKey("token", makeNonce()), Direction::ToServer)
                 .seal({MessageKind::Join, std::string(32, 'n') + "{}"});
  Socket replay = connectTo(endpoint, 1000);
  replay.write(recorded, error);
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("repeats what another connection said"));
}

// Silent connections have places of their own. They are closed after two seconds, and before that if there are many.
TEST_F(ChannelTest, SilentConnectionsDoNotEndAStart) {
  auto begin = std::chrono::steady_clock::now();
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connectTo(endpoint, 1000));
    ASSERT_TRUE(silent.back().isOpen());
    if (i % 32 == 0)
      server.poll(Milliseconds(0));
  }
  auto joining = join(member({2, 3}, "second"));
  await(ControlEvent::Joined);
  EXPECT_EQ(reason(joining), "");
  EXPECT_TRUE(server.isComplete());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(2000) * slowdown);
  EXPECT_THAT(await(ControlEvent::Refused).text, HasSubstr("does not say who it is"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Milliseconds(1900));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(4000) * slowdown);
}

// A stranger that connects all the time displaces its own connections, and launchers try again.
TEST_F(ChannelTest, AFloodOfConnectionsDoesNotEndAStart) {
  std::atomic<bool> isOver = false;
  std::jthread flood([&] {
    for (std::deque<Socket> held; !isOver; held.push_back(connectTo(endpoint, 100)))
      if (held.size() > 400)
        held.pop_front();
  });
  for (int turn = 0; turn < 20; ++turn)
    server.poll(Milliseconds(10));
  auto joining = join(member({2, 3}, "second"));
  await(ControlEvent::Joined);
  isOver = true;
  EXPECT_EQ(reason(joining), "");
}

// What listens at first closes every connection, as a first host does that has too many.
TEST_F(ChannelTest, ALauncherThatIsTurnedAwayTriesAgain) {
  std::optional<Socket> busy = listenAt({"127.0.0.1", 0});
  endpoint.port = portOf(*busy);
  auto joining = join(member({2, 3}, "second"));
  for (int away = 0; away < 3;)
    away += acceptFrom(*busy).has_value();
  busy.reset();
  ControlServer first(endpoint, "token", member({0, 1}, "first"), 4);
  while (!first.isComplete())
    first.poll(Milliseconds(20));
  EXPECT_EQ(reason(joining), "");
}

TEST_F(ChannelTest, GivesUpIfItIsAlwaysTurnedAway) {
  Socket busy = listenAt({"127.0.0.1", 0});
  endpoint.port = portOf(busy);
  auto joining = std::async(std::launch::async, [this] {
    return std::make_unique<ControlClient>(endpoint, "token", member({2}, "second"), Milliseconds(500));
  });
  while (joining.wait_for(Milliseconds(10)) != std::future_status::ready)
    acceptFrom(busy);
  EXPECT_THAT(reason(joining), HasSubstr(", also after 0 s: is it the first host of this run"));
}

TEST_F(ChannelTest, ReportsAnAddressWithoutListener) {
  Endpoint nobody{"127.0.0.1", 1};
  try {
    ControlClient(nobody, "token", member({2}, "second"), Milliseconds(200));
    FAIL() << "was let in";
  } catch (const ChannelError &error) {
    EXPECT_THAT(error.what(), HasSubstr("nobody listens at 127.0.0.1:1"));
  }
  EXPECT_THROW(ControlClient({"no such host", 1}, "token", member({2}, "x"), Milliseconds(1)), ChannelError);
}

TEST_F(ChannelTest, ListensOnOneAddressWithAToken) {
  EXPECT_THROW(ControlServer(endpoint, "token", member({0}, "first"), 1), ChannelError); // the port is in use
  EXPECT_THROW(ControlServer({"127.0.0.1", 0}, "", member({0}, "first"), 1), ChannelError);
  EXPECT_FALSE(connectTo({"127.0.0.2", endpoint.port}, 200).isOpen());
}

TEST(MembersTest, RoundTrip) {
  std::vector<Member> members = {member({0, 1}, "a"), member({}, "b")};
  EXPECT_EQ(parseMembers(printMembers(members)), members);
  EXPECT_THROW(parseMembers("[{}]"), FrameError);
  EXPECT_THROW(parseMembers("{"), FrameError);
  for (const char *nobody : {"[]", "{}", "null"}) // a reader of the list uses its first element
    EXPECT_THROW(parseMembers(nobody), FrameError) << nobody;
}

} // namespace
} // namespace espalier::rt::launch
