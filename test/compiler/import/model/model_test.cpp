// Checks the shipped model files, and every error that a model file can have.
#include "compiler/import/model/architecture.h"
#include "compiler/import/model/op_vocabulary.h"
#include "compiler/import/run/import_run.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelDescription model(const std::string &config, std::vector<std::string> sets = {}) {
  ImportOptions options;
  options.sets = std::move(sets);
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/" + config + ".yaml", options);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  return run.config.model;
}

const OpDescription &op(const SegmentDescription &segment, const std::string &kind) {
  for (const OpDescription &candidate : segment.ops)
    if (candidate.kind == kind)
      return candidate;
  throw std::runtime_error("no op " + kind);
}

const ParameterDescription &parameter(const SegmentDescription &segment, const std::string &name) {
  for (const ParameterDescription &candidate : segment.parameters)
    if (candidate.name == name)
      return candidate;
  throw std::runtime_error("no parameter " + name);
}

TEST(Model, Gpt2HasABlockOfThreeSegments) {
  ModelDescription m = model("gpt2_124m");
  ASSERT_EQ(m.runs.size(), 3u);
  EXPECT_EQ(m.runs[1].kind, "block");
  EXPECT_EQ(m.layerCount(), 12);
  EXPECT_EQ(m.segment("embed").streamIn, "");
  EXPECT_EQ(m.segment("head").streamOut, "loss");
  EXPECT_EQ(m.dims.at("ffn"), 3072);
  EXPECT_EQ(op(m.segment("block"), "activation").strings.at("kind"), "gelu");
  EXPECT_DOUBLE_EQ(op(m.segment("block"), "attention").numbers.at("scale"), 1 / std::sqrt(64.0));
  EXPECT_EQ(op(m.segment("block"), "attention").numbers.at("causal"), 1);
  EXPECT_EQ(op(m.segment("block"), "attention").numbers.at("rate"), 0.1);
  EXPECT_EQ(op(m.segment("block"), "layer_norm").numbers.at("epsilon"), 1e-5);
}

TEST(Model, HeadOfGpt2IsTied) {
  ModelDescription m = model("gpt2_124m");
  const ParameterDescription &wte = parameter(m.segment("head"), "wte");
  EXPECT_EQ(wte.tiedTo, "embed.wte");
  EXPECT_THAT(wte.dims, ElementsAre("vocab", "hidden"));
  EXPECT_TRUE(wte.decay);
}

TEST(Model, OnlyMatricesDecay) {
  for (const char *config : {"gpt2_124m", "llama2_7b"}) {
    ModelDescription m = model(config);
    for (const SegmentDescription &segment : m.segments)
      for (const ParameterDescription &p : segment.parameters)
        EXPECT_EQ(p.decay, p.dims.size() > 1 && !p.name.ends_with("_bias")) << p.name;
  }
}

TEST(Model, ResidualProjectionsStartSmaller) {
  ModelDescription m = model("gpt2_124m");
  const Initializer &init = parameter(m.segment("block"), "attn_proj_weight").initializer;
  EXPECT_EQ(init.kind, rt::pb::Initialization::NORMAL);
  EXPECT_DOUBLE_EQ(init.stddev, 0.02 / std::sqrt(24.0));
}

TEST(Model, ActivationNamesHaveOneMeaning) {
  for (auto [name, meaning] : {std::pair{"gelu_new", "gelu_tanh"},
                               {"gelu", "gelu"},
                               {"quick_gelu", "fast_gelu"},
                               {"fast_gelu", "fast_gelu"},
                               {"gelu_pytorch_tanh", "gelu_tanh"}}) {
    ModelDescription m = model("tiny_gpt", {std::string("model.model_config.hidden_act=") + name});
    EXPECT_EQ(op(m.segment("block"), "activation").strings.at("kind"), meaning);
  }
}

