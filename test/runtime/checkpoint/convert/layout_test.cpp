// Tests layouts and name rules on small models: the position of each element, and the rules that are refused.
#include "test/runtime/checkpoint/convert/convert_fixture.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// Returns the tensor of `locals` in layer 0. Element e of the i-th parameter has the value 1000 i + e.
std::vector<float> placed(const WeightModel &model, const std::string &layout, const std::vector<std::string> &locals,
                          LayoutSplit split, std::vector<int64_t> &shape) {
  std::vector<size_t> parameters;
  for (const std::string &local : locals)
    parameters.push_back(static_cast<size_t>(model.find(local, 0) - model.parameters.data()));
  Layout::Placed place = Layout(std::string_view(layout)).place(model, parameters, {&model.dims}, split, {});
  shape = place.shape;
  size_t count = 1;
  for (int64_t size : shape)
    count *= static_cast<size_t>(size);
  std::vector<float> tensor(count, -1);
  for (const PlacedPart &part : place.parts) {
    const WeightParameter &parameter = model.parameters[part.parameter];
    std::vector<float> numbers(parameter.elements());
    for (size_t e = 0; e < numbers.size(); ++e)
      numbers[e] = static_cast<float>(1000 * (part.parameter - parameters[0]) + e);
    givePart(part, parameter.sizes, 4, std::as_bytes(std::span(numbers)), std::as_writable_bytes(std::span(tensor)));
    // Converts back and compares with the original values.
    std::vector<float> back(numbers.size(), -1);
    takePart(part, parameter.sizes, 4, std::as_bytes(std::span(tensor)), std::as_writable_bytes(std::span(back)));
    for (size_t e = 0; e < back.size(); ++e)
      EXPECT_TRUE(back[e] == numbers[e] || (back[e] == -1 && (split.tp > 1 || place.parts.size() > parameters.size())));
  }
  return tensor;
}

class LayoutOf : public ConvertTest {};

// One group has three query heads, one key head and one value head. Each head has two rows of six elements.
TEST_F(LayoutOf, AGroupHoldsItsQueriesThenKeyThenValue) {
  std::vector<int64_t> shape;
  std::vector<float> tensor =
      placed(smallModel(), "(kv_heads* | group head_dim) hidden", {"q_weight", "k_weight", "v_weight"}, {}, shape);
  EXPECT_EQ(shape, (std::vector<int64_t>{20, 6}));
  EXPECT_EQ(tensor[0], 0);             // q[hidden 0, group 0, query 0, 0]
  EXPECT_EQ(tensor[1], 12);            // the next element of hidden is 12 elements later in q
  EXPECT_EQ(tensor[6 * 6], 1000);      // k follows six rows of q
  EXPECT_EQ(tensor[8 * 6], 2000);      // v follows two rows of k
  EXPECT_EQ(tensor[10 * 6], 6);        // q of the second group
  EXPECT_EQ(tensor[19 * 6 + 5], 2023); // the last element of v
  EXPECT_EQ(std::ranges::count(tensor, -1.0F), 0);
}

