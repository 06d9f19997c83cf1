// Compares the GPU kernels that choose experts and move rows, run in the emulator, with the runtime's CPU kernels.
#include "test/compiler/codegen/cuda/call_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier::test {

namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Not;

std::string saved(const std::string &name) { return " {model.role = \"saved\", model.name = \"" + name + "\"}"; }

struct Route {
  int64_t batch = 2, seq = 37, experts = 5, choices = 2, capacity = 11;
  std::string type = "f32";
  int64_t groups = 1, keptGroups = 1;

  std::string grouping() const {
    return groups > 1 ? ", groups = " + std::to_string(groups) + " : i64, kept_groups = " + std::to_string(keptGroups) +
                            " : i64"
                      : "";
  }
  CallMachine machine() const {
    std::string tokens = std::to_string(batch) + "x" + std::to_string(seq) + "x";
    std::string scores =
        "tensor<" + tokens + std::to_string(experts) + "x" + type + ", #model.dims<batch, seq, router>>";
    std::string places = "tensor<" + std::to_string(choices) + "x" + tokens + "i32, #model.dims<choice, batch, seq>>";
    return CallMachine("func.func @block.forward(%x: " + scores + saved("scores") + ") -> (" + places + saved("ids") +
                       ", " + places + saved("slots") + ") {\n %i, %s = model.route %x {capacity = " +
                       std::to_string(capacity) + " : i64" + grouping() + "} : (" + scores + ") -> (" + places + ", " +
                       places + ")\n return %i, %s : " + places + ", " + places + "\n}");
  }
};

/// Checks a routing with `levels` different scores. With few levels, many scores are equal.
void checkRoute(const Route &route, int levels) {
  CallMachine machine = route.machine();
  std::mt19937 random(1);
  for (double &score : machine.values("scores"))
    score = static_cast<double>(random() % static_cast<unsigned>(levels)) - levels / 2;
  EXPECT_THAT(machine.kernels(), ElementsAre("choose_experts", "give_slots"));
  machine.run({});
  EXPECT_EQ(machine.cuda("ids"), machine.cpu("ids"));
  EXPECT_EQ(machine.cuda("slots"), machine.cpu("slots"));
}

TEST(RouteKernels, FewExperts) { checkRoute({}, 100); }
TEST(RouteKernels, EqualScores) { checkRoute({.experts = 70, .choices = 5, .capacity = 3}, 3); }
TEST(RouteKernels, MoreExpertsThanLanes) {
  checkRoute({.batch = 1, .experts = 128, .choices = 8, .capacity = 4}, 9999);
}
TEST(RouteKernels, AllExpertsOfATokenInBf16) { checkRoute({.experts = 4, .choices = 4, .type = "bf16"}, 7); }
TEST(RouteKernels, Groups) {
  checkRoute({.experts = 24, .choices = 4, .capacity = 9, .groups = 6, .keptGroups = 2}, 9999);
}
TEST(RouteKernels, GroupsWithEqualScores) {
  checkRoute({.experts = 64, .choices = 5, .capacity = 9, .groups = 32, .keptGroups = 3}, 3);
}
TEST(RouteKernels, GroupsOfOneExpertInBf16) {
  checkRoute({.experts = 7, .choices = 2, .type = "bf16", .groups = 7, .keptGroups = 3}, 9);
}
TEST(RouteKernels, LongSequences) { checkRoute({.batch = 1, .seq = 600, .experts = 3, .capacity = 300}, 50); }

/// Ids are valid expert indices even if scores are NaN or infinite. NaN scores come last.
TEST(RouteKernels, NanScoresComeLast) {
  Route route{.batch = 1, .seq = 3, .experts = 3, .choices = 3, .capacity = 3};
  CallMachine machine = route.machine();
  double nan = std::nan(""), infinity = HUGE_VAL;
  machine.values("scores") = {nan, 1, 2, /**/ nan, nan, nan, /**/ -infinity, nan, infinity};
  machine.runCuda({});
  EXPECT_THAT(machine.cuda("ids"), ElementsAre(2, 0, 2, /**/ 1, 1, 0, /**/ 0, 2, 1));
}