TEST(Model, NormsMayCountTheirWeightsFromOne) {
  for (const char *config : {"tiny_gpt", "llama2_7b", "mixtral_8x7b", "qwen3_30b_a3b"})
    for (bool isFromOne : {false, true}) {
      ModelDescription m = model(
          config, {std::string("model.model_config.layernorm_zero_centered_gamma=") + (isFromOne ? "True" : "False")});
      int norms = 0;
      for (const SegmentDescription &segment : m.segments)
        for (const OpDescription &norm : segment.ops)
          if (norm.kind.ends_with("_norm")) {
            ++norms;
            EXPECT_EQ(norm.numbers.contains("offset"), isFromOne) << config << " " << norm.inputs[1];
            EXPECT_EQ(parameter(segment, norm.inputs[1]).initializer.kind,
                      isFromOne ? rt::pb::Initialization::ZEROS : rt::pb::Initialization::ONES)
                << config << " " << norm.inputs[1];
          }
      EXPECT_GE(norms, 3) << config;
    }
}

TEST(Model, LlamaGroupsQueries) {
  ModelDescription m = model("llama2_7b", {"model.model_config.n_kv_heads=8"});
  EXPECT_EQ(m.dims.at("ffn"), 11008);
  EXPECT_EQ(m.dims.at("group"), 4);
  EXPECT_THAT(parameter(m.segment("block"), "attn_q_weight").dims,
              ElementsAre("hidden", "kv_heads", "group", "head_dim"));
  EXPECT_EQ(op(m.segment("block"), "rope").numbers.at("theta"), 10000);
  EXPECT_EQ(model("llama2_7b", {"model.model_config.intermediate_size=8192"}).dims.at("ffn"), 8192);
}

TEST(Model, Llama70BHasItsPublishedSize) {
  std::string c = "model.model_config.";
  ModelDescription m = model("llama2_7b", {c + "hidden_size=8192", c + "num_layers=80", c + "num_heads=64",
                                           c + "n_kv_heads=8", c + "ffn_dim_multiplier=1.3"});
  EXPECT_EQ(m.dims.at("ffn"), 28672);
  EXPECT_EQ(m.parameterCount(), 68976648192);
}

TEST(Model, OpsCarryTheirLine) {
  ModelDescription m = model("tiny_gpt");
  const OpDescription &norm = op(m.segment("block"), "layer_norm");
  EXPECT_THAT(norm.location.file, HasSubstr("configs/models/gpt2.yaml"));
  std::ifstream file(norm.location.file);
  std::string line;
  for (int i = 0; i < norm.location.line; ++i)
    std::getline(file, line);
  EXPECT_THAT(line, HasSubstr("op: layer_norm"));
}

// A small valid model file; each case replaces one part of it.
const char *const smallModel = R"(name: small
arch: [Small]
config: SmallConfig
sizes:
  width: {default: 8}
  depth: {default: 2}
dims: {hidden: width, vocab: 16}
model: [first, {block: depth}, last]
segments:
  first:
    stream: {out: x}
    parameters:
      table: {dims: [vocab, hidden], init: {normal: 0.02}}
    ops:
      - {op: embed, in: [table, tokens], out: x}
  block:
    stream: {in: x, out: y}
    parameters:
      weight: {dims: [hidden], init: ones}
    ops:
      - {op: rms_norm, in: [x, weight], out: y, epsilon: 1e-5}
  last:
    stream: {in: x, out: loss}
    parameters:
      table: {tied: first.table}
    ops:
      - {op: linear, in: [x, table], out: logits}
      - {op: cross_entropy, in: [logits, labels, loss_weights], out: loss}
)";

std::string errorsWith(const std::string &from, const std::string &to) {
  std::string text = smallModel;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  std::string file = testing::TempDir() + "espalier_small_model.yaml";
  std::ofstream(file) << text;
  Diagnostics diagnostics;
  if (std::optional<Architecture> architecture = loadArchitecture(file, diagnostics)) {
    SizeTable sizes = resolveSizes(*architecture, nullptr, diagnostics);
    ModelDescription described = describeModel(*architecture, sizes, diagnostics);
    if (!diagnostics.hasErrors()) {
      EXPECT_EQ(described.layerCount(), 2);
    }
  }
  std::filesystem::remove(file);
  return diagnostics.render();
}

