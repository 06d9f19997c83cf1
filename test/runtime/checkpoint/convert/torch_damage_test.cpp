// Reads hand-written torch.save files: views, the format before zip files, overlapping and repeated entries.
#include "test/runtime/checkpoint/convert/torch_fixture.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using std::string_literals::operator""s;

class TorchByHand : public TorchTest {};

/// {"a": columns 1 and 2 of a [3, 3] tensor, transposed}
const std::string view = "}X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
                         "X\1\0\0\0"s +
                         "0X\3\0\0\0cpuK\tNtQK\1K\2K\3\x86K\1K\3\x86\x89}tRs."s;

TEST_F(TorchByHand, StridesAreFollowed) {
  std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8}, expected = {1, 4, 7, 2, 5, 8};
  std::string bytes(reinterpret_cast<const char *>(numbers.data()), 36);
  Path file = zipOf({{"a/data.pkl", view}, {"a/data/0", bytes}});
  std::vector<std::byte> read = openTorchFile(file)->read("a");
  EXPECT_EQ(std::vector<float>(reinterpret_cast<const float *>(read.data()),
                               reinterpret_cast<const float *>(read.data() + read.size())),
            expected);
  // The checksum covers the whole storage, including the elements outside of the view.
  std::string text = readAll(file);
  text[text.find(bytes)] = 2;
  write(file, text);
  EXPECT_THAT(says(file), HasSubstr("storage '0' does not fit its checksum"));
}

TEST_F(TorchByHand, RejectsRepeatedEntries) {
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "}."}, {"a/data.pkl", "}."}})), HasSubstr("entry 'a/data.pkl' comes twice"));
  std::string item = view.substr(1, view.size() - 3), bytes(36, 'x');
  EXPECT_THAT(says(zipOf({{"a/data.pkl", "}(" + item + item + "u."}, {"a/data/0", bytes}})),
              HasSubstr("z.pt: tensor 'a' comes twice"));
  // The second entry has the header offset of the first entry.
  std::string text = readAll(zipOf({{"a/data.pkl", "}."}, {"b/data.pkl", "}."}}));
  text.replace(text.rfind("PK\x01\x02"s, text.find("PK\x06\x06"s)) + 42, 4, 4, '\0');
  write(folder / "z.pt", text);
  EXPECT_THAT(says(folder / "z.pt"), HasSubstr("damaged zip: two entries overlap at 0"));
}

TEST_F(TorchByHand, PicklesAreBounded) {
  Path file = zipOf({{"a/data.pkl", std::string((size_t(64) << 20) + 1, 'N')}});
  EXPECT_THAT(says(file), HasSubstr("a pickle of 67108865 bytes, at most 67108864 are read"));
}

// The old format is a sequence of pickles: magic number, version, sizes, object and storage keys. Each storage follows
// with its element count.
TEST_F(TorchByHand, OldFiles) {
  const std::string magic = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3."s;
  const std::string little = "}X\x0d\0\0\0little_endian\x88s."s, big = "}X\x0d\0\0\0little_endian\x89s."s;
  const std::string object = "}X\1\0\0\0actorch._utils\n_rebuild_tensor\n((X\7\0\0\0storagectorch\nFloatStorage\n"
                             "X\1\0\0\0"s +
                             "0X\3\0\0\0cpuK\1NtQK\0K\1\x85K\1\x85tRs."s;
  const std::string keys = "](X\1\0\0\0"s + "0e.", one = "\1\0\0\0\0\0\0\0\0\0\x80\x3f"s;
  auto old = [&](const std::string &text) {
    write(folder / "old", magic + text);
    return says(folder / "old");
  };
  EXPECT_EQ(old(little + object + keys + one), "");
  EXPECT_THAT(old(big + object + keys + one), HasSubstr("old: its numbers are big-endian"));
  EXPECT_THAT(old(little + object + "](X\1\0\0\0"s + "1e." + one), HasSubstr("old: no bytes for storage '1'"));
  EXPECT_THAT(old(little + object + "]."), HasSubstr("old: storage '0' is missing"));
  EXPECT_THAT(old(little + object + keys + "\xff" + one), HasSubstr("elements reaches past the end"));
  EXPECT_THAT(old(little + object + keys + std::string(8, '\0')),
              HasSubstr("storage '0' of 1 elements of 4 bytes has 0 bytes"));
  write(folder / "old", "#!/bin/sh\n");
  EXPECT_THAT(says(folder / "old"), HasSubstr("old: is not a file of torch.save"));
}

} // namespace
} // namespace espalier::rt
