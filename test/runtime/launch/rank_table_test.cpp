// Tests rank tables and hosts files. Errors name the location of the fault.
#include "runtime/launch/rank_table.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier::rt::launch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

class RankTableTest : public testing::Test {
protected:
  ~RankTableTest() override { fs::remove(file); }

  fs::path write(const std::string &text) {
    std::ofstream(file) << text;
    return file;
  }

  std::string faults(const std::string &text) {
    write(text);
    try {
      readRankTable(file);
    } catch (const TableError &error) {
      return error.what();
    }
    return "";
  }

  /// Returns the error for a hosts file without the file name.
  std::string hostsFault(const std::string &text) {
    write(text);
    try {
      readHosts(file);
    } catch (const TableError &error) {
      return std::string(error.what()).substr(file.string().size());
    }
    return "";
  }

  /// Returns the errors for a changed table of two hosts with two devices each.
  std::string faultsAfter(const std::function<void(Json &)> &change) {
    std::vector<Host> hosts = {{"10.0.0.1", 2, {"192.1.0.1", "192.1.0.2"}}, {"10.0.0.2", 2, {}}};
    Json json = Json::parse(printRankTable(tableOf(hosts)));
    change(json);
    return faults(json.dump());
  }

  static Json &device(Json &json, int server, int index) { return json["server_list"][server]["device"][index]; }

  fs::path file = fs::temp_directory_path() / fmt::format("espalier-table-{}.json", getpid());
};

TEST_F(RankTableTest, RoundTrip) {
  std::vector<Host> hosts = {{"10.0.0.1", 2, {"192.1.0.1", "192.1.0.2"}}, {"10.0.0.2", 1, {}}};
  RankTable table = tableOf(hosts);
  EXPECT_EQ(table.ranks(), 3);
  EXPECT_EQ(table.servers[1].devices[0].rank, 2);
  EXPECT_EQ(readRankTable(write(printRankTable(table))), table);
}