TEST(ModelFile, SmallModelIsValid) { EXPECT_EQ(errorsWith("name: small", "name: tiny"), ""); }

struct Fault {
  const char *from, *to, *text;
};
class ModelFault : public testing::TestWithParam<Fault> {};

TEST_P(ModelFault, IsReported) { EXPECT_THAT(errorsWith(GetParam().from, GetParam().to), HasSubstr(GetParam().text)); }

INSTANTIATE_TEST_SUITE_P(
    Each, ModelFault,
    testing::Values(
        Fault{"config: SmallConfig\n", "", "model file has no 'config'"},
        Fault{"arch: [Small]", "arch: [Small, [Large]]", "arch must list names or {NAME: {when: EXPR}}, got [Large]"},
        Fault{"arch: [Small]", "arch: [Small, Large: {whn: width}]", "unknown key 'whn' in arch, did you mean 'when'?"},
        Fault{"arch: [Small]", "arch: [Small, Large: {defaults: {width: 3}}]",
              "arch Large needs `when:`, the condition under which it is chosen"},
        Fault{"name: small", "base_config: nowhere.yaml\nname: small", "base_config has no file"},
        Fault{"name: small", "nam: small", "unknown key 'nam' in a model file, did you mean 'name'?"},
        Fault{"width: {default: 8}", "width: 8", "size 'width' must be a map such as {default: 1}"},
        Fault{"width: {default: 8}", "width: {defalt: 8}", "unknown key 'defalt' in a size, did you mean 'default'?"},
        Fault{"width: {default: 8}", "width: {type: real, default: 8}",
              "size 'width' has type 'real', want int, number, string, bool or list"},
        Fault{"width: {default: 8}", "width: {default: widht}", "'widht' is not defined"},
        Fault{"width: {default: 8}", "width: {meaning: none}", "dim 'hidden' has no value"},
        Fault{"hidden: width", "hidden: width / 3", "hidden must be a whole number, width / 3 gives 2.666666667"},
        Fault{"hidden: width", "hidden: width - 8", "hidden is 0, must be between 1 and 1e12"},
        Fault{"{block: depth}", "{blok: depth}", "no segment 'blok', did you mean 'block'?"},
        Fault{"[first, {block: depth}, last]", "[first, last]",
              "model needs a first segment, at least one layer and a last segment"},
        Fault{"stream: {out: x}", "stream: {out: z}",
              "segment 'first' needs stream: {out: NAME} with the name of one of its values"},
        Fault{"stream: {out: x}", "stream: {ot: x}", "unknown key 'ot' in stream"},
        Fault{"weight: {dims", "weigth: {dims", "value 'weight' is not known before this op, did you mean 'weigth'?"},
        Fault{"dims: [hidden], init: ones", "init: ones", "parameter 'weight' has no dims"},
        Fault{"dims: [hidden], init: ones", "dims: [hiden], init: ones",
              "parameter 'weight' has unknown dim 'hiden', did you mean 'hidden'?"},
        Fault{"dims: [hidden], init: ones", "dims: [hidden]", "parameter 'weight' has no init"},
        Fault{"init: ones", "init: twos", "init must be zeros, ones, {constant: VALUE} or {normal: STDDEV}, got twos"},
        Fault{"init: ones", "init: {constant: none}", "'none' is not defined"},
        Fault{"init: ones", "init: {normal: none}", "'none' is not defined"},
        Fault{"init: ones", "init: ones, decai: no", "unknown key 'decai' in a parameter, did you mean 'decay'?"},
        Fault{"tied: first.table", "tied: first.tabel",
              "tied to 'first.tabel', which is no parameter with storage of its own"},
        Fault{"op: rms_norm", "op: rms_nrm", "no op 'rms_nrm', there are embed, add, mul"},
        Fault{"in: [x, weight]", "in: [x]", "rms_norm takes 2 to 2 inputs, got 1"},
        Fault{"out: y, epsilon: 1e-5", "out: y", "rms_norm needs the attribute 'epsilon'"},
        Fault{"epsilon: 1e-5", "epsilon: 1e-5, theta: 3", "unknown key 'theta' in rms_norm"},
        Fault{"out: y, epsilon", "out: [y, z], epsilon", "rms_norm has one output, got 2"},
        Fault{"out: y, epsilon", "out: weight, epsilon", "'weight' names a value already"},
        Fault{"      weight: {dims: [hidden], init: ones}",
              "      weight: {dims: [hidden], init: ones}\n      spare: {dims: [hidden], init: zeros}",
              ":20:7: error: no op of 'block' reads the parameter 'spare'; name it among the inputs of one, or remove "
              "it"},
        Fault{"      weight: {", "      tokens: {", "'tokens' names a value already"},
        Fault{"{op: rms_norm, in: [x, weight], out: y, epsilon: 1e-5}", "{op: activation, in: x, out: y, kind: gleu}",
              "no activation 'gleu', there are fast_gelu, gelu, gelu_tanh, relu, relu2, sigmoid, silu"}));

