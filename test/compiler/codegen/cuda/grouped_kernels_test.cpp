// Compares the GPU kernels of dropless experts, run in the emulator, with the runtime's CPU kernels: the slots and
// owners of a route with holders, moves of rows to holders, and products of rows with the matrices of their owners.
#include "test/compiler/codegen/cuda/call_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier::test {

namespace {

using testing::Contains;
using testing::ElementsAre;

std::string saved(const std::string &name) { return " {model.role = \"saved\", model.name = \"" + name + "\"}"; }

std::string tensor(const std::vector<int64_t> &shape, const std::string &type, const std::string &dims) {
  std::string sizes;
  for (int64_t size : shape)
    sizes += std::to_string(size) + "x";
  return "tensor<" + sizes + type + ", #model.dims<" + dims + ">>";
}

/// Checks a route whose experts share the slots of holders.
void checkRoute(int64_t seq, int64_t experts, int64_t each, int64_t choices, int64_t capacity, int levels) {
  const int64_t batch = 2, holders = experts / each;
  std::string scores = tensor({batch, seq, experts}, "f32", "batch, seq, router"),
              places = tensor({choices, batch, seq}, "i32", "choice, batch, seq"),
              owners = tensor({holders, batch, capacity}, "i32", "holder, batch, capacity"),
              results = places + ", " + places + ", " + owners;
  CallMachine machine("func.func @block.forward(%x: " + scores + saved("scores") + ") -> (" + places + saved("ids") +
                      ", " + places + saved("slots") + ", " + owners + saved("owners") +
                      ") {\n %i, %s, %o = model.route %x {capacity = " + std::to_string(capacity) +
                      " : i64, each = " + std::to_string(each) + " : i64} : (" + scores + ") -> (" + results +
                      ")\n return %i, %s, %o : " + results + "\n}");
  std::mt19937 random(1);
  for (double &score : machine.values("scores"))
    score = static_cast<double>(random() % static_cast<unsigned>(levels));
  EXPECT_THAT(machine.kernels(), ElementsAre("choose_experts", "give_slots"));
  machine.run({});
  EXPECT_EQ(machine.cuda("ids"), machine.cpu("ids"));
  EXPECT_EQ(machine.cuda("slots"), machine.cpu("slots"));
  EXPECT_EQ(machine.cuda("owners"), machine.cpu("owners"));
}

TEST(HolderKernels, SlotsForAllChoices) { checkRoute(37, 6, 3, 2, 74, 100); }
TEST(HolderKernels, ChoicesBeyondTheSlots) { checkRoute(300, 8, 4, 3, 41, 5); }
TEST(HolderKernels, OneExpertPerHolder) { checkRoute(40, 4, 1, 2, 30, 50); }
TEST(HolderKernels, AllExpertsInOneHolder) { checkRoute(9, 40, 40, 4, 36, 9999); }

/// Rows of tokens move to the holders of their experts and back.
TEST(HolderKernels, RowsMoveToHoldersAndBack) {
  std::string places = tensor({2, 2, 9}, "i32", "choice, batch, seq"),
              tokens = tensor({2, 9, 24}, "f32", "batch, seq, hidden"),
              rows = tensor({2, 2, 18, 24}, "f32", "holder, batch, capacity, hidden");
  CallMachine machine("func.func @block.forward(%i: " + places + saved("ids") + ", %s: " + places + saved("slots") +
                      ", %x: " + tokens + saved("x") + ") -> (" + rows + saved("rows") + ", " + tokens + saved("y") +
                      ") {\n %r = model.dispatch %i, %s, %x {each = 3 : i64} : (" + places + ", " + places + ", " +
                      tokens + ") -> " + rows + "\n %y = model.combine %i, %s, %r {each = 3 : i64} : (" + places +
                      ", " + places + ", " + rows + ") -> " + tokens + "\n return %r, %y : " + rows + ", " + tokens +
                      "\n}");
  EXPECT_THAT(machine.kernels(), ElementsAre("find_rows", "dispatch", "combine"));
  std::mt19937 random(2);
  for (size_t sample = 0; sample < 2; ++sample) {
    double taken[2] = {0, 0};
    for (size_t choice = 0; choice < 2; ++choice)
      for (size_t position = 0; position < 9; ++position) {
        size_t at = (choice * 2 + sample) * 9 + position, expert = random() % 6;
        machine.values("ids")[at] = static_cast<double>(expert);
        machine.values("slots")[at] = position == 4 ? -1 : taken[expert / 3]++;
      }
  }
  for (double &value : machine.values("x"))
    value = static_cast<double>(random() % 100);
  machine.run({});
  EXPECT_EQ(machine.cuda("rows"), machine.cpu("rows"));
  EXPECT_EQ(machine.cuda("y"), machine.cpu("y"));
  EXPECT_THAT(machine.cuda("y"), Contains(testing::Gt(0)));
}

enum class Pass { Forward, Backward, Gradient };

/// Products of the rows of two holders of three experts. The last expert of each holder owns no row.
struct Product {
  Pass pass = Pass::Forward;
  int64_t capacity = 70, k = 40, n = 72;
  std::string type = "f32", result = "f32";
  bool isSorted = true;