struct Moved {
  bool isDispatch = true, hasChoice = false, hasWeights = false;
  int64_t hidden = 24;
  std::string from = "f32", to = "f32";

  static constexpr int64_t choices = 2, batch = 2, seq = 9, experts = 3, capacity = 5;

  std::string tensor(const std::string &sizes, const std::string &type, const std::string &dims) const {
    return "tensor<" + sizes + "x" + type + ", #model.dims<" + dims + ">>";
  }

  CallMachine machine() const {
    std::string depth = "x" + std::to_string(hidden), places = tensor("2x2x9", "i32", "choice, batch, seq");
    std::string weights = tensor("2x2x9", "f32", "choice, batch, seq"), choice = hasChoice ? "choice, " : "";
    auto ofTokens = [&](const std::string &type) {
      return tensor((hasChoice ? "2x2x9" : "2x9") + depth, type, choice + "batch, seq, hidden");
    };
    auto ofExperts = [&](const std::string &type) {
      return tensor("3x2x5" + depth, type, "expert, batch, capacity, hidden");
    };
    std::string x = isDispatch ? ofTokens(from) : ofExperts(from), y = isDispatch ? ofExperts(to) : ofTokens(to);
    std::string arguments =
        "%i: " + places + saved("ids") + ", %s: " + places + saved("slots") + ", %x: " + x + saved("x");
    std::string types = places + ", " + places + ", " + x;
    if (hasWeights) {
      arguments += ", %w: " + weights + saved("weights");
      types += ", " + weights;
    }
    return CallMachine("func.func @block.forward(" + arguments + ") -> (" + y + saved("y") + ") {\n %y = model." +
                       (isDispatch ? "dispatch" : "combine") + " %i, %s, %x" + (hasWeights ? ", %w" : "") + " : (" +
                       types + ") -> " + y + "\n return %y : " + y + "\n}");
  }
};

/// Assigns expert slots in order to each sample's choices. A token gets no slot if the expert is full.
void givePlaces(CallMachine &machine) {
  std::mt19937 random(3);
  for (int64_t sample = 0; sample < Moved::batch; ++sample) {
    std::vector<int> taken(Moved::experts, 0);
    for (int64_t choice = 0; choice < Moved::choices; ++choice)
      for (int64_t position = 0; position < Moved::seq; ++position) {
        auto at = static_cast<size_t>((choice * Moved::batch + sample) * Moved::seq + position);
        auto expert = static_cast<size_t>(random() % (choice == 0 ? 3 : 2));
        machine.values("ids")[at] = static_cast<double>(expert);
        machine.values("slots")[at] = taken[expert] < Moved::capacity ? taken[expert] : -1;
        ++taken[expert];
      }
  }
}

void checkMove(const Moved &move) {
  CallMachine machine = move.machine();
  givePlaces(machine);
  EXPECT_THAT(machine.values("slots"), testing::Contains(-1));
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (double &value : machine.values("x"))
    value = normal(random);
  if (move.hasWeights)
    for (double &value : machine.values("weights"))
      value = normal(random);
  if (move.isDispatch)
    EXPECT_THAT(machine.kernels(), ElementsAre("find_rows", "dispatch"));
  else
    EXPECT_THAT(machine.kernels(), ElementsAre("combine"));
  machine.run({});
  EXPECT_THAT(machine.cuda("y"), Not(Each(0)));
  // Without weights, rows are copied exactly. With weights, a sum of two products may have one rounding less.
  double bound = !move.hasWeights && move.from == move.to ? 0 : move.to == "f32" ? 1e-6 : 0x1p-7;
  for (size_t i = 0; i < machine.cpu("y").size(); ++i)
    ASSERT_NEAR(machine.cuda("y")[i], machine.cpu("y")[i], bound * (1 + std::abs(machine.cpu("y")[i]))) << i;
}

