// Compares the GPU kernels of recurrences and causal convolutions, run in the emulator, with the runtime's CPU kernels.
#include "test/compiler/codegen/cuda/call_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace espalier::test {

namespace {

using testing::ElementsAre;

/// An argument or result of a function.
struct Value {
  std::string name, type, role = "saved";
};

std::string tensor(const std::vector<int64_t> &sizes, const std::string &element, const std::string &dims) {
  std::string text = "tensor<";
  for (int64_t size : sizes)
    text += std::to_string(size) + "x";
  return text + element + ", #model.dims<" + dims + ">>";
}

/// Returns a function with one op.
std::string functionOf(const std::string &op, const std::string &attributes, const std::vector<Value> &operands,
                       const std::vector<Value> &results, const std::string &more = "") {
  std::string arguments, names, types, made, returned, resultTypes;
  auto join = [](std::string &list, const std::string &text) { list += (list.empty() ? "" : ", ") + text; };
  auto attribute = [](const Value &value) {
    return value.type + " {model.role = \"" + value.role + "\", model.name = \"" + value.name + "\"}";
  };
  for (const Value &value : operands) {
    if (value.role == "saved") {
      join(names, "%" + value.name);
      join(types, value.type);
    }
    join(arguments, "%" + value.name + ": " + attribute(value));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    join(made, attribute(results[i]));
    join(resultTypes, results[i].type);
    join(returned, more.empty() ? results.size() > 1 ? "%made#" + std::to_string(i) : "%made" : "%sum");
  }
  std::string count = results.size() > 1 ? ":" + std::to_string(results.size()) : "";
  return "func.func @block.forward(" + arguments + ") -> (" + made + ") {\n %made" + count + " = model." + op + " " +
         names + " {" + attributes + "} : (" + types + ") -> (" + resultTypes + ")\n " + more + "\n return " +
         returned + " : " + resultTypes + "\n}";
}

void fill(std::vector<double> &values, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (double &value : values)
    value = scale * normal(random);
}

/// Expects results that differ by roundings of the largest element.
void expectNear(const CallMachine &machine, const std::string &name, const std::string &type, double roundings = 1) {
  double largest = 0.01, unit = type == "bf16" ? 0x1p-7 : type == "f16" ? 0x1p-10 : 2e-6;
  for (double value : machine.cpu(name))
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < machine.cpu(name).size(); ++i)
    ASSERT_NEAR(machine.cuda(name)[i], machine.cpu(name)[i], roundings * unit * largest) << name << "[" << i << "]";
}

/// Two sequences of a recurrence. With `runs` above 0, they are shards of sequences of as many runs.
struct Recurrence {
  int64_t seq = 20, heads = 2, group = 0, keyDim = 8, valueDim = 6, runs = 0;
  bool byColumn = false, delta = false, documents = false, zigzag = false;
  std::string type = "f32";

  int64_t own() const { return zigzag ? 2 : 1; }
  int64_t length() const { return seq / own(); }
  int64_t factors() const { return delta ? keyDim : 1; }
  std::string dims() const { return group > 0 ? "heads, group" : "heads"; }
  std::vector<int64_t> ofHeads(std::vector<int64_t> sizes, const std::vector<int64_t> &last) const {
    sizes.push_back(heads);
    if (group > 0)
      sizes.push_back(group);
    sizes.insert(sizes.end(), last.begin(), last.end());
    return sizes;
  }
  std::string key() const { return tensor({2, seq, heads, keyDim}, type, "batch, seq, heads, key"); }
  std::string value() const { return tensor(ofHeads({2, seq}, {valueDim}), type, "batch, seq, " + dims() + ", value"); }
  std::string gate() const { return tensor(ofHeads({2, seq}, {}), "f32", "batch, seq, " + dims()); }
  std::string decay() const {
    return byColumn ? tensor(ofHeads({2, seq}, {keyDim}), "f32", "batch, seq, " + dims() + ", key") : gate();
  }
  std::string states(int64_t count, int64_t columns) const {
    return tensor(ofHeads({2, count}, {keyDim, columns}), "f32",
                  "batch, seq, " + dims() + ", key, " + (columns == valueDim ? "value" : "state_columns"));
  }
  std::string positions() const { return tensor({2, seq}, "i32", "batch, seq"); }

