// Compares the GPU kernels that replace library calls, run in the emulator, with the runtime's CPU kernels.
#include "test/compiler/codegen/cuda/call_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <random>

namespace espalier::test {

namespace {

using testing::ElementsAre;

void fill(std::vector<double> &values, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (double &value : values)
    value = scale * normal(random);
}

double rootMeanSquare(const double *values, size_t count) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i)
    squares += values[i] * values[i];
  return std::sqrt(squares / static_cast<double>(count));
}

struct Tolerance {
  double relative;        ///< relative to the element
  double ofRow = 0;       ///< relative to the root mean square of the element's row
  double ofTensor = 1e-6; ///< relative to the root mean square of all rows
};

void expectNear(const std::vector<double> &got, const std::vector<double> &wanted, const Tolerance &tolerance,
                size_t row, const std::string &what) {
  double worst = 0, rms = rootMeanSquare(wanted.data(), wanted.size());
  size_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    double rowRms = rootMeanSquare(wanted.data() + i / row * row, row);
    double bound = tolerance.relative * std::abs(wanted[i]) + tolerance.ofRow * rowRms + tolerance.ofTensor * rms;
    double part = std::abs(got[i] - wanted[i]) / (bound + 1e-30);
    if (!(part <= worst)) {
      worst = part;
      at = i;
    }
  }
  EXPECT_LE(worst, 1) << what << "[" << at << "]: got " << got[at] << ", wanted " << wanted[at] << ", rms " << rms;
}

struct Attention {
  int64_t batch = 2, queries = 40, keys = 40, kvHeads = 2, group = 1, headDim = 16;
  std::string type = "f32";
  bool isCausal = false;
  double rate = 0;
  int64_t firstPosition = 0;
  int64_t window = 0;
  double softCap = 0;
  int64_t document = 0; ///< tokens of a document, if attention ends at their borders
  int64_t valueDim = 0; ///< columns of v and out, if they are not those of q and k
  bool keepsMaxima = false;

  int64_t valueColumns() const { return valueDim > 0 ? valueDim : headDim; }

  std::string tensor(bool isQuery, bool isStatistic = false, bool isValue = false) const {
    std::string text = "tensor<" + std::to_string(batch) + "x" + std::to_string(isQuery ? queries : keys) + "x" +
                       std::to_string(kvHeads) + "x";
    if (isQuery)
      text += std::to_string(group) + "x";
    text += isStatistic ? "f32" : std::to_string(isValue ? valueColumns() : headDim) + "x" + type;
    return text + ", #model.dims<batch, seq, kv_heads" + (isQuery ? ", group" : "") +
           (isStatistic               ? ""
            : isValue && valueDim > 0 ? ", value_dim"
                                      : ", head_dim") +
           ">>";
  }

  std::string attributes() const {
    std::string text = "{id = 7 : i64, scale = 0.25 : f64, rate = " + std::to_string(rate) + " : f64";
    if (isCausal)
      text += ", causal";
    if (window > 0)
      text += ", window = " + std::to_string(window) + " : i64";
    if (softCap > 0)
      text += ", soft_cap = " + std::to_string(softCap) + " : f64";
    text += ", origins = [#dist.origin<dp * 2>, " +
            (firstPosition > 0 ? "#dist.origin<cp * " + std::to_string(firstPosition) + ">" : std::string("unit")) +
            ", #dist.origin<tp * 2>, unit, unit], unsplit = array<i64: " + std::to_string(2 * batch) + ", " +
            std::to_string(keys) + ", " + std::to_string(2 * kvHeads) + ", " + std::to_string(group) + ", " +
            std::to_string(headDim) + ">";
    return text + "}";
  }