TEST(DispatchKernels, RowsOfTokens) { checkMove({}); }
TEST(DispatchKernels, RowsOfChoices) { checkMove({.hasChoice = true, .hidden = 9}); }
TEST(DispatchKernels, WeightedInBf16) { checkMove({.hasWeights = true, .hidden = 296, .from = "bf16", .to = "bf16"}); }
TEST(DispatchKernels, WeightedRowsOfChoices) {
  checkMove({.hasChoice = true, .hasWeights = true, .from = "f16", .to = "f32"});
}
TEST(CombineKernel, SumsChoices) { checkMove({.isDispatch = false}); }
TEST(CombineKernel, WeightedInBf16) {
  checkMove({.isDispatch = false, .hasWeights = true, .from = "bf16", .to = "bf16"});
}
TEST(CombineKernel, RowsOfChoicesOfOddLength) { checkMove({.isDispatch = false, .hasChoice = true, .hidden = 7}); }
TEST(CombineKernel, WeightedRowsOfChoices) {
  checkMove({.isDispatch = false, .hasChoice = true, .hasWeights = true, .from = "f32", .to = "f16"});
}

/// Products of the rows of 4 experts, of which two have tokens. The weights of the others are NaN, because the kernel
/// must not read them.
struct Product {
  int64_t rows = 1, depth = 40, columns = 48;
  std::string type = "f32", result = "f32";

  void check() const {
    std::string m = std::to_string(rows), k = std::to_string(depth), n = std::to_string(columns);
    std::string a = "tensor<4x" + m + "x1x" + k + "x" + type + ", #model.dims<expert, batch, capacity, hidden>>";
    std::string b = "tensor<4x" + k + "x" + n + "x" + type + ", #model.dims<expert, hidden, ffn>>";
    std::string c = "tensor<4x" + m + "x1x" + n + "x" + result + ", #model.dims<expert, batch, capacity, ffn>>";
    CallMachine machine("func.func @block.forward(%a: " + a + saved("a") + ", %b: " + b + saved("b") + ") -> (" + c +
                        saved("c") + ") {\n %c = model.contract %a, %b : (" + a + ", " + b + ") -> " + c +
                        "\n return %c : " + c + "\n}");
    ASSERT_THAT(machine.kernels(), ElementsAre("few_rows"));
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    auto chosen = [](int64_t expert) { return expert % 2 == 1; };
    for (int64_t i = 0; i < 4 * rows * depth; ++i) // the last row of an expert is empty if there are others
      machine.values("a")[static_cast<size_t>(i)] =
          chosen(i / (rows * depth)) && (rows == 1 || i / depth % rows < rows - 1) ? normal(random) : 0;
    for (int64_t i = 0; i < 4 * depth * columns; ++i)
      machine.values("b")[static_cast<size_t>(i)] = chosen(i / (depth * columns)) ? normal(random) : std::nan("");
    machine.run({});
    double bound = result == "f32" ? 1e-5 : 0x1p-7;
    for (size_t i = 0; i < machine.cpu("c").size(); ++i) {
      ASSERT_NEAR(machine.cuda("c")[i], machine.cpu("c")[i], bound * (4 + std::abs(machine.cpu("c")[i]))) << i;
      if (!chosen(static_cast<int64_t>(i) / (rows * columns)))
        ASSERT_EQ(machine.cuda("c")[i], 0) << i;
    }
    EXPECT_THAT(machine.cuda("c"), testing::Contains(testing::Gt(1)));
  }
};

TEST(FewRowsKernel, OneRow) { Product{}.check(); }
TEST(FewRowsKernel, OneRowInBf16) { Product{.depth = 100, .columns = 520, .type = "bf16", .result = "bf16"}.check(); }
TEST(FewRowsKernel, SixteenRows) { Product{.rows = 16, .depth = 70, .type = "f16"}.check(); }
TEST(FewRowsKernel, OddColumns) { Product{.rows = 3, .depth = 9, .columns = 37, .type = "bf16"}.check(); }

/// Kernels neither read nor write rows for ids and slots that are out of range, as in a corrupted table.
TEST(DispatchKernels, InvalidIdsAndSlotsAreIgnored) {
  for (bool isDispatch : {true, false}) {
    CallMachine machine = Moved{.isDispatch = isDispatch}.machine();
    givePlaces(machine);
    machine.values("ids")[2] = 1000;
    machine.values("ids")[4] = -5;
    machine.values("slots")[6] = 5;
    for (double &value : machine.values("x"))
      value = 1;
    machine.run({});
    EXPECT_EQ(machine.cuda("y"), machine.cpu("y"));
  }
}

} // namespace
} // namespace espalier::test