  std::vector<Value> operands() const {
    return {{"q", key()}, {"k", key()}, {"v", value()}, {"decay", decay()}, {"beta", gate()}};
  }
  std::string attributes() const {
    std::string text = delta ? "delta" : "";
    if (runs == 0)
      return text;
    text += (text.empty() ? "" : ", ") + std::string("first_position = #dist.origin<cp * ") + std::to_string(length()) +
            ">";
    return text + (zigzag ? ", dist.zigzag" : "");
  }
  /// Returns visible_from as an operand, or nothing.
  void addDocuments(std::vector<Value> &operands) const {
    if (documents)
      operands.push_back({"from", positions()});
  }

  void fillOperands(CallMachine &machine) const {
    unsigned seed = 1;
    for (const char *name : {"q", "k", "v", "decay", "beta"})
      fill(machine.values(name), seed++,
           name[1] == 0 && name[0] != 'v' ? 1 / std::sqrt(static_cast<double>(keyDim)) : 1);
    for (double &decay : machine.values("decay"))
      decay = -std::abs(decay) / 4;
    for (double &beta : machine.values("beta"))
      beta = 1 / (1 + std::exp(-beta));
    for (int64_t i = 0; documents && i < 2 * seq; ++i)
      machine.values("from")[static_cast<size_t>(i)] = static_cast<double>(positionOf(i % seq) / 7 * 7);
  }
  /// Returns the position of a row of the second of the shards.
  int64_t positionOf(int64_t row) const {
    int64_t first = runs > 0 ? 1 : 0;
    return row < length() ? first * length() + row : (runs - 1 - first) * length() + row - length();
  }
};

void checkForward(const Recurrence &r) {
  std::vector<Value> operands = r.operands();
  if (r.runs > 0)
    operands.push_back({"borders", r.states(r.runs, r.valueDim + r.factors())});
  r.addDocuments(operands);
  CallMachine machine(
      functionOf(r.runs > 0 ? "shard_recurrence" : "recurrence", r.attributes(), operands, {{"out", r.value()}}));
  r.fillOperands(machine);
  if (r.runs > 0)
    fill(machine.values("borders"), 9, 0.3);
  EXPECT_THAT(machine.kernels(), ElementsAre(r.runs > 0 ? "recurrence_shard" : "recurrence"));
  machine.run({});
  expectNear(machine, "out", r.type);
}

void checkGradient(const Recurrence &r) {
  std::vector<Value> operands = r.operands();
  operands.push_back({"dout", r.value()});
  if (r.runs > 0) {
    operands.push_back({"borders", r.states(r.runs, r.valueDim + r.factors())});
    operands.push_back({"ends", r.states(r.runs, r.valueDim)});
  }
  r.addDocuments(operands);
  std::vector<Value> results = {
      {"dq", r.key()}, {"dk", r.key()}, {"dv", r.value()}, {"ddecay", r.decay()}, {"dbeta", r.gate()}};
  CallMachine machine(
      functionOf(r.runs > 0 ? "shard_recurrence_grad" : "recurrence_grad", r.attributes(), operands, results));
  r.fillOperands(machine);
  fill(machine.values("dout"), 8);
  if (r.runs > 0) {
    fill(machine.values("borders"), 9, 0.3);
    fill(machine.values("ends"), 10, 0.3);
    EXPECT_THAT(machine.kernels(),
                ElementsAre("chunk_states_shard", "recurrence_gradient_shard", "join_gradients_shard"));
  } else {
    EXPECT_THAT(machine.kernels(), ElementsAre("chunk_states", "recurrence_gradient", "join_gradients"));
  }
  machine.run({});
  for (const char *name : {"dq", "dk", "dv"})
    expectNear(machine, name, r.type, r.type == "f32" ? 2 : 1);
  for (const char *name : {"ddecay", "dbeta"})
    expectNear(machine, name, "f32", 2);
}

