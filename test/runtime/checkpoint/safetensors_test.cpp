// Tests reads of byte ranges and the checks of the header.
#include "runtime/checkpoint/safetensors.h"

#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include <sys/stat.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Safetensors : public CheckpointTest {
protected:
  Safetensors() { fs::create_directories(folder); }

  /// Returns the error of opening a file with this header and `data` bytes of tensors, or an empty string.
  std::string errorOf(const std::string &header, uint64_t data = 0) const {
    uint64_t length = header.size();
    write(folder / "x", std::string(reinterpret_cast<const char *>(&length), 8) + header + std::string(data, '\0'));
    return errorOf();
  }
  std::string errorOf() const {
    try {
      SafetensorsFile file(folder / "x");
      return "";
    } catch (const PlanError &error) {
      return error.what();
    }
  }
};

// In linear time: in quadratic time this test takes minutes.
TEST_F(Safetensors, HasAnyNumberOfTensors) {
  float value = 1;
  std::vector<TensorBytes> tensors;
  for (int i = 0; i < 100'000; ++i)
    tensors.push_back({"layer." + std::to_string(i), pb::F32, {1}, std::as_bytes(std::span(&value, 1))});
  writeSafetensors(folder / "x", tensors, {});
  EXPECT_EQ(SafetensorsFile(folder / "x").tensors().size(), tensors.size());
  writeSafetensors(folder / "x", {}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "x").tensors().empty());
}

TEST_F(Safetensors, RoundTrip) {
  std::vector<float> a = {1, 2, 3}, b = {4};
  std::vector<TensorBytes> tensors = {{"a", pb::F32, {3}, std::as_bytes(std::span(a))},
                                      {"b", pb::F32, {1, 1}, std::as_bytes(std::span(b))}};
  writeSafetensors(folder / "x", tensors, {{"key", "value"}});
  SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata().at("key"), "value");
  EXPECT_EQ(reinterpret_cast<const float *>(file.tensor("a", 12).data())[2], 3);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<int64_t>{1, 1}));
  EXPECT_THROW(file.tensor("a", 8), PlanError);
  EXPECT_THROW(file.tensor("c", 4), PlanError);
}

TEST_F(Safetensors, RefusesDamage) {
  EXPECT_EQ(errorOf("{}"), "");
  EXPECT_EQ(errorOf(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 8), "");
  for (auto [header, data, reason] : std::initializer_list<std::tuple<std::string, uint64_t, const char *>>{
           {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 7, "8 bytes of tensors, 7 are there"},
           {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 9, "8 bytes of tensors, 9 are there"},
           {R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", 8, "another size than its shape"},
           {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", 8, "another size than its shape"},
           {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})", 16, "begins at byte 8 and not at 0"},
           {R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", 8, "a whole number is expected"},
           {R"({"a": {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 8]}})", 8, "a whole number is expected"},
           {R"({"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}})", 8, "a list of whole numbers is expected"},
           {R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})", 0,
            "passes what can be held"},
           {R"({"a": {"dtype": "F8", "shape": [2], "data_offsets": [0, 8]}})", 8, "type 'F8' is not read"},
           {R"({"a": {"shape": [2]}})", 0, "damaged header"},
           {R"([1, 2])", 0, "damaged header"},
           {"{", 0, "damaged header"},
           {std::string(100, '['), 0, "nested too deep"}})
    EXPECT_THAT(errorOf(header, data), HasSubstr(reason)) << header;
}

TEST_F(Safetensors, BoundsTheHeaderByTheFile) {
  for (uint64_t length : {~uint64_t(0), uint64_t(1) << 40, uint64_t(3)}) {
    write(folder / "x", std::string(reinterpret_cast<const char *>(&length), 8) + "{}");
    EXPECT_THAT(errorOf(), HasSubstr("a header of")) << length;
  }
  write(folder / "x", "short");
  EXPECT_THAT(errorOf(), HasSubstr("too short"));
}

// Opening a pipe without a writer would block.
TEST_F(Safetensors, RejectsOtherFilesWithoutBlocking) {
  ASSERT_EQ(mkfifo((folder / "x").c_str(), 0600), 0);
  EXPECT_THAT(errorOf(), HasSubstr("not a regular file"));
  fs::remove(folder / "x");
  fs::create_directory(folder / "x");
  EXPECT_THAT(errorOf(), HasSubstr("not a regular file"));
  fs::remove(folder / "x");
  EXPECT_THAT(errorOf(), HasSubstr("No such file"));
}

} // namespace
} // namespace espalier::rt