  std::string text(bool isForward) const {
    std::string q = tensor(true), k = tensor(false), lse = tensor(true, true);
    std::string v = tensor(false, false, true), out = tensor(true, false, true);
    auto saved = [](const std::string &name) { return " {model.role = \"saved\", model.name = \"" + name + "\"}"; };
    std::string arguments = "%q: " + q + saved("q") + ", %k: " + k + saved("k") + ", %v: " + v + saved("v");
    std::string from =
        "tensor<" + std::to_string(batch) + "x" + std::to_string(queries) + "xi32, #model.dims<batch, seq>>";
    std::string operand = document > 0 ? ", %from" : "", type = document > 0 ? ", " + from : "";
    if (document > 0)
      arguments += ", %from: " + from + saved("from");
    std::string maxima = "tensor<" + std::to_string(kvHeads) + "xf32, #model.dims<kv_heads>>";
    std::string kept = " {model.role = \"counter\", model.name = \"largest0\"}";
    if (isForward && keepsMaxima)
      return "func.func @block.forward(" + arguments + ", %maxima: " + maxima + kept + ") -> (" + out + saved("out") +
             ", " + lse + saved("lse") + ", " + maxima + kept + ") {\n %r:3 = model.attention %q, %k, %v" + operand +
             " " + attributes() + " : (" + q + ", " + k + ", " + v + type + ") -> (" + out + ", " + lse + ", " + lse +
             ")\n %m = model.keep_maxima %maxima, %r#2 : (" + maxima + ", " + lse + ") -> " + maxima +
             "\n return %r#0, %r#1, %m : " + out + ", " + lse + ", " + maxima + "\n}";
    if (isForward)
      return "func.func @block.forward(" + arguments + ") -> (" + out + saved("out") + ", " + lse + saved("lse") +
             ") {\n %r:2 = model.attention %q, %k, %v" + operand + " " + attributes() + " : (" + q + ", " + k + ", " +
             v + type + ") -> (" + out + ", " + lse + ")\n return %r#0, %r#1 : " + out + ", " + lse + "\n}";
    arguments += ", %out: " + out + saved("out") + ", %lse: " + lse + saved("lse") + ", %dout: " + out + saved("dout");
    return "func.func @block.backward(" + arguments + ") -> (" + q + saved("dq") + ", " + k + saved("dk") + ", " + v +
           saved("dv") + ") {\n %r:3 = model.attention_grad %q, %k, %v, %out, %lse, %dout" + operand + " " +
           attributes() + " : (" + q + ", " + k + ", " + v + ", " + out + ", " + lse + ", " + out + type + ") -> (" +
           q + ", " + k + ", " + v + ")\n return %r#0, %r#1, %r#2 : " + q + ", " + k + ", " + v + "\n}";
  }
};

/// Each side rounds its result by up to half a unit in the last place. On tensor cores, the roundings of probabilities
/// and slopes are independent, so their sum stays within one unit of the row's root mean square. In f32, only the order
/// of sums and the error of ex2 differ.
void expectAttention(const CallMachine &machine, const std::string &name, const Attention &attention) {
  double unit = attention.type == "bf16" ? 0x1p-7 : attention.type == "f16" ? 0x1p-10 : 1e-5;
  expectNear(machine.cuda(name), machine.cpu(name), {.relative = unit, .ofRow = unit, .ofTensor = 1e-5},
             static_cast<size_t>(name == "out" || name == "dv" ? attention.valueColumns() : attention.headDim), name);
}

/// Fills visible_from. A document begins at every multiple of `document`, shifted by the sample.
void fillDocuments(CallMachine &machine, const Attention &attention) {
  for (int64_t row = 0; attention.document > 0 && row < attention.batch * attention.queries; ++row) {
    int64_t shift = 3 * (row / attention.queries) + 1;
    int64_t position = attention.firstPosition + row % attention.queries;
    machine.values("from")[static_cast<size_t>(row)] =
        static_cast<double>((position + shift) / attention.document * attention.document - shift);
  }
}