/// Calls `check` with the kinds of recurrences of the models: groups that share keys, and columns with decays.
void forAllKinds(void (*check)(const Recurrence &), const Recurrence &base) {
  for (bool delta : {false, true})
    for (bool byColumn : {false, true})
      for (bool documents : {false, true}) {
        Recurrence r = base;
        r.delta = delta;
        r.byColumn = byColumn;
        r.documents = documents;
        r.group = byColumn ? 0 : 3;
        SCOPED_TRACE(testing::Message() << "delta " << delta << " columns " << byColumn << " documents " << documents);
        check(r);
      }
}

TEST(RecurrenceKernels, OneRunOfPositions) {
  forAllKinds(checkForward, {});
  checkForward({.seq = 5, .keyDim = 64, .valueDim = 40, .delta = true});
  checkForward({.seq = 3, .keyDim = 300, .valueDim = 5, .byColumn = true, .delta = true});
}
TEST(RecurrenceKernels, HalfPrecision) {
  checkForward({.keyDim = 32, .valueDim = 32, .delta = true, .type = "bf16"});
  checkForward({.keyDim = 12, .valueDim = 9, .byColumn = true, .type = "f16"});
  checkGradient({.group = 2, .keyDim = 32, .valueDim = 32, .type = "bf16"});
  checkGradient({.keyDim = 12, .valueDim = 9, .byColumn = true, .delta = true, .type = "f16"});
}
TEST(RecurrenceKernels, GradientsOfOneRun) {
  forAllKinds(checkGradient, {.seq = 70});
  checkGradient({.seq = 5, .keyDim = 64, .valueDim = 70, .delta = true});
  checkGradient({.seq = 18, .keyDim = 300, .valueDim = 5, .byColumn = true, .delta = true});
}
TEST(RecurrenceKernels, Shards) {
  for (bool zigzag : {false, true}) {
    forAllKinds(checkForward, {.seq = 12, .runs = 4, .zigzag = zigzag});
    forAllKinds(checkGradient, {.seq = 36, .keyDim = 5, .runs = 4, .zigzag = zigzag});
  }
}

void checkBorders(const Recurrence &r, bool isBackward) {
  std::vector<Value> operands = r.operands();
  r.addDocuments(operands);
  std::string borders = r.states(r.own(), isBackward ? r.valueDim : r.valueDim + r.factors());
  std::string attributes = r.attributes() + ", whole = " + std::to_string(r.length() * r.runs) + " : i64";
  CallMachine machine(
      functionOf("shard_states", attributes + (isBackward ? ", backward" : ""), operands, {{"borders", borders}}));
  r.fillOperands(machine);
  EXPECT_THAT(machine.kernels(), ElementsAre("shard_states"));
  machine.run({});
  expectNear(machine, "borders", "f32");
}

TEST(RecurrenceKernels, BordersOfShards) {
  for (bool zigzag : {false, true}) {
    forAllKinds([](const Recurrence &r) { checkBorders(r, false); }, {.seq = 12, .runs = 4, .zigzag = zigzag});
    forAllKinds([](const Recurrence &r) { checkBorders(r, true); }, {.seq = 12, .runs = 4, .zigzag = zigzag});
  }
}