// An op whose `when` is 0 passes its input on. An absent parameter is no input.
TEST(ModelFile, PartsMayDependOnSizes) {
  const std::string op = "      - {op: rms_norm, in: [x, weight], out: y, epsilon: 1e-5}\n",
                    optional = "      - {op: rms_norm, in: [x, spare], out: n, epsilon: 1e-5, when: width - 8}\n"
                               "      - {op: rms_norm, in: [n, weight], out: y, epsilon: 1e-5}\n";
  const std::string parameter = "      weight: {dims: [hidden], init: ones}\n",
                    spare = "      spare: {dims: [hidden], init: ones, when: width - 8}\n";
  std::string text = smallModel;
  text.replace(text.find(op), op.size(), optional);
  text.replace(text.find(parameter), parameter.size(), parameter + spare);
  std::string file = testing::TempDir() + "espalier_optional_model.yaml";
  for (const char *width : {"8", "16"}) {
    std::string changed = text;
    const std::string given = "width: {default: 8}";
    changed.replace(changed.find(given), given.size(), "width: {default: " + std::string(width) + "}");
    std::ofstream(file) << changed;
    Diagnostics diagnostics;
    std::optional<Architecture> architecture = loadArchitecture(file, diagnostics);
    ASSERT_TRUE(architecture) << diagnostics.render();
    ModelDescription model =
        describeModel(*architecture, resolveSizes(*architecture, nullptr, diagnostics), diagnostics);
    EXPECT_EQ(diagnostics.render(), "");
    bool isWide = std::string(width) == "16";
    EXPECT_EQ(model.segment("block").parameters.size(), isWide ? 2u : 1u);
    EXPECT_EQ(model.segment("block").ops.size(), isWide ? 2u : 1u);
    EXPECT_EQ(model.segment("block").ops.back().inputs.front(), isWide ? "n" : "x");
  }
  std::filesystem::remove(file);
}

// A block of two parts: the first norm has no weight in this run, and a size chooses the op of the second.
const char *const modelOfParts = R"(name: small
arch: [Small]
config: SmallConfig
sizes:
  width: {default: 8}
  norm: {type: string, default: mean, choices: {mean: layer_norm, square: rms_norm, none: null}}
dims: {hidden: width, vocab: 16}
model: [first, block, last]
parts:
  before:
    parameters:
      spare: {dims: [hidden], init: ones, when: width - 8}
    ops:
      - {op: rms_norm, in: [x, spare], out: n, epsilon: 1e-5}
  after:
    parameters:
      weight: {dims: [hidden], init: ones}
      bias: {dims: [hidden], init: zeros}
    ops:
      - {op: alias, in: n, out: chosen, when: 1}
      - {op: alias, in: x, out: chosen, when: 0}
      - {op: norm, in: [chosen, weight, bias], out: m, epsilon: 1e-5}
