// Tests the values that the pickle reader builds. The reader never executes a call that a pickle contains.
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include "runtime/checkpoint/convert/pickle.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using Kind = PickleValue::Kind;

/// Returns the bytes of a literal, including "\0".
template <size_t N> std::string raw(const char (&text)[N]) { return std::string(text, N - 1); }

std::string shortNumber(int64_t value) {
  return value < 256 && value >= 0 ? std::string("K") + static_cast<char>(value)
                                   : raw("\x8a\x08") + std::string(reinterpret_cast<const char *>(&value), 8);
}

std::string word(const std::string &text) {
  return "X" + std::string(1, static_cast<char>(text.size())) + raw("\0\0\0") + text;
}

std::string storageText(const std::string &type, const std::string &key, int64_t count) {
  return "(" + word("storage") + "ctorch\n" + type + "\n" + word(key) + word("cpu") + shortNumber(count) + "tQ";
}

std::string numbers(const std::vector<int64_t> &values) {
  std::string text = "(";
  for (int64_t value : values)
    text += shortNumber(value);
  return text + "t";
}

std::string tensorText(int64_t count, int64_t offset, const std::vector<int64_t> &shape,
                       const std::vector<int64_t> &strides, const std::string &type = "FloatStorage") {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storageText(type, "0", count) + shortNumber(offset) + numbers(shape) +
         numbers(strides) + raw("\x89") + "ccollections\nOrderedDict\n)RtR";
}

/// Returns the error of reading a pickle, or an empty string.
std::string readError(const std::string &text) {
  try {
    Pickle pickle(std::as_bytes(std::span(text)));
    return "";
  } catch (const PlanError &error) {
    return error.what();
  }
}