TEST(RecurrenceKernels, ContinuesFromAState) {
  for (bool delta : {false, true}) {
    Recurrence r = {.seq = 3, .group = delta ? 0 : 2, .delta = delta};
    std::string state = tensor(r.ofHeads({2}, {r.keyDim, r.valueDim}), "f32", "batch, " + r.dims() + ", key, value");
    for (const std::vector<double> &positions :
         {std::vector<double>{4, 5, 6, 0, 1, -1}, {-1, -1, -1, 7, -1, -1}, {0, 1, 2, 9, 10, 11}}) {
      std::vector<Value> operands = r.operands();
      operands.push_back({"positions", r.positions()});
      operands.push_back({"state", state});
      CallMachine machine(
          functionOf("carried_recurrence", r.attributes(), operands, {{"out", r.value()}, {"state", state}}));
      r.fillOperands(machine);
      fill(machine.values("state"), 7);
      machine.values("positions") = positions;
      EXPECT_THAT(machine.kernels(), ElementsAre("recurrence_carried"));
      machine.run({});
      expectNear(machine, "out", "f32");
      expectNear(machine, "state", "f32");
    }
  }
}

/// Two sequences of a convolution.
struct Conv {
  int64_t seq = 9, channels = 6, taps = 4, runs = 0;
  bool documents = false, zigzag = false, transposed = false;
  std::string type = "f32";

  int64_t own() const { return zigzag ? 2 : 1; }
  int64_t length() const { return seq / own(); }
  int64_t edges() const { return runs * std::min(taps - 1, length()); }
  std::string x() const { return tensor({2, seq, channels}, type, "batch, seq, channels"); }
  std::string weight() const { return tensor({channels, taps}, "f32", "channels, taps"); }
  std::string positions(int64_t count) const { return tensor({2, count}, "i32", "batch, seq"); }
  std::string attributes() const {
    std::string text = transposed ? "transposed" : "";
    if (runs == 0)
      return text;
    text += (text.empty() ? "" : ", ") + std::string("first_position = #dist.origin<cp * ") + std::to_string(length()) +
            ">";
    return text + (zigzag ? ", dist.zigzag" : "");
  }
  std::vector<Value> operands(const Value &second) const {
    std::vector<Value> all = {{"x", x()}, second};
    if (runs > 0)
      all.push_back({"edges", tensor({2, edges(), channels}, type, "batch, seq, channels")});
    if (documents)
      all.push_back({"from", positions(seq)});
    if (documents && runs > 0 && transposed)
      all.push_back({"limits", positions(edges())});
    return all;
  }
  void fillOperands(CallMachine &machine) const {
    unsigned seed = 1;
    for (const Value &value : operands({"w", weight()}))
      if (value.name != "from" && value.name != "limits" && value.name != "w")
        fill(machine.values(value.name), seed++);
    for (int64_t i = 0; documents && i < 2 * seq; ++i)
      machine.values("from")[static_cast<size_t>(i)] = static_cast<double>(positionOf(i % seq) / 5 * 5);
    for (int64_t i = 0; documents && runs > 0 && transposed && i < 2 * edges(); ++i) {
      int64_t kept = edges() / runs, at = i % edges();
      machine.values("limits")[static_cast<size_t>(i)] =
          static_cast<double>((at / kept * length() + at % kept) / 5 * 5);
    }
  }
  int64_t positionOf(int64_t row) const {
    int64_t first = runs > 0 ? 1 : 0;
    return row < length() ? first * length() + row : (runs - 1 - first) * length() + row - length();
  }
};

void checkConv(const Conv &c) {
  SCOPED_TRACE(testing::Message() << c.seq << " positions, transposed " << c.transposed << ", documents " << c.documents
                                  << ", zigzag " << c.zigzag);
  CallMachine machine(functionOf(c.runs > 0 ? "shard_conv" : "causal_conv", c.attributes(),
                                 c.operands({"w", c.weight()}), {{"y", c.x()}}));
  c.fillOperands(machine);
  fill(machine.values("w"), 5);
  std::string shape = c.runs == 0                   ? "causal_conv"
                      : c.documents && c.transposed ? "causal_conv_limited"
                                                    : "causal_conv_shard";
  EXPECT_THAT(machine.kernels(), ElementsAre(shape));
  machine.run({});
  expectNear(machine, "y", c.type);
}