void checkAttention(const Attention &attention) {
  CallMachine forward(attention.text(/*isForward=*/true));
  fillDocuments(forward, attention);
  fill(forward.values("q"), 1);
  fill(forward.values("k"), 2);
  fill(forward.values("v"), 3);
  forward.run({});
  expectAttention(forward, "out", attention);
  expectNear(forward.cuda("lse"), forward.cpu("lse"), {.relative = 1e-5, .ofTensor = 1e-5}, 1, "lse");
  CallMachine backward(attention.text(/*isForward=*/false));
  fillDocuments(backward, attention);
  for (const char *name : {"q", "k", "v"})
    backward.values(name) = forward.values(name);
  for (const char *name : {"out", "lse"})
    backward.values(name) = forward.cpu(name);
  fill(backward.values("dout"), 4);
  backward.run({});
  EXPECT_THAT(backward.kernels(), ElementsAre("attention_query_gradient", "attention_key_gradient"));
  expectAttention(backward, "dv", attention);
  for (const char *name : {"dq", "dk"})
    if (attention.window == 1 ||
        attention.document == 1) // the weight of the only key is constant, so all that is left are rounding errors
      EXPECT_THAT(backward.cuda(name), testing::Each(testing::DoubleNear(0, 1e-5))) << name;
    else
      expectAttention(backward, name, attention);
}

/// Returns causal attention over `tokens` tokens with the other fields of `attention`.
Attention causal(int64_t tokens, Attention attention) {
  attention.queries = attention.keys = tokens;
  attention.isCausal = true;
  return attention;
}

/// Returns causal attention with dropout of the last 30 of 90 tokens, as on the last of three context ranks.
Attention shardWithDropout(Attention attention) {
  attention.queries = 30;
  attention.keys = 90;
  attention.isCausal = true;
  attention.rate = 0.1;
  attention.firstPosition = 60;
  return attention;
}

struct AttentionCase {
  std::string name;
  Attention attention;
};

/// Names begin with the type unless it is f32.
std::vector<AttentionCase> attentionCases() {
  std::vector<AttentionCase> cases = {
      {"NoMask", {}},
      {"Bf16NoMask", {.batch = 1, .kvHeads = 1, .type = "bf16"}},
      {"CausalWithATailOfKeys", causal(75, {})},
      {"F16CausalWithATailOfKeys", causal(150, {.kvHeads = 1, .type = "f16"})},
      {"GroupOfHeads", causal(40, {.batch = 1, .group = 3})},
      {"Bf16HeadDimNotAMultipleOf16", causal(40, {.batch = 1, .group = 2, .headDim = 72, .type = "bf16"})},
      {"LongHeads", causal(40, {.batch = 1, .kvHeads = 1, .headDim = 136})},
      {"Bf16LongHeads", causal(40, {.batch = 1, .kvHeads = 1, .headDim = 256, .type = "bf16"})},
      {"Dropout", causal(40, {.batch = 1, .rate = 0.25})},
      {"ShardOfTheQueries", {.batch = 1, .queries = 20, .keys = 60, .isCausal = true, .firstPosition = 40}},
      {"Bf16ShardWithDropout", shardWithDropout({.kvHeads = 1, .group = 2, .headDim = 64, .type = "bf16"})},
      {"ShardInAWindow", shardWithDropout({.batch = 1, .window = 25})},
      {"LongHeadsWithDocuments", causal(200, {.batch = 1, .kvHeads = 1, .headDim = 136, .document = 45})},
      {"CappedScores", causal(40, {.batch = 1, .softCap = 1.5})},
      {"CappedScoresOfLongHeads", {.batch = 1, .kvHeads = 1, .headDim = 136, .softCap = 0.5}},
      {"Bf16CappedScoresInAWindow",
       causal(100, {.batch = 1, .kvHeads = 1, .type = "bf16", .window = 40, .softCap = 2})},
      // Keys and values of unequal length, as in multi-head latent attention.
      {"ShortValues", causal(40, {.batch = 1, .valueDim = 8})},
      {"LongValues", causal(40, {.batch = 1, .kvHeads = 1, .group = 2, .rate = 0.1, .valueDim = 72})},
      {"Bf16ShortValues", causal(150, {.batch = 1, .kvHeads = 1, .headDim = 192, .type = "bf16", .valueDim = 128})},
      {"F16LongValues", causal(40, {.batch = 1, .headDim = 24, .type = "f16", .valueDim = 40})},
      {"Bf16ShortValuesOfAShardInAWindow",
       shardWithDropout({.batch = 1, .headDim = 96, .type = "bf16", .window = 25, .valueDim = 64})}};
  for (int64_t window : {1, 20, 64}) {
    std::string name = "WindowOf" + std::to_string(window);
    cases.emplace_back(name, causal(150, {.batch = 1, .window = window}));
    cases.emplace_back(
        "Bf16" + name,
        causal(150, {.batch = 1, .kvHeads = 1, .group = 2, .headDim = 64, .type = "bf16", .window = window}));
  }
  for (int64_t document : {1, 20, 70}) {
    std::string name = "DocumentsOf" + std::to_string(document);
    cases.emplace_back(name, causal(150, {.kvHeads = 1, .group = 2, .document = document}));
    cases.emplace_back(
        "Bf16" + name,
        causal(150, {.batch = 1, .kvHeads = 1, .group = 2, .headDim = 64, .type = "bf16", .document = document}));
  }
  for (int64_t first : {30, 60})
    for (auto [prefix, type] : {std::pair("", "f32"), {"Bf16", "bf16"}}) {
      Attention attention = shardWithDropout({.type = type, .window = 25, .softCap = 2, .document = 37});
      attention.firstPosition = first;
      cases.emplace_back(prefix + ("DocumentsOfAShardFrom" + std::to_string(first)), attention);
    }
  return cases;
}

