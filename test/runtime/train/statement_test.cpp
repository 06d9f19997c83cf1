// Tests the comparison of statements: as a function of all statements, and between ranks.
#include "runtime/train/statement.h"

#include "runtime/comm/local.h"

#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <thread>

namespace espalier::rt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Statement statement(const std::string &data, const std::string &steps = "4") {
  return {{TermKind::Build, "", "0.1.0 (build 1)"},
          {TermKind::Library, "libm.so.6", "900 bytes a"},
          {TermKind::Option, "--steps", steps},
          {TermKind::Data, "data", data}};
}

TEST(StatementTest, EqualStatementsDoNotDiffer) {
  EXPECT_EQ(differenceOf({}), "");
  std::vector<Stated> ranks(3, {"a", statement("text")});
  EXPECT_EQ(differenceOf(ranks), "");
}

// Two groups of equal size: the host of rank 0 comes last, because it is the reference.
TEST(StatementTest, NamesHostsAndValuesOfTwoGroups) {
  std::vector<Stated> ranks = {
      {"a", statement("one")}, {"a", statement("one")}, {"b", statement("two")}, {"b", statement("two")}};
  EXPECT_EQ(differenceOf(ranks),
            "the hosts of the run have different data: two on b (rank 2), one on a (rank 0); give every host the "
            "same files; the paths may be the same while the contents are not");
}

TEST(StatementTest, TheSmallestOfThreeGroupsComesFirst) {
  std::vector<Stated> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.push_back({fmt::format("h{}", rank), statement("same", rank == 5                ? "6"
                                                                 : rank == 6 || rank == 7 ? "5"
                                                                                          : "4")});
  EXPECT_EQ(differenceOf(ranks),
            "the hosts of the run have different values of the option --steps: 6 on h5 (rank 5), 5 on h6 "
            "(rank 6), h7 (rank 7), 4 on h0 (rank 0), h1 (rank 1), h2 (rank 2) and 2 more hosts; "
            "give every host the same command");
  for (int rank = 0; rank < 8; ++rank)
    ranks[rank].statement = statement("same", std::to_string(rank));
  EXPECT_THAT(differenceOf(ranks), AllOf(HasSubstr("7 on h7 (rank 7), 6 on h6"), HasSubstr(", and 4 further values")));
}

// A term that one rank lacks differs, be it the first rank or another one.
TEST(StatementTest, ATermMayBeMissing) {
  std::vector<Stated> ranks = {{"a", statement("text")}, {"b", statement("text")}};
  ranks[1].statement.push_back({TermKind::Variable, "NCCL_ALGO", "'Tree'"});
  const char *text =
      "the hosts of the run have different values of the environment variable NCCL_ALGO: 'Tree' on b (rank 1), "
      "none on a (rank 0); set it to the same value on every host, or on none; mpirun passes it "
      "on with -x NCCL_ALGO";
  EXPECT_EQ(differenceOf(ranks), text);
  std::swap(ranks[0].statement, ranks[1].statement);
  EXPECT_THAT(differenceOf(ranks), HasSubstr("none on b (rank 1), 'Tree' on a (rank 0)"));
}

// Of a long value, the sentence shows the part that differs.
TEST(StatementTest, ShowsTheDifferenceOfLongValues) {
  std::string one(5000, 'x'), two = one;
  two.replace(3000, 5, "HERE!");
  std::vector<Stated> ranks = {{"a", statement(one)}, {"b", statement(two)}};
  std::string text = differenceOf(ranks);
  EXPECT_THAT(text, HasSubstr("xHERE!x"));
  EXPECT_LT(text.size(), 700u);
}

/// Runs `work` in a thread per rank.
void inRanks(int ranks, const std::function<void(Agreement &, int)> &work) {
  LocalWorld world(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank)
    communicators.push_back(world.communicator(rank));
  std::vector<std::jthread> threads; // ends first
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Agreement agreement(*communicators[rank], /*isFirstHere=*/true, /*spins=*/0);
      work(agreement, rank);
    });
}

// Statements longer than one message, of which one rank has another length.
TEST(StatementTest, RanksFindTheSameDifference) {
  constexpr int ranks = 4;
  std::vector<std::string> found(ranks);
  std::vector<std::vector<Met>> met(ranks);
  inRanks(ranks, [&](Agreement &agreement, int rank) {
    Statement own = statement(std::string(rank == 2 ? 9000 : 5000, 'd'));
    own.push_back({TermKind::Variable, "NCCL_PROTO", "\xff\n"}); // not UTF-8
    found[rank] = compareStatements(agreement, own, met[rank]);
  });
  EXPECT_THAT(found[0], AllOf(HasSubstr("different data"), HasSubstr("(rank 2)")));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(found[rank], found[0]);
    ASSERT_EQ(met[rank].size(), size_t{ranks});
    EXPECT_EQ(met[rank][3].pid, getpid());
  }
}

TEST(StatementTest, EqualRanksNeedOneMessage) {
  std::vector<std::string> found(3, "none");
  inRanks(3, [&](Agreement &agreement, int rank) {
    std::vector<Met> met;
    found[rank] = compareStatements(agreement, statement("text"), met);
    EXPECT_EQ(agreement.tell(std::to_string(rank)), (std::vector<std::string>{"0", "1", "2"})); // still in step
  });
  EXPECT_EQ(found, std::vector<std::string>(3, ""));
}

// 1,024 ranks: what each computes of the others' messages is far below a second.
TEST(StatementTest, ComparesAThousandRanksQuickly) {
  std::vector<Stated> ranks;
  for (int rank = 0; rank < 1024; ++rank)
    ranks.push_back({fmt::format("h{}", rank / 8), statement(rank == 900 ? "two" : "one")});
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(differenceOf(ranks), HasSubstr("two on h112 (rank 900)"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

} // namespace
} // namespace espalier::rt
