// Reads torch.save files: our own, files of PyTorch, and damaged files.
#include "test/runtime/checkpoint/convert/torch_fixture.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;

class Torch : public TorchTest {
protected:
  static std::vector<std::byte> floats(const std::vector<float> &numbers) {
    auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
  }

  /// Writes a file with one tensor [2, 3].
  Path written(const std::string &name = "x.pt") const {
    std::vector<WrittenTensor> tensors = {{"a", pb::F32, {2, 3}, [] { return floats({1, 2, 3, 4, 5, 6}); }}};
    writeTorchFile(folder / name, tensors);
    return folder / name;
  }
  /// Returns the error of reading the file after replacing some bytes.
  std::string errorAfterChange(const std::string &text, size_t at, const std::string &bytes) const {
    std::string changed = text;
    changed.replace(at, bytes.size(), bytes);
    write(folder / "changed", changed);
    return says(folder / "changed");
  }
};

TEST_F(Torch, RoundTrip) {
  std::vector<WrittenTensor> tensors = {{"a", pb::F32, {2, 3}, [] { return floats({1, 2, 3, 4, 5, 6}); }},
                                        {"b", pb::BF16, {4}, [] { return floats({7, 8}); }},
                                        {"c", pb::F16, {}, [] { return std::vector<std::byte>(2); }}};
  writeTorchFile(folder / "x.pt", tensors);
  auto source = openTorchFile(folder / "x.pt");
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->read("a"), floats({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(source->tensors().at("b").type, pb::BF16);
  EXPECT_EQ(source->tensors().at("b").shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(source->tensors().at("c").type, pb::F16);
  for (const auto &[name, entry] : readZip(RegularFile(folder / "x.pt")))
    EXPECT_EQ(entry.at % 64, 0u) << name;
}

TEST_F(Torch, NestedDicts) {
  std::vector<WrittenTensor> tensors = {{"l/e/w", pb::F32, {1}, [] { return floats({1}); }},
                                        {"l/e/b", pb::F32, {1}, [] { return floats({2}); }},
                                        {"l/x", pb::F32, {1}, [] { return floats({3}); }},
                                        {"y", pb::F32, {1}, [] { return floats({4}); }}};
  std::vector<TorchNumber> numbers = {{"checkpoint_version", 3, false}, {"iteration", 70000, true}};
  writeTorchModel(folder / "x.pt", numbers, tensors);
  auto file = std::make_shared<const TorchFile>(folder / "x.pt");
  EXPECT_EQ(file->root().find("checkpoint_version")->number, 3.0);
  EXPECT_EQ(file->root().find("iteration")->integer, 70000);
  auto source = openTorchEntry(file, "model");
  EXPECT_EQ(source->read("l/e/b"), floats({2}));
  EXPECT_EQ(source->read("y"), floats({4}));
  EXPECT_EQ(file->root().find("model")->find("l")->find("e")->pairs.size(), 2u);
  EXPECT_THAT(errorOf([&] { openTorchEntry(file, "other"); }), HasSubstr("x.pt: has no 'other' with weights"));
}

TEST_F(Torch, RefusesDamagedZips) {
  std::string text = readAll(written());
  EXPECT_EQ(errorAfterChange(text, 0, ""), "");
  size_t data = text.find(std::string("\0\0\x80\x3f\0\0\0\x40", 8)), directory = text.find("PK\x01\x02");
  size_t end64 = text.find("PK\x06\x06"), end = text.find("PK\x05\x06");
  ASSERT_NE(data, std::string::npos);
  EXPECT_THAT(errorAfterChange(text, data, "x"), HasSubstr("storage '0' does not fit its checksum"));
  EXPECT_THAT(errorAfterChange(text, text.find("_rebuild"), "-"), HasSubstr("its names do not fit their checksum"));
  EXPECT_THAT(errorAfterChange(text, end, "x"), HasSubstr("it has no end record"));
  EXPECT_THAT(errorAfterChange(text, end64, "x"),
              HasSubstr("its 64-bit end record is not at the offset of its locator"));
  EXPECT_THAT(errorAfterChange(text, end64 + 40, "\xff\xff\xff\xff\xff\xff"), HasSubstr("a directory of"));
  EXPECT_THAT(errorAfterChange(text, end64 + 48, "\xff\xff\xff\xff\xff\xff"), HasSubstr("bytes at"));
  EXPECT_THAT(errorAfterChange(text, end64 + 32, "\x09"), HasSubstr("its directory ends within an entry"));
  EXPECT_THAT(errorAfterChange(text, directory, "x"), HasSubstr("no entry at 0 of its directory"));
  EXPECT_THAT(errorAfterChange(text, directory + 10, "\x08"),
              HasSubstr("is compressed; entries are stored as they are"));
  EXPECT_THAT(errorAfterChange(text, directory + 8, "\x01"), HasSubstr("is encrypted"));
  EXPECT_THAT(errorAfterChange(text, directory + 24, "\xff\xff"), HasSubstr("bytes and stores"));
  EXPECT_THAT(errorAfterChange(text, directory + 20, std::string("\xff\xff\x7f\0\xff\xff\x7f", 7)),
              HasSubstr(", the directory begins at"));
  EXPECT_THAT(errorAfterChange(text, directory + 42, "\x07"), HasSubstr("is not at 7"));
  EXPECT_THAT(errorAfterChange(text, directory + 42, "\xff\xff\xff\x7f"),
              HasSubstr("bytes at 2147483647 in a file of"));
  for (size_t size : {text.size() - 1, text.size() / 2, size_t(100), size_t(3), size_t(0)}) {
    write(folder / "cut", text.substr(0, size));
    EXPECT_THAT(says(folder / "cut"), HasSubstr("cut: ")) << size;
  }
}

// After any bit flip, either the tensor is unchanged or the file is refused.
TEST_F(Torch, EveryBitFlipped) {
  std::string text = readAll(written());
  int refused = 0;
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write(folder / "flipped", flipped);
    std::string failure = errorOf([&] {
      auto source = openTorchFile(folder / "flipped");
      ASSERT_EQ(source->tensors().size(), 1u);
      EXPECT_EQ(source->read("a"), floats({1, 2, 3, 4, 5, 6})) << "bit " << bit;
    });
    refused += !failure.empty();
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(Torch, RejectsOtherZipFiles) {
  EXPECT_THAT(says(zipOf({{"a", "b"}})), HasSubstr("a zip without one data.pkl is not a file of torch.save"));
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "N."}, {"b/data.pkl", "N."}})), HasSubstr("without one data.pkl"));
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "N."}})), HasSubstr("z.pt: holds no dict of tensors"));
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "}."}, {"a/byteorder", "big"}})), HasSubstr("its numbers are big-endian"));
  std::string pickle = readAll(written());
  pickle = pickle.substr(pickle.find("\x80\x02"));
  pickle = pickle.substr(0, pickle.find("tRu.") + 4);
  EXPECT_THAT(says(zipOf({{"a/data.pkl", pickle}})), HasSubstr("z.pt: storage '0' is missing"));
  EXPECT_THAT(says(zipOf({{"a/data.pkl", pickle}, {"a/data/0", "short"}})),
              HasSubstr("storage '0' of 6 elements of 4 bytes has 5 bytes"));
}

