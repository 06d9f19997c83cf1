// Which clients and web pages may use a port.
#include "runtime/http/access.h"

#include "runtime/status.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

namespace espalier::rt::http {
namespace {

using testing::HasSubstr;

int statusOf(const Access &access, const Head &head) {
  std::optional<Refusal> refusal = access.whyNot(head);
  return refusal ? refusal->status : 200;
}

Head headOf(const std::string &host, const std::string &origin = "") {
  Head head;
  head.method = "GET";
  head.path = "/metrics";
  head.host = host;
  head.origin = origin;
  head.localAddress = "192.0.2.7";
  return head;
}

TEST(Access, TakesOwnNamesAlone) {
  Access access{.hosts = {"gpu7", "fd00::7"}};
  for (const char *host : {"localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:8000", "127.3.2.1", "[::1]",
                           "[::1]:8000", "192.0.2.7", "192.0.2.7:80", "gpu7", "GPU7:8000", "[fd00::7]:8000", ""})
    EXPECT_EQ(statusOf(access, headOf(host)), 200) << host;
  for (const char *host : {"evil.test", "evil.test:8000", "127.0.0.1.evil.test", "localhost.evil.test", "192.0.2.8",
                           "gpu7.test", "[::1", "localhost:80:80", "localhost:evil", "localhost@evil.test",
                           "user@localhost", "::1", "[::2]", "[localhost]x", "127.0.0.1/",
                           "localhost:"
                           "123456"})
    EXPECT_EQ(statusOf(access, headOf(host)), 403) << host;
  access.takesAnyHost = true;
  EXPECT_EQ(statusOf(access, headOf("evil.test")), 200);
}

TEST(Access, TakesPagesOfTheServerAndOfAllowedOrigins) {
  Access access{.origins = {"https://page.test"}};
  for (const char *origin : {"", "http://localhost:8000", "https://localhost:8000", "https://page.test"})
    EXPECT_EQ(statusOf(access, headOf("localhost:8000", origin)), 200) << origin;
  for (const char *origin : {"http://evil.test", "null", "http://localhost", "http://localhost:8001",
                             "http://page.test", "https://page.test.evil", "file://", "localhost:8000"})
    EXPECT_EQ(statusOf(access, headOf("localhost:8000", origin)), 403) << origin;
  EXPECT_TRUE(access.fieldsFor(headOf("localhost", "https://evil.test")).empty());
  EXPECT_EQ(access.fieldsFor(headOf("localhost", "https://page.test")).front().second, "https://page.test");
  access.origins = {"*"};
  EXPECT_EQ(statusOf(access, headOf("localhost", "http://evil.test")), 200);
  EXPECT_EQ(statusOf(access, headOf("evil.test", "http://evil.test")), 403) << "a name that points here";
}

TEST(Access, NeedsTheToken) {
  Access access{.token = "secret", .openPaths = {"/health"}};
  for (const char *given : {"", "Bearer", "Bearer ", "Bearer secre", "Bearer secrett", "Bearer SECRET", "secret",
                            "Basic secret", "Bearer secret "}) {
    Head head = headOf("localhost");
    head.authorization = given;
    EXPECT_EQ(statusOf(access, head), 401) << given;
  }
  Head head = headOf("localhost");
  head.authorization = "Bearer secret";
  EXPECT_EQ(statusOf(access, head), 200);
  head = headOf("localhost");
  head.path = "/health";
  EXPECT_EQ(statusOf(access, head), 200);
}

TEST(Access, RecognizesLoopbackAddresses) {
  for (const char *host : {"127.0.0.1", "127.8.0.1", "localhost", "::1"})
    EXPECT_TRUE(isLoopback(host)) << host;
  for (const char *host : {"0.0.0.0", "::", "127.example.com", "10.0.0.1", ""})
    EXPECT_FALSE(isLoopback(host)) << host;
}

TEST(Access, NeedsATokenBeyondThisMachine) {
  EXPECT_NO_THROW(requireToken("", "127.0.0.1", "--host", "give one"));
  EXPECT_NO_THROW(requireToken("secret", "0.0.0.0", "--host", "give one"));
  try {
    requireToken("", "0.0.0.0", "--host 0.0.0.0", "give --token-file");
    FAIL();
  } catch (const PlanError &error) {
    EXPECT_STREQ(error.what(), "--host 0.0.0.0 lets others in, and there is no token; give --token-file, or listen on "
                               "127.0.0.1");
  }
}

TEST(Access, ReadsTheFirstLineOfATokenFile) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("token-" + std::to_string(getpid()));
  std::ofstream(file) << "secret\nmore\n";
  EXPECT_EQ(readTokenFile(file, "--token-file"), "secret");
  std::ofstream(file) << "\nsecret\n";
  EXPECT_THROW(readTokenFile(file, "--token-file"), PlanError);
  std::filesystem::remove(file);
  EXPECT_THROW(readTokenFile(file, "--token-file"), PlanError);
}

} // namespace
} // namespace espalier::rt::http
