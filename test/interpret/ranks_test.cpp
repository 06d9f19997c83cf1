#include "test/interpret/run_ranks.h"

#include "test/interpret/program.h"

namespace espalier {
namespace {

using testing::HasSubstr;

class Ranks : public testing::Test {
protected:
  Tensor number(double value) { return {mlir::RankedTensorType::get({}, mlir::Float32Type::get(&context)), {value}}; }
  static llvm::Error error(const std::string &text) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
  }
  mlir::MLIRContext context;
};

TEST_F(Ranks, MessagesArriveInTheOrderSentPerTag) {
  std::vector<double> received;
  llvm::Error failure = runRanks(2, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    Rendezvous &rendezvous = *evalContext.rendezvous;
    if (rank == 0) {
      for (int value : {1, 2, 3})
        rendezvous.send(0, 1, /*tag=*/7, number(value));
      rendezvous.send(0, 1, /*tag=*/8, number(4));
      return llvm::Error::success();
    }
    for (int64_t tag : {8, 7, 7, 7}) {
      auto value = rendezvous.receive(0, 1, tag);
      if (!value)
        return value.takeError();
      received.push_back(value->values[0]);
    }
    return llvm::Error::success();
  });
  EXPECT_EQ(llvm::toString(std::move(failure)), "");
  EXPECT_THAT(received, testing::ElementsAre(4, 1, 2, 3));
}

TEST_F(Ranks, ExchangeGivesAllPartsByPosition) {
  std::vector<std::vector<double>> seen(4);
  llvm::Error failure = runRanks(4, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    for (int round = 0; round < 50; ++round) {
      auto parts = evalContext.rendezvous->exchange({"all", 3 - rank, 4, "sum"}, number(10 * round + rank));
      if (!parts)
        return parts.takeError();
      seen[rank].clear();
      for (const auto &part : *parts)
        seen[rank].push_back(part->values[0]);
    }
    return llvm::Error::success();
  });
  EXPECT_EQ(llvm::toString(std::move(failure)), "");
  for (const auto &values : seen)
    EXPECT_THAT(values, testing::ElementsAre(493, 492, 491, 490));
}

TEST_F(Ranks, AFailureEndsTheWaitsOfTheOthersAndIsNamed) {
  llvm::Error failure = runRanks(3, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    if (rank == 1)
      return error("broken on purpose");
    return evalContext.rendezvous->exchange({"all", rank, 3, "sum"}, number(0)).takeError();
  });
  EXPECT_EQ(llvm::toString(std::move(failure)), "rank 1: broken on purpose");
}

TEST_F(Ranks, AMissingMessageIsAnErrorNotADeadlock) {
  llvm::Error failure = runRanks(3, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    if (rank == 2) // this rank returns, so only two ranks wait
      return llvm::Error::success();
    return evalContext.rendezvous->receive(1 - rank, rank, 5).takeError();
  });
  EXPECT_THAT(llvm::toString(std::move(failure)),
              HasSubstr("all ranks are blocked, waiting for message 5 from rank 0 to rank 1, message 5 from rank 1 to "
                        "rank 0"));
}

TEST_F(Ranks, ARankThatEndsWithoutItsSendCausesNoDeadlock) {
  llvm::Error failure = runRanks(2, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    if (rank == 0)
      return llvm::Error::success();
    return evalContext.rendezvous->receive(0, 1, 9).takeError();
  });
  EXPECT_THAT(llvm::toString(std::move(failure)), HasSubstr("rank 1: all ranks are blocked"));
}

TEST_F(Ranks, MembersThatDisagreeOnTheOperationAreRefused) {
  llvm::Error failure = runRanks(2, [&](int rank, EvalContext &evalContext) -> llvm::Error {
    return evalContext.rendezvous->exchange({"all", rank, 2, rank ? "gather" : "sum"}, number(0)).takeError();
  });
  EXPECT_THAT(llvm::toString(std::move(failure)), HasSubstr("group all meets for "));
}

TEST_F(Ranks, PlaceOnCountsTheLastAxisFastest) {
  Program program("module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 3, tp = 2>} {}");
  EvalContext evalContext;
  evalContext.placeOn(program.module.get()->getAttrOfType<dist::MeshAttr>("dist.mesh"), 9);
  EXPECT_EQ(evalContext.coordinate("pp"), 1);
  EXPECT_EQ(evalContext.coordinate("dp"), 1);
  EXPECT_EQ(evalContext.coordinate("tp"), 1);
  EXPECT_EQ(evalContext.coordinate("ep"), 0);
  EXPECT_EQ(evalContext.axisSize("dp"), 3);
  EXPECT_EQ(evalContext.axisSize("ep"), 1);
}

} // namespace
} // namespace espalier