segments:
  first:
    stream: {out: x}
    parameters:
      table: {dims: [vocab, hidden], init: {normal: 0.02}}
    ops:
      - {op: embed, in: [table, tokens], out: token}
      - {op: scale, in: token, out: x, factor: 2, when: 0}
  block:
    stream: {in: x, out: y}
    parts: [before, after]
    parameters:
      weight: {init: zeros}
      last_weight: {dims: [hidden], init: ones}
    ops:
      - {op: rms_norm, in: [m, last_weight], out: y, epsilon: 1e-5}
  gone: null
  last:
    stream: {in: x, out: loss}
    parameters:
      table: {tied: first.table}
    ops:
      - {op: linear, in: [x, table], out: logits}
      - {op: cross_entropy, in: [logits, labels, loss_weights], out: loss}
)";

/// Describes modelOfParts with one text replaced by another.
ModelDescription describedParts(const std::string &from, const std::string &to, Diagnostics &diagnostics) {
  std::string text = modelOfParts, file = testing::TempDir() + "espalier_model_of_parts.yaml";
  text.replace(text.find(from), from.size(), to);
  std::ofstream(file) << text;
  std::optional<Architecture> architecture = loadArchitecture(file, diagnostics);
  std::filesystem::remove(file);
  if (!architecture)
    return {};
  return describeModel(*architecture, resolveSizes(*architecture, nullptr, diagnostics), diagnostics);
}

TEST(ModelFile, SegmentsAreMadeOfParts) {
  Diagnostics diagnostics;
  ModelDescription described = describedParts("name: small", "name: small", diagnostics);
  ASSERT_EQ(diagnostics.render(), "");
  const SegmentDescription &block = described.segment("block");
  std::vector<std::string> names;
  for (const ParameterDescription &parameter : block.parameters)
    names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("weight", "bias", "last_weight"));
  EXPECT_EQ(parameter(block, "weight").initializer.kind, rt::pb::Initialization::ZEROS);
  ASSERT_EQ(block.ops.size(), 2u);
  EXPECT_EQ(block.ops[0].kind, "layer_norm");
  EXPECT_THAT(block.ops[0].inputs, ElementsAre("x", "weight", "bias"));
  EXPECT_EQ(block.ops[0].location.line, 22); // of the part
  EXPECT_EQ(described.segment("first").streamOut, "token");
}

TEST(ModelFile, WeightDecidesWhetherAnOpIsThere) {
  Diagnostics diagnostics;
  ModelDescription described = describedParts("width: {default: 8}", "width: {default: 16}", diagnostics);
  ASSERT_EQ(diagnostics.render(), "");
  EXPECT_EQ(described.segment("block").ops.size(), 3u);
}

TEST(ModelFile, FaultsOfPartsAreReported) {
  for (auto [from, to, error] :
       {std::tuple("[before, after]", "[before, aftr]", "no part 'aftr', did you mean 'after'?"),
        {"  after:\n    parameters", "  after:\n    paramters", "unknown key 'paramters' in a part"},
        {"default: mean", "default: none", "no op '"},
        {"in: n, out: chosen, when: 1", "in: n, out: chosen, wen: 1", "unknown key 'wen' in alias"},
        {"[chosen, weight, bias]", "[chosen, bias]", "no op of 'block' reads the parameter 'weight'"}}) {
    Diagnostics diagnostics;
    describedParts(from, to, diagnostics);
    EXPECT_THAT(diagnostics.render(), HasSubstr(error));
  }
}