// Each rank holds its half of the gate, then its half of the up projection.
TEST_F(LayoutOf, RanksSplitEachPart) {
  std::vector<int64_t> shape;
  std::vector<float> first = placed(smallModel(), "(| ffn*) hidden", {"gate_weight", "up_weight"}, {2, 0}, shape);
  EXPECT_EQ(shape, (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(first[0], 0);
  EXPECT_EQ(first[6], 1);
  EXPECT_EQ(first[12], 1000);
  std::vector<float> second = placed(smallModel(), "(| ffn*) hidden", {"gate_weight", "up_weight"}, {2, 1}, shape);
  EXPECT_EQ(second[0], 2);
  EXPECT_EQ(second[12], 1002);
  EXPECT_EQ(std::ranges::count(second, -1.0F), 0);
}

// The rows of a head alternate between its halves. A head of two rows has halves of one row and stays as it is.
TEST_F(LayoutOf, HalvesAlternate) {
  std::vector<int64_t> shape;
  std::vector<float> tensor = placed(smallModel(), "hidden~ ffn", {"gate_weight"}, {}, shape);
  std::vector<float> plain = placed(smallModel(), "hidden ffn", {"gate_weight"}, {}, shape);
  EXPECT_EQ(shape, (std::vector<int64_t>{6, 4}));
  for (size_t row : {0, 1, 2, 3, 4, 5})
    EXPECT_EQ(tensor[4 * row], plain[4 * (row / 2 + row % 2 * 3)]) << row;
  EXPECT_EQ(std::ranges::count(tensor, -1.0F), 0);
}

TEST_F(LayoutOf, RejectsInvalidLayouts) {
  WeightModel model = smallModel();
  std::vector<int64_t> shape;
  auto errorWith = [&](const std::string &layout, const std::vector<std::string> &locals, int64_t tp) {
    return errorOf([&] { placed(model, layout, locals, {tp, 0}, shape); });
  };
  EXPECT_THAT(errorWith("hidden (ffn", {"gate_weight"}, 1), HasSubstr("is not a layout: axes such as"));
  EXPECT_THAT(errorWith("hidden* ffn*", {"gate_weight"}, 1), HasSubstr("at most one * and one |"));
  EXPECT_THAT(errorWith("hidden | ffn", {"gate_weight"}, 1), HasSubstr("'|' does not belong at 8"));
  EXPECT_THAT(errorWith("hidden fnf", {"gate_weight"}, 1), HasSubstr("'block.0.gate_weight' has no dimension 'fnf'"));
  EXPECT_THAT(errorWith("(| fnf) hidden", {"gate_weight"}, 1), HasSubstr("names each of the 2 dimensions"));
  EXPECT_THAT(errorWith("(| fnf*) hidden", {"gate_weight"}, 1), HasSubstr("names each of the 2 dimensions"));
  EXPECT_THAT(errorWith("hidden", {"gate_weight"}, 1), HasSubstr("a layout names each of the 2 dimensions of"));
  EXPECT_THAT(errorWith("hidden ffn*", {"gate_weight"}, 3), HasSubstr("ffn 4 does not divide by tp 3"));
}

class NamesOf : public ConvertTest {
protected:
  static std::string errorWith(const std::vector<NameRule> &rules, bool isTied = false) {
    WeightModel model = smallModel(isTied);
    return errorOf([&] { NameMap(model, rules, "m.yaml").tensors({0, 2, true, true, {}}, 0, {}); });
  }
};

TEST_F(NamesOf, RefusesRulesThatDoNotFit) {
  EXPECT_THAT(errorWith({{"a(b", "wte"}}), HasSubstr("m.yaml: 'a(b' opens a bracket and does not close it"));
  EXPECT_THAT(errorWith({{"(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)", "wte"}}), HasSubstr("has more than 64 spellings"));
  EXPECT_THAT(errorWith({{"a", ""}}), HasSubstr("m.yaml: 'a' holds nothing: PARAMETER"));
  EXPECT_THAT(errorWith({{"a", "derived = vocab"}}), HasSubstr("holds nothing"));
  EXPECT_THAT(errorWith({{"a", "wte = (vocab"}}), HasSubstr("m.yaml: 'a': ' (vocab' is not a layout"));
  EXPECT_THAT(errorWith({{"a.{i}", "wte"}}), HasSubstr("'wte' is none of the layers"));
  EXPECT_THAT(errorWith({{"a", "q_weight"}}), HasSubstr("'q_weight' is one of the layers"));
  EXPECT_THAT(errorWith({{"a", "wtf"}}), HasSubstr("small has no parameter 'wtf'"));
  EXPECT_THAT(errorWith({{"a", "wte"}}), HasSubstr("m.yaml: no tensor holds 'norm_weight'"));
  std::vector<NameRule> rules = smallConversion().rules["hf"];
  rules[0].second = "wte = vocab";
  EXPECT_THAT(errorWith(rules), HasSubstr("m.yaml: '(model.|)embed.weight': a layout names each of the 2 dimensions"));
  EXPECT_THAT(errorOf([] { smallConversion().names("other"); }), HasSubstr("small.yaml: has no names of weights for"));
}

// Another system may have several names for a tensor: the first is written, any is read. With tied weights, the head
// repeats the embedding.
TEST_F(NamesOf, SpellingsAndTies) {
  for (bool isTied : {false, true}) {
    WeightModel model = smallModel(isTied);
    NameMap names(model, smallConversion(isTied).rules["legacy"], "m.yaml");
    std::vector<ForeignTensor> tensors = names.tensors({1, 1, false, true, {}}, 0, {});
    ASSERT_EQ(tensors.size(), isTied ? 5u : 4u);
    EXPECT_EQ(tensors[0].names, (std::vector<std::string>{"language_model/encoder/layers.0.norm.weight",
                                                          "language_model/transformer/layers.0.norm.weight"}));
    EXPECT_EQ(tensors[3].names[0], isTied ? "again/weight" : "language_model/output/weight");
    EXPECT_EQ(tensors[3].isTied, isTied);
    EXPECT_TRUE(tensors[3].isWritten);
    if (isTied)
      EXPECT_FALSE(tensors[4].isWritten);
  }
}

// Experts have one tensor per index of a dimension.
TEST_F(NamesOf, CountedDimensions) {
  WeightModel model = smallModel();
  std::vector<NameRule> rules = smallConversion().rules["hf"];
  rules[5].first = "h.{i}.gate.{ffn}.weight";
  rules[5].second = "gate_weight = hidden";
  NameMap names(model, rules, "m.yaml");
  std::vector<ForeignTensor> tensors = names.tensors({0, 1, false, false, {}}, 0, {});
  auto last = std::ranges::find_if(tensors, [](auto &each) { return each.names[0] == "h.0.gate.3.weight"; });
  ASSERT_NE(last, tensors.end());
  EXPECT_EQ(last->shape, (std::vector<int64_t>{6}));
  EXPECT_EQ(last->parts[0].offsets, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(last->parts[0].sizes, (std::vector<int64_t>{6, 1}));
}

} // namespace
} // namespace espalier::rt
