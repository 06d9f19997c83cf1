// Heads that are admitted, and heads that proxies and servers may read differently, which are refused.
#include "runtime/http/admission.h"

#include <gtest/gtest.h>

namespace espalier::rt::http {
namespace {

int statusOf(const std::string &head) {
  std::optional<Refusal> refusal = whyNotAdmitted(head);
  return refusal ? refusal->status : 200;
}

int statusOfFields(const std::string &fields, const std::string &line = "POST /a HTTP/1.1") {
  return statusOf(line + "\r\nHost: x\r\n" + fields + "\r\n");
}

TEST(Admission, AdmitsWhatClientsSend) {
  for (const char *fields :
       {"", "Content-Length: 5\r\n", "Content-Length:5\r\n", "content-length: \t 005 \r\n",
        "Transfer-Encoding: chunked\r\n", "TRANSFER-ENCODING: Chunked\r\n", "Expect: 100-continue\r\n", "X-Empty:\r\n",
        "X: a\tb  c \xc3\xa9\r\n", "User-Agent: curl/7.88.1\r\nAccept: */*\r\n"})
    EXPECT_EQ(statusOfFields(fields), 200) << fields;
  EXPECT_EQ(statusOf("GET / HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(statusOf("GET /a?b=c%20&d=~!$ HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
  EXPECT_EQ(statusOf("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
}

TEST(Admission, RefusesAmbiguousLengths) {
  for (const char *fields : {"Content-Length: 5\r\nContent-Length: 5\r\n",
                             "Content-Length: 5\r\nContent-Length: 6\r\n",
                             "Content-Length: 5, 5\r\n",
                             "Content-Length: +5\r\n",
                             "Content-Length: -5\r\n",
                             "Content-Length: 0x5\r\n",
                             "Content-Length: 5 5\r\n",
                             "Content-Length:\r\n",
                             "Content-Length: 5;\r\n",
                             "Content-Length: 1844674407370955162\r\n",
                             "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                             "Transfer-Encoding: chunked, chunked\r\n",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: gzip, chunked\r\n",
                             "Transfer-Encoding: identity\r\n",
                             "Transfer-Encoding: xchunked\r\n",
                             "Transfer-Encoding: \"chunked\"\r\n",
                             "Transfer-Encoding:\r\n",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"})
    EXPECT_EQ(statusOfFields(fields), 400) << fields;
  EXPECT_EQ(statusOfFields("Transfer-Encoding: chunked\r\n", "POST /a HTTP/1.0"), 400);
}

TEST(Admission, RefusesLinesThatAreReadDifferently) {
  using namespace std::string_literals;
  for (const std::string &fields :
       {" Content-Length: 5\r\n"s, "X: a\r\n b\r\n"s, "X: a\r\n\tContent-Length: 5\r\n"s, "Content-Length : 5\r\n"s,
        "Content-Length\t: 5\r\n"s, "X y: 1\r\n"s, ": 1\r\n"s, "no colon\r\n"s, "X: a\nContent-Length: 5\r\n"s,
        "X: a\rContent-Length: 5\r\n"s, "X: a\x01\r\n"s, "X: a\x7f\r\n"s, "X: a\0b\r\n"s, "X\0: b\r\n"s,
        "\x0bX: b\r\n"s, "\xefTransfer-Encoding: chunked\r\n"s, "(X): 1\r\n"s, "Host: y\r\n"s, "host: x\r\n"s})
    EXPECT_EQ(statusOfFields(fields), 400) << fields;
  for (const char *line : {"",
                           "GET",
                           "GET /",
                           "GET / ",
                           "GET  / HTTP/1.1",
                           "GET /  HTTP/1.1",
                           "GET / HTTP/1.1 ",
                           " GET / HTTP/1.1",
                           "GET\t/ HTTP/1.1",
                           "GET / a HTTP/1.1",
                           "GET http://x/ HTTP/1.1",
                           "GET x HTTP/1.1",
                           "CONNECT x:1 HTTP/1.1",
                           "GET /\x01 HTTP/1.1",
                           "GET /\xc3\xa9 HTTP/1.1",
                           "G(T / HTTP/1.1",
                           "GET / http/1.1",
                           "GET / HTTP/11",
                           "GET / HTTP/1.1x",
                           "GET / HTTP/1."})
    EXPECT_EQ(statusOfFields("", line), 400) << line;
  EXPECT_EQ(statusOf("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
}

TEST(Admission, RefusesOtherVersionsAndExpectations) {
  for (const char *line : {"GET / HTTP/2.0", "GET / HTTP/0.9", "GET / HTTP/1.2", "PRI * HTTP/2.0"})
    EXPECT_EQ(statusOfFields("", line), 505) << line;
  EXPECT_EQ(statusOfFields("Expect: 200-ok\r\n"), 417);
}

TEST(Admission, BoundsTheFields) {
  std::string fields;
  for (int i = 0; i < 99; ++i) // and Host
    fields += "A: b\r\n";
  EXPECT_EQ(statusOfFields(fields), 200);
  EXPECT_EQ(statusOfFields(fields + "A: b\r\n"), 431);
}

TEST(Admission, FindsBadLineEndsAcrossReads) {
  EXPECT_FALSE(hasBadLineEnd("a\r", 0)) << "a line feed may follow";
  EXPECT_FALSE(hasBadLineEnd("a\r\nb", 2)) << "the carriage return stands before the place";
  EXPECT_TRUE(hasBadLineEnd("a\nb", 0));
  EXPECT_TRUE(hasBadLineEnd("a\rb", 0));
  EXPECT_TRUE(hasBadLineEnd("\n", 0));
}

} // namespace
} // namespace espalier::rt::http
