// Compares the imported, differentiated and interpreted model with the numbers of an independent program
// (reference.py).
#include "test/golden/golden_model.h"

namespace espalier {
namespace {

double norm(const std::vector<double> &values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

/// Requires |g - g'| <= tolerance |g| + tolerance / 100 |all gradients| for each parameter. The second term covers
/// gradients that are zero in theory, such as that of a key bias.
void compareFirstStep(const std::string &name, bool isExact, double tolerance) {
  GoldenModel model(name);
  double loss = model.firstStep(isExact);
  EXPECT_NEAR(loss, model.golden["losses"][0].get<double>(), tolerance * loss);
  std::vector<double> all;
  for (const auto &[parameter, values] : model.gradients)
    all.insert(all.end(), values.begin(), values.end());
  EXPECT_NEAR(norm(all), model.golden["gradient_norms"][0].get<double>(), tolerance * norm(all));
  ASSERT_EQ(model.gradients.size(), model.golden["parameters"].size());
  for (const auto &entry : model.golden["parameters"]) {
    auto expected = entry["gradient"].get<std::vector<double>>();
    ASSERT_TRUE(model.gradients.count(entry["name"])) << entry["name"];
    std::vector<double> difference = model.gradients.at(entry["name"]);
    ASSERT_EQ(difference.size(), expected.size()) << entry["name"];
    for (size_t i = 0; i < expected.size(); ++i)
      difference[i] -= expected[i];
    EXPECT_LE(norm(difference), tolerance * norm(expected) + tolerance / 100 * norm(all)) << entry["name"];
  }
}

// The recorded numbers have seven digits.
TEST(Golden, Gpt2InDoublePrecision) { compareFirstStep("gpt2", true, 5e-7); }
TEST(Golden, LlamaInDoublePrecision) { compareFirstStep("llama", true, 5e-7); }
TEST(Golden, Qwen3MoeInDoublePrecision) { compareFirstStep("qwen3_moe", true, 5e-7); }
// Every intermediate value is rounded to f32, with an error of about 1e-7 per op.
TEST(Golden, Gpt2InSinglePrecision) { compareFirstStep("gpt2", false, 1e-5); }
TEST(Golden, LlamaInSinglePrecision) { compareFirstStep("llama", false, 1e-5); }
TEST(Golden, Qwen3MoeInSinglePrecision) { compareFirstStep("qwen3_moe", false, 1e-5); }

} // namespace
} // namespace espalier
