// Tests which contents count as text.
#include "runtime/dataset/text_check.h"

#include "messages/data_error.h"
#include "runtime/dataset/text_source.h"
#include "test/runtime/tokenizer/golden.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using namespace test;
using namespace std::string_view_literals;
using testing::HasSubstr;
using testing::Optional;

/// Returns the error of requireRawText for a file "f" with this content, or an empty string.
std::string rawFault(std::string_view content) {
  try {
    requireRawText("f", content);
    return "";
  } catch (const DataError &error) {
    return error.what();
  }
}

TEST(FindBinary, TextOfAnyScriptIsNoBinary) {
  for (std::string_view text :
       {"", "a", "plain ASCII of more than eight bytes\r\n\t\x0c\x7f", "déjà vu", "数据集", "🙂", "seven by\xc3\xa9"})
    EXPECT_EQ(findBinary(text), std::nullopt) << text;
}

TEST(FindBinary, NamesTheFirstByteWhereverItIs) {
  for (size_t at = 0; at < 40; ++at)
    for (char byte : {'\0', '\x80', '\xff', '\xc0'}) {
      std::string text(40, 'x');
      text[at] = byte;
      EXPECT_THAT(findBinary(text), Optional(at)) << int(byte);
      EXPECT_THAT(findBinary(text + "\xff"), Optional(at)) << int(byte);
    }
  EXPECT_THAT(findBinary("ab\xed\xa0\x80"), Optional(2)); // half of a surrogate pair
  EXPECT_THAT(findBinary("ab\xe6\x95"), Optional(2));     // truncated
}

TEST(DescribeBinary, CountsLinesAndBytes) {
  BinaryByte first = describeBinary("\0"sv, 0), later = describeBinary("one\ntwo\nab\xff", 10);
  EXPECT_EQ(first.line, 0);
  EXPECT_EQ(first.reason, "byte 1 of the line is 0x00, want UTF-8 text without NUL");
  EXPECT_EQ(later.line, 2);
  EXPECT_EQ(later.reason, "byte 3 of the line is 0xff, want UTF-8 text without NUL");
}

TEST(RequireRawText, AcceptsOnlyText) {
  EXPECT_EQ(rawFault("some text\n"), "");
  EXPECT_EQ(rawFault("{ a set in mathematics }\n"), "");
  EXPECT_EQ(rawFault("the end cuts off \xe6\x95"), "");
  EXPECT_THAT(rawFault("\x1f\x8b\x08"sv),
              HasSubstr("f: error: is gzip, which a run does not read; `espalier data tokenize f"));
  EXPECT_THAT(rawFault("{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), HasSubstr("is JSON lines, which a run does not read"));
  EXPECT_THAT(rawFault("\r\n\n{\"text\":NaN}\n"), HasSubstr("is JSON lines"));
  EXPECT_THAT(rawFault("[\n  {\"text\":\"a\"}\n]\n"), HasSubstr("is JSON lines"));
  EXPECT_EQ(rawFault("[1] a note\n"), "");
  EXPECT_THAT(rawFault("PAR1\x15\x04"sv), HasSubstr("is a Parquet file, not text; python3 tools/to_jsonl.py"));
  EXPECT_THAT(rawFault("text\nmore\0text"sv), HasSubstr("f:2: error: byte 5 of the line is 0x00"));
  EXPECT_THAT(rawFault("\x08\x02\x12\xff"sv), HasSubstr("the prefix of a dataset that `espalier data tokenize` makes"));
}

TEST(RequireTextFormat, ExplainsHowToConvertEachFormat) {
  for (auto [bytes, hint] : {std::pair("PAR1"sv, "to_jsonl.py COLUMN f |"),
                             {"ARROW1\0\0"sv, "to_jsonl.py COLUMN f |"},
                             {"\xff\xff\xff\xff\x10"sv, "is an Arrow stream, not text; python3 tools/to_jsonl.py"},
                             {"\x88\xd8\x34\x01\1"sv, "to_jsonl.py --tokens uint16 f |"},
                             {"\xa1\xd9\x34\x01\1"sv, "to_jsonl.py --tokens uint32 f |"},
                             {"\x28\xb5\x2f\xfd"sv, "zstd -dc f |"},
                             {"\xfd\x37zXZ\0"sv, "xz -dc f |"},
                             {"BZh9"sv, "bzip2 -dc f |"},
                             {"PK\x03\x04"sv, "JSON lines"},
                             {"MMIDIDX\0\0"sv, "by its prefix"}})
    try {
      requireTextFormat("f", bytes);
      ADD_FAILURE() << hint;
    } catch (const DataError &error) {
      EXPECT_THAT(error.what(), HasSubstr(hint));
    }
  try {
    requireTextFormat(standardInput, "PAR1");
    ADD_FAILURE();
  } catch (const DataError &error) {
    EXPECT_THAT(error.what(), HasSubstr("standard input: error: is a Parquet file, not text; python3 "
                                        "tools/to_jsonl.py COLUMN FILE |"));
  }
  EXPECT_NO_THROW(requireTextFormat("f", "PA"));
}

TEST(OpenText, RejectsOtherFiles) {
  Scratch scratch;
  spit(scratch.path("a"), std::string("binary\0", 7));
  EXPECT_THROW(openText(scratch.path("a")), DataError);
}

} // namespace
} // namespace espalier::rt