// A dict that contains itself is refused. If a call makes a weight, the error names the weight.
TEST_F(Torch, RejectsObjectsThatOnlyPythonCanMake) {
  using std::string_literals::operator""s;
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "}q\0X\1\0\0\0ah\0s."s}})),
              HasSubstr("dicts are nested deeper than those of weights"));
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "}X\6\0\0\0weightcposix\nsystem\nX\2\0\0\0ls\x85Rs."s}})),
              HasSubstr("'weight' is made by posix.system, which is never called; only tensors are read"));
  EXPECT_EQ(says(zipOf({{"a/data.pkl", "}X\4\0\0\0argscargparse\nNamespace\n)\x81s."s}})), "");
}

/// Files that torch 1.13 wrote. The fixtures are beside the repository.
class RealTorch : public Torch {
protected:
  void SetUp() override {
    const char *shared = std::getenv("ESPALIER_SHARED");
    data = Path(shared ? shared : ESPALIER_SOURCE_DIR "/../shared") / "data/weights";
    if (!std::filesystem::exists(data))
      GTEST_SKIP() << "no fixtures at " << data;
  }
  Path data;
};

TEST_F(RealTorch, EveryTensorIsRead) {
  for (const char *name : {"pytorch_model.bin", "lin.bin", "param.bin", "old.bin", "model_optim_rng.pt", "mcore.pt"}) {
    auto source = openTorchFile(data / name);
    EXPECT_FALSE(source->tensors().empty()) << name;
    for (const auto &[tensor, listed] : source->tensors())
      EXPECT_EQ(source->read(tensor).size(), listed.bytes) << name << " " << tensor;
  }
}

// Compares the same tensors in the zip format and in the older format.
TEST_F(RealTorch, OldFormHasTheSameElements) {
  auto now = openTorchFile(data / "pytorch_model.bin"), old = openTorchFile(data / "old.bin");
  ASSERT_EQ(now->tensors().size(), old->tensors().size());
  for (const auto &[name, listed] : now->tensors()) {
    EXPECT_EQ(old->tensors().at(name).shape, listed.shape) << name;
    EXPECT_EQ(old->read(name), now->read(name)) << name;
  }
}

TEST_F(RealTorch, OldFormCutAnywhereIsRefused) {
  std::string text = readAll(data / "old.bin");
  for (size_t size = 0; size < text.size(); ++size) {
    write(folder / "cut", text.substr(0, size));
    EXPECT_THAT(says(folder / "cut"), HasSubstr("cut: ")) << size;
  }
}

} // namespace
} // namespace espalier::rt
