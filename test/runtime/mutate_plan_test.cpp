// The verifier must handle any plan, because plans come from outside. Random fields of a valid plan get extreme values.
// With sanitizers, this is the fuzz test of the verifier and of the loader.
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "test/runtime/sample_plan.h"

#include <google/protobuf/reflection.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace espalier::rt {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Mutator {
public:
  explicit Mutator(uint32_t seed) : random(seed) {}

  /// Changes one field below `message`: sets another value, or removes, duplicates or swaps entries.
  void mutate(Message &message) {
    const Reflection &reflection = *message.GetReflection();
    std::vector<const FieldDescriptor *> fields;
    reflection.ListFields(message, &fields);
    if (fields.empty())
      return;
    const FieldDescriptor *field = fields[below(fields.size())];
    // Usually descends to a leaf, because there are few fields near the root.
    bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      int entries = reflection.FieldSize(message, field);
      if (isMessage && below(8) != 0)
        return mutate(*reflection.MutableRepeatedMessage(&message, field, static_cast<int>(below(entries))));
      if (below(2) == 0)
        return reflection.SwapElements(&message, field, static_cast<int>(below(entries)), entries - 1);
      return reflection.RemoveLast(&message, field);
    }
    if (isMessage)
      return below(16) == 0 ? reflection.ClearField(&message, field)
                            : mutate(*reflection.MutableMessage(&message, field));
    setValue(message, reflection, field);
  }

private:
  uint64_t below(uint64_t bound) { return random() % bound; }

  /// Returns small, large and extreme numbers, and numbers near the present one.
  uint64_t number(uint64_t present) {
    static constexpr uint64_t extremes[] = {0,
                                            1,
                                            2,
                                            63,
                                            0x7fffffff,
                                            0x80000000,
                                            0xffffffff,
                                            1ull << 40,
                                            0x7fffffffffffffff,
                                            0x8000000000000000,
                                            0xffffffffffffffff};
    switch (below(4)) {
    case 0:
      return present + 1;
    case 1:
      return present - 1;
    case 2:
      return present * 2 + 64;
    default:
      return extremes[below(std::size(extremes))];
    }
  }

  void setValue(Message &message, const Reflection &reflection, const FieldDescriptor *field) {
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, field, number(reflection.GetInt32(message, field)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, field, number(reflection.GetUInt32(message, field)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, field, number(reflection.GetInt64(message, field)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, field, number(reflection.GetUInt64(message, field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(
          &message, field, below(2) ? std::numeric_limits<double>::quiet_NaN() : -reflection.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, field, !reflection.GetBool(message, field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, field,
                                     static_cast<int>(number(reflection.GetEnumValue(message, field))));
    default:
      return reflection.SetString(&message, field, below(2) ? "" : reflection.GetString(message, field) + "x");
    }
  }

  std::mt19937 random;
};

class MutatedPlan : public testing::TestWithParam<int> {};

TEST_P(MutatedPlan, IsRefusedOrLoads) {
  SampleOptions options;
  options.dp = options.tp = 2;
  options.pp = GetParam();
  options.zero = GetParam() % 2 == 0;
  const pb::Plan good = samplePlan(options);
  Mutator mutator(/*seed=*/GetParam());
  int refused = 0, loaded = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    pb::Plan plan = good;
    for (int changes = 1 + trial % 3; changes > 0; --changes)
      mutator.mutate(plan);
    try {
      Program program(plan);
      ++loaded;
    } catch (const PlanError &) {
      ++refused;
    }
  }
  // Names, predictions and most settings may have any value. Sizes and indices may not.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(loaded, 100);
}

INSTANTIATE_TEST_SUITE_P(Stages, MutatedPlan, testing::Values(1, 2, 3, 4));

} // namespace
} // namespace espalier::rt