TEST_F(RankTableTest, ReportsEachErrorWithItsLocation) {
  EXPECT_EQ(faultsAfter([](Json &) {}), "");
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 1, 0)["rank_id"] = 2; }),
              HasSubstr("server_list[1].device[0].rank_id: is the number 2, wanted a string: \"2\""));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 1, 0)["rank_id"] = "3"; }),
              HasSubstr("server_list[1].device[0].rank_id: is 3, wanted 2: ranks count from 0"));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 1, 1)["rank_id"] = "2"; }),
              HasSubstr("is 2, wanted 3: this rank has an entry before"));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 0, 1)["device_id"] = "0"; }),
              HasSubstr("server_list[0].device[1].device_id: 0 has an entry before on this server"));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 0, 1)["device_ip"] = "192.1.0.1"; }),
              HasSubstr("device_ip: 192.1.0.1 has an entry before"));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 0, 1)["device_id"] = "one"; }),
              HasSubstr("device_id: is \"one\", wanted a number from 0 to"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"][1]["server_id"] = "10.0.0.1"; }),
              HasSubstr("server_list[1].server_id: 10.0.0.1 has an entry before"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_count"] = "3"; }),
              HasSubstr("server_count: is 3, server_list has 2"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["version"] = "1.2"; }), HasSubstr("is \"1.2\", known is \"1.0\""));
  EXPECT_THAT(faultsAfter([](Json &json) { json["status"] = "initializing"; }), HasSubstr("wanted \"completed\""));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"][0]["device"] = 5; }),
              HasSubstr("server_list[0].device: is missing, empty or no list"));
  EXPECT_THAT(faultsAfter([](Json &json) { json.erase("server_list"); }), HasSubstr("server_list: is missing"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"] = Json::array(), json["server_count"] = "0"; }),
              HasSubstr("server_list: is missing, empty or no list"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"][0]["server_id"] = ""; }),
              HasSubstr("server_list[0].server_id: is \"\", wanted the server's address"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"][0]["server_id"] = "10.*.*.*"; }),
              HasSubstr("server_list[0].server_id: is \"10.*.*.*\", a placeholder; write the address in its place"));
  EXPECT_THAT(faultsAfter([](Json &json) { device(json, 0, 1)["device_ip"] = "192.1.<N>.6"; }),
              HasSubstr("server_list[0].device[1].device_ip: is \"192.1.<N>.6\", a placeholder"));
  EXPECT_THAT(faultsAfter([](Json &json) { json["server_list"][0]["server_id"] = "-oProxyCommand"; }),
              HasSubstr("server_list[0].server_id: is \"-oProxyCommand\", which ssh and mpirun take for an option"));
  EXPECT_EQ(faultsAfter([](Json &json) { json["server_list"][0]["server_id"] = "[fe80::1%eth0]"; }), "");
  EXPECT_THAT(faults("[1, 2"), HasSubstr("is no JSON object"));
}

// A plan needs the numbers of hosts and devices alone.
TEST_F(RankTableTest, CountsTheHostsOfAPublishedTable) {
  Json json = Json::parse(printRankTable(tableOf(std::vector<Host>{{"10.0.0.1", 8, {}}})));
  json["server_list"][0]["server_id"] = "10.*.*.*";
  write(json.dump());
  EXPECT_EQ(readRankTable(file, /*needsAddresses=*/false).ranks(), 8);
}

TEST_F(RankTableTest, ReportsAllErrorsAtOnce) {
  std::string text = faultsAfter([](Json &json) {
    json["server_count"] = "3";
    device(json, 0, 1)["device_id"] = "0";
  });
  EXPECT_THAT(text, HasSubstr("server_count"));
  EXPECT_THAT(text, HasSubstr("device_id"));
}

/// A rank that cannot be read causes one error. The following ranks cause none.
TEST_F(RankTableTest, ReportsAnErrorOnce) {
  for (const auto &change :
       std::vector<std::function<void(Json &)>>{[](Json &json) { device(json, 0, 0)["rank_id"] = "x"; },
                                                [](Json &json) { device(json, 0, 0).erase("rank_id"); },
                                                [](Json &json) { json["server_list"][0]["device"] = Json::array(); }}) {
    std::string text = faultsAfter(change);
    EXPECT_EQ(std::ranges::count(text, '\n'), 0) << text;
    EXPECT_NE(text, "");
  }
}

TEST_F(RankTableTest, RejectsUnreadablePaths) {
  auto fault = [](const fs::path &path) -> std::string {
    try {
      readRankTable(path);
      return "";
    } catch (const TableError &error) {
      return error.what();
    }
  };
  EXPECT_EQ(fault("/nonexistent/table.json"),
            "/nonexistent/table.json: error: cannot read it: No such file or directory");
  EXPECT_EQ(fault("/proc"), "/proc: error: is no file");
}

TEST_F(RankTableTest, MergingRenumbersRanks) {
  std::vector<Host> one = {{"10.0.0.1", 2, {}}}, two = {{"10.0.0.2", 2, {}}};
  std::vector<RankTable> tables = {tableOf(two), tableOf(one)};
  RankTable merged = mergeRankTables(tables);
  EXPECT_EQ(merged.servers[0].id, "10.0.0.2");
  EXPECT_EQ(merged.servers[1].devices[0].rank, 2);
  tables.push_back(tableOf(one));
  EXPECT_THROW(mergeRankTables(tables), PlanError);
  one[0].deviceIps = two[0].deviceIps = {"192.1.0.1", "192.1.0.2"};
  EXPECT_THROW(mergeRankTables(std::vector{tableOf(one), tableOf(two)}), PlanError);
}

TEST_F(RankTableTest, HostsAreLines) {
  std::vector<Host> hosts = readHosts(write("# two hosts\n10.0.0.1 slots=2 device_ips=a,b\n\n10.0.0.2\n"));
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[0].deviceIps, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(hosts[1].slots, 1);
}

TEST_F(RankTableTest, ServersOfATableAreHosts) {
  std::vector<Host> hosts = {{"10.0.0.1", 2, {"192.1.0.1", "192.1.0.2"}}, {"10.0.0.2", 1, {}}};
  std::string table = printRankTable(tableOf(hosts));
  std::vector<Host> read = readHosts(write("\n" + table));
  ASSERT_EQ(read.size(), 2u);
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].address, hosts[i].address);
    EXPECT_EQ(read[i].slots, hosts[i].slots);
    EXPECT_EQ(read[i].deviceIps, hosts[i].deviceIps);
  }
  Json moved = Json::parse(table);
  device(moved, 1, 0)["device_id"] = "3";
  EXPECT_THAT(hostsFault(moved.dump()),
              HasSubstr(": error: server 10.0.0.2 has device 3 in place 0, and a launch starts "
                        "ranks on devices 0, 1, ...; start espalier run --rank-table "));
  EXPECT_THAT(hostsFault("{}"), HasSubstr(": error: "));
}

TEST_F(RankTableTest, HostsFaultsHaveLines) {
  write("a slots=0\nb slot=2\na slots=1\nc slots=2 device_ips=x\n");
  try {
    readHosts(file);
    FAIL() << "was read";
  } catch (const TableError &error) {
    EXPECT_THAT(error.what(), HasSubstr(":1: error: slots is \"0\""));
    EXPECT_THAT(error.what(), HasSubstr(":2: error: \"slot=2\" is unknown"));
    EXPECT_THAT(error.what(), HasSubstr(":4: error: 1 device_ips for 2 slots"));
  }
  EXPECT_EQ(hostsFault("a slots=2 slots=3\n"), ":1: error: slots is given twice; give it once");
  EXPECT_EQ(hostsFault("a slots=1 device_ips=x\nb slots=1 device_ips=x\n"),
            ":2: error: device_ip x is given twice; give each device its own");
  write("a\na\n");
  EXPECT_THROW(readHosts(file), TableError);
  write("\n");
  EXPECT_THROW(readHosts(file), TableError);
}

} // namespace
} // namespace espalier::rt::launch