// The bases of a model file are merged key by key, in their order.
TEST(ModelFile, BasesAreMergedByKeys) {
  std::string folder = testing::TempDir() + "espalier_bases/";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "a.yaml") << smallModel;
  std::ofstream(folder + "b.yaml") << "sizes: {width: {meaning: of b}, depth: {default: 3}}\n";
  std::ofstream(folder + "c.yaml") << "base_config: [a.yaml, b.yaml]\nname: third\nsizes: {depth: {least: 2}}\n";
  Diagnostics diagnostics;
  std::optional<Architecture> architecture = loadArchitecture(folder + "c.yaml", diagnostics);
  ASSERT_TRUE(architecture) << diagnostics.render();
  EXPECT_EQ(architecture->name, "third");
  EXPECT_EQ(architecture->sizeRule("width")->defaultText, "8");
  EXPECT_EQ(architecture->sizeRule("width")->meaning, "of b");
  EXPECT_EQ(architecture->sizeRule("depth")->defaultText, "3");
  EXPECT_EQ(architecture->sizeRule("depth")->least, "2");
  std::filesystem::remove_all(folder);
}

// A null takes whatever the base has, also within an entry. It is a value below `is`, and where no base has the key.
TEST(ModelFile, NullRemovesEntriesOfBases) {
  std::string folder = testing::TempDir() + "espalier_removed/";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "a.yaml") << smallModel
                                   << "hf_config: {model_type: a, sizes: {w: {is: width, default: 8, unset: 3}, "
                                      "d: {is: depth}}, only: {rate: 0, kind: {is: x, missing: y}}, "
                                      "unsaid: {width: 8}}\n";
  std::ofstream(folder + "b.yaml") << "base_config: a.yaml\nsizes: {width: {default: 16, only: 16, most: 20, "
                                      "aliases: [w]}, heads: {constant: 2}, form: {type: string, default: a, "
                                      "choices: {a: one, b: two}}}\ndims: {other: 3}\n";
  std::ofstream(folder + "c.yaml") << "base_config: b.yaml\nsizes: {width: {only: null, aliases: null}, heads: "
                                      "{constant: null, default: 4}, form: {default: b, choices: {a: null}}}\n"
                                      "dims: {other: null}\nhf_config: {sizes: {w: {unset: null}, d: null}, only: "
                                      "{rate: null, kind: {is: null, missing: null}, window: null}, unsaid: {width: "
                                      "null}}\n";
  Diagnostics diagnostics;
  std::optional<Architecture> architecture = loadArchitecture(folder + "c.yaml", diagnostics);
  ASSERT_TRUE(architecture) << diagnostics.render();
  const SizeRule &width = *architecture->sizeRule("width");
  EXPECT_THAT(std::vector({width.defaultText, width.most, width.only}), testing::ElementsAre("16", "20", ""));
  EXPECT_THAT(width.aliases, testing::IsEmpty());
  EXPECT_FALSE(architecture->sizeRule("heads")->isConstant);
  EXPECT_THAT(architecture->sizeRule("form")->choices, testing::ElementsAre(testing::Pair("b", "two")));
  EXPECT_FALSE(architecture->root->find("dims")->find("other"));
  const YamlNode &config = *architecture->root->find("hf_config");
  EXPECT_FALSE(config.find("sizes")->find("w")->find("unset"));
  EXPECT_FALSE(config.find("sizes")->find("d"));
  EXPECT_FALSE(config.find("only")->find("rate"));
  EXPECT_FALSE(config.find("only")->find("kind")->find("missing"));
  EXPECT_EQ(config.find("only")->find("kind")->find("is")->kind, YamlNode::Kind::Null);
  EXPECT_EQ(config.find("only")->find("window")->kind, YamlNode::Kind::Null);
  EXPECT_FALSE(config.find("unsaid")->find("width"));
  std::filesystem::remove_all(folder);
}

TEST(ModelFile, ListIsNoModel) {
  std::string file = testing::TempDir() + "espalier_list_model.yaml";
  std::ofstream(file) << "[1, 2]\n";
  Diagnostics diagnostics;
  EXPECT_FALSE(loadArchitecture(file, diagnostics));
  EXPECT_THAT(diagnostics.render(), HasSubstr("a model file is a map with name, sizes, dims, model and segments"));
  std::filesystem::remove(file);
}

} // namespace
} // namespace espalier
