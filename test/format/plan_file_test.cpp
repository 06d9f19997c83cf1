// Every corruption of a plan file is detected. A plan file with its checksum is still one protobuf message.
#include "format/plan_file.h"

#include "runtime/status.h"
#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

class PlanFile : public testing::Test {
protected:
  PlanFile() {
    // Uses /dev/shm, because the test reads thousands of versions.
    fs::path folder = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    file = folder / fmt::format("espalier-plan-{}-{}", info->name(), getpid());
  }
  ~PlanFile() override { fs::remove(file); }

  /// Returns the error of reading these bytes, or an empty string.
  std::string errorOf(const std::string &bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      readPlan(file);
      return "";
    } catch (const PlanError &error) {
      return error.what();
    }
  }

  fs::path file;
  std::string good = planFileBytes(samplePlan({}));
};

TEST_F(PlanFile, RoundTrip) {
  EXPECT_EQ(errorOf(good), "");
  EXPECT_EQ(planFileBytes(readPlan(file)), good);
  EXPECT_EQ(readPlan(file).SerializeAsString(), samplePlan({}).SerializeAsString());
  pb::Plan whole;
  ASSERT_TRUE(whole.ParseFromString(good)); // the checksum is a field of the schema
  EXPECT_NE(whole.checksum(), 0u);
}

TEST_F(PlanFile, RefusesEveryFlippedByte) {
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    ASSERT_THAT(errorOf(bytes), testing::HasSubstr("damaged")) << "byte " << i << " of " << good.size();
  }
}

TEST_F(PlanFile, RefusesEveryTruncation) {
  for (size_t size = 0; size < good.size(); size += size < 64 || size + 64 > good.size() ? 1 : 37)
    ASSERT_THAT(errorOf(good.substr(0, size)), testing::HasSubstr("damaged")) << size;
  EXPECT_THAT(errorOf(good + "x"), testing::HasSubstr("not a run plan, or a damaged one"));
}

TEST_F(PlanFile, ResealingCorrectsTheChecksum) {
  EXPECT_EQ(resealed(good), good);
  pb::Plan other = samplePlan({});
  other.set_model("other");
  std::string bytes = good;
  bytes[good.find("toy")] = 'T';
  EXPECT_THAT(errorOf(bytes), testing::HasSubstr("do not fit its checksum"));
  EXPECT_EQ(errorOf(resealed(bytes)), "");
  EXPECT_EQ(readPlan(file).model(), "Toy");
  EXPECT_EQ(resealed(other.SerializeAsString()), planFileBytes(other)); // written by another tool
  EXPECT_THAT(errorOf(resealed("text")), testing::HasSubstr("not a run plan"));
  EXPECT_THAT(errorOf(resealed("")), testing::HasSubstr("version 0"));
}

TEST_F(PlanFile, RefusesAnotherVersion) {
  pb::Plan plan = samplePlan({});
  for (uint32_t version : {1, 99}) {
    plan.set_version(version);
    EXPECT_THAT(errorOf(planFileBytes(plan)),
                testing::HasSubstr(fmt::format("plan version {}, this runtime reads 2; compile it again", version)));
  }
}

TEST_F(PlanFile, RejectsTooLargeFilesBeforeReading) {
  std::ofstream(file) << "x";
  fs::resize_file(file, (uint64_t(256) << 20) + 1); // sparse: takes no disk space
  EXPECT_THROW(readPlan(file), PlanError);
}

} // namespace
} // namespace espalier::rt
