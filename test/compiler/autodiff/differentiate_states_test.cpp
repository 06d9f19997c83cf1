// Compares the derivatives of recurrences and causal convolutions with finite differences.
#include "test/compiler/autodiff/finite_differences.h"

namespace espalier {
namespace {

/// Checks a recurrence with these dimensions of v, decay and beta.
void checkRecurrence(const std::string &v, const std::string &decay, const std::string &beta, bool hasDelta,
                     bool hasDocuments) {
  Segment segment{
      {{"batch=2 seq=5 heads=2 key=3"}, {"batch=2 seq=5 heads=2 key=3"}, {v}, {decay, -1, -0.1}, {beta, 0.2, 0.9}},
      "",
      v};
  std::string operands = "%x0, %x1, %x2, %x3, %x4", types = "$0, $1, $2, $3, $4";
  if (hasDocuments) {
    segment.inputs.push_back({.dims = "batch=2 seq=5", .values = {0, 0, 2, 2, 4, 0, 0, 0, 0, 4}});
    operands += ", %x5";
    types += ", $5";
  }
  segment.body = "%y = model.recurrence " + operands + (hasDelta ? " {delta}" : "") + " : (" + types + ") -> $y";
  checkDerivative(segment);
}

TEST(RecurrenceDerivative, OfADecayPerHead) {
  for (bool hasDelta : {false, true})
    for (bool hasDocuments : {false, true})
      checkRecurrence("batch=2 seq=5 heads=2 value=4", "batch=2 seq=5 heads=2", "batch=2 seq=5 heads=2", hasDelta,
                      hasDocuments);
}

TEST(RecurrenceDerivative, OfADecayPerColumn) {
  for (bool hasDelta : {false, true})
    checkRecurrence("batch=2 seq=5 heads=2 value=4", "batch=2 seq=5 heads=2 key=3", "batch=2 seq=5 heads=2", hasDelta,
                    true);
}

TEST(RecurrenceDerivative, SumsQueriesAndKeysOverTheGroup) {
  for (const char *decay : {"batch=2 seq=5 heads=2 group=3", "batch=2 seq=5 heads=2 group=3 key=3"})
    checkRecurrence("batch=2 seq=5 heads=2 group=3 value=4", decay, "batch=2 seq=5 heads=2 group=3", true, true);
}

TEST(CausalConvDerivative, OfChannels) {
  checkDerivative({{{"batch=2 seq=5 channels=3"}, {"channels=3 taps=4"}},
                   "%y = model.causal_conv %x0, %x1 : ($0, $1) -> $y",
                   "batch=2 seq=5 channels=3",
                   {1}});
}

TEST(CausalConvDerivative, OfDocuments) {
  checkDerivative({{{"batch=2 seq=6 heads=2 columns=3"},
                    {"heads=2 columns=3 taps=3"},
                    {.dims = "batch=2 seq=6", .values = {0, 0, 2, 2, 2, 5, 0, 0, 0, 3, 3, 3}}},
                   "%y = model.causal_conv %x0, %x1, %x2 : ($0, $1, $2) -> $y",
                   "batch=2 seq=6 heads=2 columns=3",
                   {1}});
}

} // namespace
} // namespace espalier