TEST(PickleReader, BuildsDictsAndTensors) {
  std::string text = raw("\x80\x02}q\x00(") + word("a") + tensorText(12, 2, {2, 3}, {1, 3}) + word("b") + raw("J") +
                     raw("\xfb\xff\xff\xff") + word("c") + raw("G\x3f\xf8\0\0\0\0\0\0") + word("d") +
                     raw("\x8a\x01\xff") + word("e") +
                     raw("]q\x05(K\x01K\x02"
                         "e") +
                     word("f") + raw("h\x05") + word("g") + raw("\x88") + word("h") + "N" + word("i") +
                     raw("M\x01\x02") + word("j") + raw("K\x01K\x02\x86") + word("k") + raw("U\x02xy") + "u.rest";
  Pickle pickle(std::as_bytes(std::span(text)));
  EXPECT_EQ(pickle.size(), text.size() - 4);
  const PickleValue &root = pickle.root();
  ASSERT_EQ(root.find("a")->kind, Kind::Tensor);
  EXPECT_EQ(root.find("a")->tensor.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(root.find("a")->tensor.strides, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(root.find("a")->tensor.offset, 2u);
  EXPECT_EQ(root.find("b")->integer, -5);
  EXPECT_EQ(root.find("c")->number, 1.5);
  EXPECT_EQ(root.find("d")->integer, -1);
  EXPECT_EQ(root.find("e"), root.find("f"));
  EXPECT_EQ(root.find("e")->items.size(), 2u);
  EXPECT_EQ(root.find("g")->integer, 1);
  EXPECT_EQ(root.find("h")->kind, Kind::None);
  EXPECT_EQ(root.find("i")->integer, 513);
  EXPECT_EQ(root.find("j")->items[1]->integer, 2);
  EXPECT_EQ(root.find("k")->text, "xy");
  EXPECT_EQ(root.find("z"), nullptr);
  EXPECT_EQ(pickle.storages().at("0").count, 12u);
}

// The reader replaces a call by the name of the called function.
TEST(PickleReader, CallsNothing) {
  std::string file = "/tmp/espalier-was-here";
  std::string text = raw("\x80\x02}(") + word("evil") + "cposix\nsystem\n" + word("touch " + file) + raw("\x85R") +
                     word("object") + "cos\nPath\n)" + raw("\x81}") + "b" + word("twice") + "cx\ny\n)R)R" + "u.";
  Pickle pickle(std::as_bytes(std::span(text)));
  EXPECT_EQ(pickle.root().find("evil")->kind, Kind::Inert);
  EXPECT_EQ(pickle.root().find("evil")->text, "posix.system");
  EXPECT_EQ(pickle.root().find("object")->text, "os.Path");
  EXPECT_EQ(pickle.root().find("twice")->kind, Kind::Inert);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(PickleReader, TensorsStayWithinTheirStorage) {
  auto tensor = [](int64_t count, int64_t offset, const std::vector<int64_t> &shape,
                   const std::vector<int64_t> &strides) {
    return readError(raw("\x80\x02") + tensorText(count, offset, shape, strides) + ".");
  };
  EXPECT_EQ(tensor(12, 0, {3, 4}, {4, 1}), "");
  EXPECT_EQ(tensor(12, 11, {}, {}), "");
  EXPECT_EQ(tensor(12, 100, {0, 4}, {4, 1}), "");
  EXPECT_THAT(tensor(12, 1, {3, 4}, {4, 1}), HasSubstr("reaches past its storage '0' of 12 elements"));
  EXPECT_THAT(tensor(12, 12, {}, {}), HasSubstr("reaches past"));
  EXPECT_THAT(tensor(12, 0, {13}, {0}), HasSubstr("reaches past")); // more elements than the storage has
  EXPECT_THAT(tensor(12, 0, {2}, {int64_t(1) << 62}), HasSubstr("reaches past"));
  EXPECT_THAT(tensor(12, 0, {int64_t(1) << 40, int64_t(1) << 40}, {0, 0}), HasSubstr("reaches past"));
  EXPECT_THAT(tensor(12, 0, {-3}, {1}), HasSubstr("a size of -3"));
  EXPECT_THAT(tensor(12, 0, {3}, {-1}), HasSubstr("a size of -1"));
  EXPECT_THAT(tensor(12, -1, {3}, {1}), HasSubstr("a size of -1"));
  EXPECT_THAT(tensor(-12, 0, {3}, {1}), HasSubstr("a size of -12"));
  EXPECT_THAT(tensor(12, 0, {3, 4}, {4}), HasSubstr("a tensor of 2 dimensions has 1 strides"));
  EXPECT_THAT(tensor(12, 0, std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1)),
              HasSubstr("a shape that is not a short list"));
  EXPECT_THAT(readError(raw("\x80\x02") + tensorText(12, 0, {3}, {1}, "SecretStorage") + "."),
              HasSubstr("a storage of 'torch.SecretStorage', a type that is not supported"));
  EXPECT_THAT(
      readError(raw("\x80\x02(") + storageText("FloatStorage", "0", 3) + storageText("FloatStorage", "0", 4) + "t."),
      HasSubstr("storage '0' has two sizes or types"));
  EXPECT_THAT(readError(raw("\x80\x02") + "(" + word("storage") + "ctorch\nFloatStorage\n" + word("0") + word("cpu") +
                        word("many") + "tQ."),
              HasSubstr("a size that is not a number"));
}

TEST(PickleReader, RejectsInvalidPickles) {
  for (const auto &[text, reason] : std::initializer_list<std::pair<std::string, const char *>>{
           {"", "it is cut off"},
           {raw("\x80"), "it is cut off"},
           {raw("\x80\x06."), "protocol 6, up to 5 is read"},
           {raw("\x80\x04\x95"), "it is cut off"},
           {raw("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "it is cut off"},
           {raw("\x80\x04NN\x93."), "the name of an object is no text"},
           {raw("\x80\x02."), "it ends with 0 values"},
           {raw("\x80\x02NN."), "it ends with 2 values"},
           {raw("\x80\x02N(."), "it ends with"},
           {raw("\x80\x02t"), "it pops to a mark that does not exist"},
           {raw("\x80\x02\x85."), "it pops from an empty stack"},
           {raw("\x80\x02N(\x85."), "it pops from an empty stack"},
           {raw("\x80\x02q\x01"), "it pops from an empty stack"},
           {raw("\x80\x02h\x01."), "it reads a memo entry that does not exist"},
           {raw("\x80\x02X\xff\xff\xff\xff"), "it is cut off"},
           {raw("\x80\x02\x8a\xff"), "it is cut off"},
           {raw("\x80\x02"
                "cposix"),
            "it is cut off"},
           {raw("\x80\x02NNa."), "it appends to a value that is not a list"},
           {raw("\x80\x02NNNs."), "it sets an item of a value that is not a dict"},
           {raw("\x80\x02}(Nu."), "a key without a value"},
           {raw("\x80\x02NNb."), "it sets the state of a value without state"},
           {raw("\x80\x02NQ."), "it refers to an object that is not a storage"},
           {raw("\x80\x02"
                "ca\nb\nNR."),
            "it calls something without arguments"},
           {raw("\x80\x02i"), "opcode 0x69 at 2 is not one that torch.save writes"}})
    EXPECT_THAT(readError(text), testing::AllOf(HasSubstr("damaged pickle"), HasSubstr(reason))) << text;
}

} // namespace
} // namespace espalier::rt