  static constexpr int64_t holders = 2, batch = 2, each = 3;

  std::string rows(int64_t columns, const std::string &element, const char *dim) const {
    return tensor({holders, batch, capacity, columns}, element, std::string("holder, batch, capacity, ") + dim);
  }
  std::string matrices(const std::string &element) const {
    return tensor({holders * each, k, n}, element, "expert, hidden, ffn");
  }

  void check() const {
    std::string a = pass == Pass::Backward ? rows(n, type, "ffn") : rows(k, type, "hidden");
    std::string b = pass == Pass::Gradient ? rows(n, type, "ffn") : matrices(type);
    std::string y = pass == Pass::Forward    ? rows(n, result, "ffn")
                    : pass == Pass::Backward ? rows(k, result, "hidden")
                                             : matrices(result);
    std::string owners = tensor({holders, batch, capacity}, "i32", "holder, batch, capacity");
    CallMachine machine("func.func @block.forward(%a: " + a + saved("a") + ", %b: " + b + saved("b") +
                        ", %o: " + owners + saved("owners") + ") -> (" + y + saved("y") +
                        ") {\n %y = model.contract %a, %b owners %o : (" + a + ", " + b + ", " + owners + ") -> " + y +
                        "\n return %y : " + y + "\n}");
    EXPECT_THAT(machine.kernels(), ElementsAre(pass == Pass::Forward    ? "grouped"
                                               : pass == Pass::Backward ? "grouped_transposed"
                                                                        : "grouped_gradient"));
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const char *name : {"a", "b"})
      for (double &value : machine.values(name))
        value = normal(random);
    std::vector<double> &owner = machine.values("owners");
    for (size_t i = 0; i < owner.size(); ++i) {
      auto slot = static_cast<int64_t>(i) % capacity;
      owner[i] = isSorted ? (slot < capacity / 3   ? 0
                             : slot < capacity / 2 ? 1
                                                   : -1)
                          : static_cast<double>(static_cast<int64_t>(random() % 3) - 1);
    }
    if (pass == Pass::Gradient) // what rows without an owner hold does not matter
      for (size_t i = 0; i < owner.size(); ++i)
        for (int64_t column = 0; owner[i] < 0 && column < k; ++column)
          machine.values("a")[i * static_cast<size_t>(k) + static_cast<size_t>(column)] = std::nan("");
    machine.run({});
    double bound = result == "f32" && type == "f32" ? 1e-5 : result == "f32" ? 1e-4 : 0x1p-7;
    for (size_t i = 0; i < machine.cpu("y").size(); ++i)
      ASSERT_NEAR(machine.cuda("y")[i], machine.cpu("y")[i], bound * (4 + std::abs(machine.cpu("y")[i]))) << i;
    EXPECT_THAT(machine.cuda("y"), Contains(testing::Gt(1)));
    EXPECT_THAT(machine.cuda("y"), Contains(0)) << "rows without an owner, or an expert without rows";
  }
};

TEST(GroupedKernels, Products) { Product{}.check(); }
TEST(GroupedKernels, ProductsInBf16) { Product{.k = 136, .type = "bf16", .result = "bf16"}.check(); }
TEST(GroupedKernels, ProductsOfMixedOwners) { Product{.capacity = 33, .k = 9, .n = 5, .isSorted = false}.check(); }
TEST(GroupedKernels, TransposedProducts) { Product{.pass = Pass::Backward}.check(); }
TEST(GroupedKernels, TransposedProductsInF16) {
  Product{.pass = Pass::Backward, .n = 67, .type = "f16", .isSorted = false}.check();
}
TEST(GroupedKernels, Gradients) { Product{.pass = Pass::Gradient}.check(); }
TEST(GroupedKernels, GradientsInBf16) { Product{.pass = Pass::Gradient, .k = 80, .type = "bf16"}.check(); }
TEST(GroupedKernels, GradientsOfMixedOwners) {
  Product{.pass = Pass::Gradient, .capacity = 33, .k = 9, .n = 5, .isSorted = false}.check();
}

} // namespace
} // namespace espalier::test