class AttentionKernelCases : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionKernelCases, EqualTheCpu) { checkAttention(GetParam().attention); }

INSTANTIATE_TEST_SUITE_P(, AttentionKernelCases, testing::ValuesIn(attentionCases()),
                         [](const auto &info) { return info.param.name; });

/// The largest score of each key-value head raises a maximum; a larger one stays.
TEST(AttentionKernels, KeepTheLargestScores) {
  for (const Attention &attention :
       {causal(40, {.group = 3, .keepsMaxima = true}),
        shardWithDropout(
            {.batch = 1, .headDim = 64, .type = "bf16", .softCap = 2, .document = 37, .keepsMaxima = true})}) {
    CallMachine forward(attention.text(/*isForward=*/true));
    fillDocuments(forward, attention);
    for (auto [seed, name] : {std::pair(1U, "q"), std::pair(2U, "k"), std::pair(3U, "v")})
      fill(forward.values(name), seed);
    forward.values("largest0") = {0, 1000};
    forward.run({});
    EXPECT_THAT(forward.kernels(), ElementsAre("attention_forward_maxima", "keep_maxima"));
    expectAttention(forward, "out", attention);
    EXPECT_GT(forward.cpu("largest0")[0], 0.5);
    EXPECT_NEAR(forward.cuda("largest0")[0], forward.cpu("largest0")[0], 1e-5 * forward.cpu("largest0")[0]);
    EXPECT_EQ(forward.cuda("largest0")[1], 1000);
  }
}

/// Returns the number of GPU instructions of an attention.
double instructionsOf(const Attention &attention, bool isForward) {
  CallMachine machine(attention.text(isForward));
  fillDocuments(machine, attention);
  machine.runCuda({});
  return static_cast<double>(machine.instructions());
}

/// Tiles of keys before the windows of all queries of a block are not computed: 2 of 10 pairs of tiles stay.
TEST(AttentionKernels, LeaveOutTilesBeforeTheWindow) {
  Attention whole = causal(640, {.batch = 1, .kvHeads = 1, .headDim = 64, .type = "bf16"}), windowed = whole;
  windowed.window = 32;
  for (bool isForward : {true, false})
    EXPECT_LT(instructionsOf(windowed, isForward), 0.6 * instructionsOf(whole, isForward)) << isForward;
}

