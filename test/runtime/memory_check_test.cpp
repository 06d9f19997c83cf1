// Tests memory limits in the system's format, read from a folder that replaces the root, and the memory that a plan
// requires.
#include "runtime/memory_check.h"

#include "runtime/comm/local.h"
#include "runtime/status.h"
#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FreeMemoryTest : public testing::Test {
protected:
  FreeMemoryTest() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    root = fs::temp_directory_path() / fmt::format("espalier-{}-{}", info->name(), getpid());
    write("proc/meminfo", "MemTotal:       32000 kB\nMemFree:         100 kB\nMemAvailable:   20000 kB\n");
  }
  ~FreeMemoryTest() override { fs::remove_all(root); }

  void write(const std::string &file, const std::string &text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }

  fs::path root;
};

TEST_F(FreeMemoryTest, EqualsTheAvailableMemory) {
  EXPECT_EQ(freeMemory(root).bytes, 20000u * 1024);
  EXPECT_EQ(freeMemory(root).source, "MemAvailable of /proc/meminfo");
}

TEST_F(FreeMemoryTest, IsUnlimitedWithoutAnyFile) {
  fs::remove_all(root);
  EXPECT_EQ(freeMemory(root).bytes, UINT64_MAX);
}

/// The limit minus the usage is 10,000,000 - 6,000,000. Of the usage, 2,500,000 bytes are reclaimable file pages.
TEST_F(FreeMemoryTest, Version2GroupsAndTheirParentsLimit) {
  write("proc/self/cgroup", "0::/jobs/mine\n");
  write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/mine/memory.current", "6000000\n");
  EXPECT_EQ(freeMemory(root).bytes, 20000u * 1024);
  write("sys/fs/cgroup/jobs/memory.max", "10000000\n");
  write("sys/fs/cgroup/jobs/memory.current", "6000000\n");
  write("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 2500000\nactive_file 7\n");
  EXPECT_EQ(freeMemory(root).bytes, 6500000u);
  EXPECT_EQ(freeMemory(root).source, "the limit of 10000000 bytes in /sys/fs/cgroup/jobs/memory.max");
}

TEST_F(FreeMemoryTest, Version1GroupsLimit) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/a\n4:memory:/docker/of/the/host\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n"); // the only group that a container sees
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5500000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1500000\n");
  EXPECT_EQ(freeMemory(root).bytes, 1000000u);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); // version 1's value for no limit
  EXPECT_EQ(freeMemory(root).bytes, 20000u * 1024);
}

/// The required memory equals what an executor allocates.
TEST(RequireMemory, CountsArenaAndScratchOfEveryRank) {
  SampleOptions options;
  options.dp = options.pp = 2;
  Program program(samplePlan(options), /*threads=*/3);
  uint64_t sum = 0;
  for (const pb::Stage &stage : program.plan().stages())
    sum += 2 * program.backend().hostBytes(stage, 3);
  requireMemory(program, 3, {sum, "a limit"}, 4);
  try {
    requireMemory(program, 3, {sum - 1, "a limit"}, 4);
    FAIL() << "one byte is missing";
  } catch (const MemoryError &error) {
    EXPECT_THAT(error.what(), HasSubstr("for its 4 ranks on this host"));
    EXPECT_THAT(error.what(), HasSubstr("are free (a limit)"));
  }
  LocalWorld world(4);
  ThreadPool pool(3, 0);
  std::unique_ptr<Communicator> end = world.communicator(0);
  const pb::Stage &first = program.plan().stages(0);
  std::unique_ptr<Device> device = program.backend().open(first, {*end, pool, 0});
  EXPECT_NEAR(device->allocatedBytes(), program.backend().hostBytes(first, 3), 3 * 4096); // whole pages
}

} // namespace
} // namespace espalier::rt