void checkConvGradient(const Conv &c, const std::string &accumulate) {
  std::vector<Value> operands = c.operands({"dy", c.x()});
  std::string sum = accumulate.empty() ? ""
                                       : "%sum = model.accumulate %total, %made " + accumulate + " : (" + c.weight() +
                                             ", " + c.weight() + ") -> " + c.weight();
  if (!accumulate.empty())
    operands.push_back({"total", c.weight(), "accumulator"});
  CallMachine machine(functionOf(
      c.runs > 0 ? "shard_conv_grad" : "causal_conv_grad", c.attributes(), operands,
      {{accumulate.empty() ? "dw" : "total", c.weight(), accumulate.empty() ? "saved" : "accumulator"}}, sum));
  c.fillOperands(machine);
  fill(machine.values("dy"), 6);
  if (!accumulate.empty())
    fill(machine.values("total"), 7);
  EXPECT_THAT(machine.kernels(), ElementsAre(c.runs > 0 ? "causal_conv_gradient_shard" : "causal_conv_gradient"));
  for (int64_t microBatch : {0, 1}) {
    machine.run({.microBatch = microBatch});
    expectNear(machine, accumulate.empty() ? "dw" : "total", "f32", 2);
  }
}

TEST(ConvKernels, WholeSequences) {
  for (bool transposed : {false, true})
    for (bool documents : {false, true}) {
      checkConv({.documents = documents, .transposed = transposed});
      checkConv({.seq = 17, .channels = 300, .taps = 3, .documents = documents, .transposed = transposed});
      checkConv({.channels = 8, .taps = 2, .documents = documents, .transposed = transposed, .type = "bf16"});
    }
}
TEST(ConvKernels, Shards) {
  for (bool transposed : {false, true})
    for (bool documents : {false, true})
      for (bool zigzag : {false, true}) {
        checkConv({.seq = 12, .runs = 4, .documents = documents, .zigzag = zigzag, .transposed = transposed});
        checkConv({.seq = 2, .taps = 5, .runs = 4, .documents = documents, .zigzag = zigzag, .transposed = transposed});
      }
}
TEST(ConvKernels, GradientsOfWeights) {
  for (const char *accumulate : {"", "{}", "{always}"})
    for (bool documents : {false, true}) {
      checkConvGradient({.seq = 40, .channels = 70, .documents = documents}, accumulate);
      checkConvGradient({.seq = 12, .runs = 4, .documents = documents}, accumulate);
      checkConvGradient({.seq = 12, .runs = 4, .documents = documents, .zigzag = true}, accumulate);
    }
}

TEST(ConvKernels, ContinueFromAHalo) {
  Conv c = {.seq = 4};
  std::string halo = tensor({2, c.taps - 1, c.channels}, "f32", "batch, earlier, channels");
  for (const std::vector<double> &positions :
       {std::vector<double>{4, 5, 6, 7, 0, 1, -1, -1}, {-1, -1, -1, -1, 7, -1, -1, -1}, {0, 1, 2, -1, 1, 2, 3, 4}}) {
    CallMachine machine(functionOf("carried_conv", "",
                                   {{"x", c.x()}, {"w", c.weight()}, {"positions", c.positions(4)}, {"halo", halo}},
                                   {{"y", c.x()}, {"halo", halo}}));
    unsigned seed = 1;
    for (const char *name : {"x", "w", "halo"})
      fill(machine.values(name), seed++);
    machine.values("positions") = positions;
    EXPECT_THAT(machine.kernels(), ElementsAre("causal_conv_carried", "keep_inputs"));
    machine.run({});
    expectNear(machine, "y", "f32");
    EXPECT_EQ(machine.cuda("halo"), machine.cpu("halo"));
  }
}

} // namespace
} // namespace espalier::test