/// Tiles of keys before the first document of a block, and tiles of queries after the last document of a block of keys,
/// are not computed.
TEST(AttentionKernels, LeaveOutTilesOfOtherDocuments) {
  Attention whole = causal(640, {.batch = 1, .kvHeads = 1, .headDim = 64, .type = "bf16"}), documents = whole;
  documents.document = 64;
  for (bool isForward : {true, false})
    EXPECT_LT(instructionsOf(documents, isForward), 0.6 * instructionsOf(whole, isForward)) << isForward;
}

/// A warp skips a tile of keys that is masked for all its queries, which are 12 of 32 tiles here. This saves more than
/// the masks cost.
TEST(AttentionKernels, WarpsSkipMaskedTiles) {
  Attention masked = causal(128, {.batch = 1, .kvHeads = 1, .headDim = 128, .type = "bf16"}), unmasked = masked;
  unmasked.isCausal = false;
  for (bool isForward : {true, false})
    EXPECT_LT(instructionsOf(masked, isForward), 0.9 * instructionsOf(unmasked, isForward)) << isForward;
}

/// Returns the output of `ptxas -v` for a text.
std::string assemble(const std::string &ptx, const std::string &level) {
  std::string file = testing::TempDir() + "/kernels.ptx";
  std::ofstream(file) << ptx;
  std::string command = "ptxas -v -arch=" + level + " -o /dev/null " + file + " 2>&1", said;
  FILE *pipe = popen(command.c_str(), "r");
  for (char line[4096]; fgets(line, sizeof(line), pipe);)
    said += line;
  pclose(pipe);
  return said;
}

/// Kernels with the sizes of real models must not spill registers.
TEST(AttentionKernels, DoNotSpill) {
  if (system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas";
  for (double rate : {0.0, 0.1})
    for (std::string type : {"f32", "bf16"})
      for (auto [headDim, valueDim] : {std::pair(64, 0), {80, 0}, {128, 0}, {192, 128}, {256, 0}})
        for (bool isForward : {true, false})
          for (auto [window, document] : {std::pair(0, 0), {1024, 0}, {0, 8}}) {
            Attention attention{.headDim = headDim,
                                .type = type,
                                .isCausal = true,
                                .rate = rate,
                                .window = window,
                                .document = document,
                                .valueDim = valueDim};
            std::string ptx = CallMachine(attention.text(isForward)).ptx();
            for (std::string level : {"sm_80", "sm_90"}) {
              std::string said = assemble(ptx, level);
              EXPECT_THAT(said, testing::HasSubstr("0 bytes spill stores, 0 bytes spill loads"));
              // The gradients of keys of 192 and values of 128 elements in bf16 spill one register on sm_90.
              EXPECT_THAT(said, testing::Not(testing::ContainsRegex(valueDim > 0 ? "([5-9]|[1-9][0-9]+) bytes spill"
                                                                                 : "[1-9][0-9]* bytes spill")))
                  << type << " " << headDim << " " << isForward << " " << level << " " << window << " " << document;
            }
          }
}

std::string saved(const std::string &name) { return " {model.role = \"saved\", model.name = \"" + name + "\"}"; }

TEST(EmbedKernel, RowsOfOtherRanksAreZero) {
  for (std::string hidden : {"40", "37"}) {
    std::string table = "tensor<11x" + hidden + "xf32, #model.dims<vocab, hidden>>";
    std::string ids = "tensor<3x7xi32, #model.dims<batch, seq>>";
    std::string out = "tensor<3x7x" + hidden + "xbf16, #model.dims<batch, seq, hidden>>";
    CallMachine machine("func.func @embed.forward(%t: " + table + saved("table") + ", %i: " + ids + saved("ids") +
                        ") -> (" + out + saved("out") +
                        ") {\n %y = model.embed %t, %i {first_row = #dist.origin<tp * 11>} : (" + table + ", " + ids +
                        ") -> " + out + "\n return %y : " + out + "\n}");
    fill(machine.values("table"), 1);
    for (size_t i = 0; i < machine.values("ids").size(); ++i)
      machine.values("ids")[i] = static_cast<double>(i * 5 % 33);
    machine.run({});
    EXPECT_THAT(machine.kernels(), ElementsAre("embed"));
    EXPECT_EQ(machine.cuda("out"), machine.cpu("out"));
  }
}

void checkEmbedGradient(int64_t tokens, const std::string &hidden, const std::function<int(int64_t)> &idOf,
                        const std::string &accumulate, const std::string &type = "f32") {
  auto tableOf = [&](const std::string &element) {
    return "tensor<150x" + hidden + "x" + element + ", #model.dims<vocab, hidden>>";
  };
  std::string table = tableOf(type), gradient = tableOf("f32");
  std::string ids = "tensor<1x" + std::to_string(tokens) + "xi32, #model.dims<batch, seq>>";
  std::string dout = "tensor<1x" + std::to_string(tokens) + "x" + hidden + "xbf16, #model.dims<batch, seq, hidden>>";
  std::string grown = " {model.role = \"accumulator\", model.name = \"dtable\"}";
  CallMachine machine("func.func @embed.backward(%i: " + ids + saved("ids") + ", %d: " + dout + saved("dout") +
                      ", %t: " + table + grown + ") -> (" + table + grown +
                      ") {\n %g = model.embed_grad %i, %d {first_row = #dist.origin<tp * 150>} : (" + ids + ", " +
                      dout + ") -> " + gradient + "\n %y = model.accumulate %t, %g " + accumulate + " : (" + table +
                      ", " + gradient + ") -> " + table + "\n return %y : " + table + "\n}");
  fill(machine.values("dout"), 1);
  fill(machine.values("dtable"), 2);
  for (int64_t i = 0; i < tokens; ++i)
    machine.values("ids")[i] = 150 + idOf(i);
  EXPECT_THAT(machine.kernels(), ElementsAre("order_tokens", "sum_segments", "join_segments"));
  for (int64_t microBatch : {0, 1}) {
    machine.run({.microBatch = microBatch});
    expectNear(machine.cuda("dtable"), machine.cpu("dtable"),
               {.relative = type == "f32" ? 1e-5 : 0x1p-7, .ofTensor = 1e-5}, 1, "dtable");
    std::vector<double> first = machine.cuda("dtable");
    machine.runCuda({.microBatch = microBatch});
    EXPECT_EQ(machine.cuda("dtable"), first);
  }
}

TEST(EmbedGradientKernels, FewTokensPerRow) {
  checkEmbedGradient(300, "20", [](int64_t i) { return static_cast<int>(i * 37 % 170) - 10; }, "");
}
TEST(EmbedGradientKernels, RoundedRows) {
  for (std::string accumulate : {"", "{always}"})
    checkEmbedGradient(300, "20", [](int64_t i) { return static_cast<int>(i * 37 % 170) - 10; }, accumulate, "bf16");
}
TEST(EmbedGradientKernels, OneRowForAllTokens) {
  checkEmbedGradient(300, "7", [](int64_t) { return 64; }, "");
}
TEST(EmbedGradientKernels, RunsOfManySegments) {
  checkEmbedGradient(500, "8", [](int64_t i) { return i % 3 == 0 ? static_cast<int>(i % 150) : 149; }, "{always}");
}

TEST(RopeKernel, RotatesAndInverts) {
  for (std::string inverse :
       {"", ", inverse", ", rotary = 8 : i64", ", rotary = 8 : i64, first = 16 : i64, interleaved",
        ", rotary = 6 : i64, first = 10 : i64", ", rotary = 6 : i64, interleaved, inverse", ", interleaved",
        ", factor = 4.0 : f64",
        ", factor = 8.0 : f64, slow = 1.0 : f64, fast = 4.0 : f64, original_context = 4096.0 : f64",
        ", rotary = 20 : i64, factor = 8.0 : f64, slow = 7.0 : f64, fast = 2.0 : f64, amplitude = 1.2 : f64"})
    for (std::string type : {"f32", "bf16"}) {
      std::string x = "tensor<2x9x3x24x" + type + ", #model.dims<batch, seq, heads, head_dim>>";
      std::string positions = "tensor<2x9xi32, #model.dims<batch, seq>>";
      CallMachine machine("func.func @block.forward(%x: " + x + saved("x") + ", %p: " + positions + saved("positions") +
                          ") -> (" + x + saved("y") + ") {\n %y = model.rope %x, %p {theta = 1.0e+04 : f64" + inverse +
                          "} : (" + x + ", " + positions + ") -> " + x + "\n return %y : " + x + "\n}");
      fill(machine.values("x"), 1);
      for (size_t i = 0; i < machine.values("positions").size(); ++i)
        machine.values("positions")[i] = static_cast<double>(i * i * 977);
      machine.run({});
      EXPECT_THAT(machine.kernels(), ElementsAre("rope"));
      expectNear(machine.cuda("y"), machine.cpu("y"), {.relative = type == "f32" ? 1e-6 : 0x1p-7}, 1, "y");
    }
}

TEST(SquaredNormKernels, AddsBlocksInF64) {
  for (std::string count : {"3", "16385", "40001"}) {
    std::string x = "tensor<" + count + "xf32>";
    CallMachine machine("func.func @block.squared_norm(%x: " + x + saved("x") + ") -> (tensor<f32>" + saved("norm") +
                        ") {\n %y = model.squared_norm %x {weight = 0.5 : f64} : (" + x +
                        ") -> tensor<f32>\n return %y : tensor<f32>\n}");
    fill(machine.values("x"), 1);
    machine.run({});
    EXPECT_THAT(machine.kernels(), ElementsAre("square_blocks", "add_squares"));
    expectNear(machine.cuda("norm"), machine.cpu("norm"), {.relative = 1e-6}, 1, "norm");
  }
}

// The results are bitwise equal, because ranks on CPUs and GPUs must make the same decision.
TEST(UpdateScalarsKernel, EqualsTheCpuBitwise) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char *limit : {"0.0", "1.0", "0.3"}) {
    CallMachine machine("func.func @step.scalars() attributes {exec.max_grad_norm = " + std::string(limit) +
                        " : f64} {\n return\n}");
    EXPECT_THAT(machine.kernels(), ElementsAre("update_scalars"));
    for (float squares : {0.0f, 0.7f, 3.1e7f, infinity, NAN})
      for (float tokens : {0.0f, 1.0f, 4093.0f})
        for (float scale : {1.0f, 1024.0f}) {
          machine.slots = {7.5f, tokens, squares, scale, 0, 99, 0, 0, 99};
          machine.run({});
          for (rt::ScalarSlot slot : {rt::GradientScale, rt::Apply})
            EXPECT_EQ(machine.cuda("slots")[slot], machine.cpu("slots")[slot])
                << slot << " of " << squares << " " << tokens << " " << scale;
          EXPECT_EQ(machine.cuda("slots")[rt::Apply], std::isfinite(squares) && tokens > 0);
        }
  }
}

TEST(UpdateScalarsKernel, SkipsTheNormsThatTheCpuSkips) {
  CallMachine machine(
      "func.func @step.scalars() attributes {exec.max_grad_norm = 1.0 : f64, exec.limits_norm} {\n return\n}");
  EXPECT_THAT(machine.kernels(), ElementsAre("update_scalars"));
  for (float limit : {0.0f, 0.1f, 3.0f, std::nextafter(3.0f, 4.0f), 1e9f})
    for (float squares : {0.0f, 3600.0f, 1e8f, std::numeric_limits<float>::infinity()}) {
      machine.slots = {7.5f, 10, squares, 2, 0, 99, 0, 0, 99, 0, 0, limit};
      machine.run({});
      for (rt::ScalarSlot slot : {rt::GradientScale, rt::Apply})
        EXPECT_EQ(machine.cuda("slots")[slot], machine.cpu("slots")[slot]) << slot << " " << squares << " " << limit;
      bool isApplied = std::isfinite(squares) && (limit == 0 || std::sqrt(squares) / 20 <= limit);
      EXPECT_EQ(machine.cuda("slots")[rt::Apply], isApplied) << squares << " " << limit;
    }
}

} // namespace
} // namespace espalier::test
