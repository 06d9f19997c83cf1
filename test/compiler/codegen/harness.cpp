#include "test/compiler/codegen/harness.h"

#include "compiler/codegen/emit_objects.h"
#include "compiler/codegen/program_builder.h"
#include "compiler/driver.h"
#include "compiler/link/emit_programs.h"
#include "dialects/exec/dialect.h"
#include "dialects/register.h"
#include "test/compiler/codegen/bare_plan.h"
#include "test/compiler/codegen/declarations.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;

namespace espalier::test {

namespace pb = rt::pb;

namespace {

pb::DataType typeOf(Type type) {
  Type element = cast<RankedTensorType>(type).getElementType();
  return element.isBF16() ? pb::BF16 : element.isF16() ? pb::F16 : element.isInteger() ? pb::I32 : pb::F32;
}

struct Place {
  exec::Region region;
  int64_t offset;
};

/// Returns the region and offset of an argument or result, as a call's bindings would give them.
Place placeOf(DictionaryAttr attributes, bool isResult) {
  std::string role = attributes.getAs<StringAttr>("model.role").str();
  std::string name = attributes.getAs<StringAttr>("model.name").str();
  if (role == "stream")
    return {isResult ? exec::Region::StreamOut : exec::Region::StreamIn, 0};
  if (role == "cotangent")
    return {isResult ? exec::Region::CotangentIn : exec::Region::CotangentOut, 0};
  if (role == "statistic")
    return {exec::Region::Scalars, 4 * codegen::scalarSlot(name)};
  std::map<std::string, exec::Region> regions = {{"input", exec::Region::Inputs},
                                                 {"parameter", exec::Region::Parameters},
                                                 {"accumulator", exec::Region::Gradients},
                                                 {"state", exec::Region::State},
                                                 {"saved", exec::Region::Saved}};
  return {regions.at(role), attributes.getAs<IntegerAttr>("exec.offset").getInt()};
}

Numbers randomNumbers(Type type, std::mt19937 &random) {
  auto tensor = cast<RankedTensorType>(type);
  std::normal_distribution<float> normal;
  Numbers numbers;
  for (int64_t i = 0; i < tensor.getNumElements(); ++i)
    numbers.push_back(tensor.getElementType().isInteger() ? random() % 5 : normal(random));
  return numbers;
}

} // namespace

Compiled::Compiled(const std::string &text) {
  DialectRegistry registry;
  registerDialects(registry);
  context = std::make_unique<MLIRContext>(registry);
  source = parseSourceString<ModuleOp>(text, context.get());
  EXPECT_TRUE(source);
  BareLayout layout;
  for (auto function : source->getOps<func::FuncOp>()) {
    putInBuckets(function);
    layout.layOut(function);
  }
  for (auto [target, plan] : {std::pair("cpu", &message), std::pair("cuda", &gpuMessage)}) {
    OwningOpRef<ModuleOp> lowered = source->clone();
    (*lowered)->setAttr("exec.target", StringAttr::get(context.get(), target));
    PassManager passes(context.get());
    addCodegenPasses(passes);
    EXPECT_TRUE(succeeded(passes.run(*lowered)));
    addQueues(*plan);
    emitPrograms(*lowered, *plan);
    EXPECT_TRUE(succeeded(codegen::emitObjects(*lowered, *plan)));
    EXPECT_EQ(undeclared(*plan), "");
  }
}

std::string Compiled::instructions(const std::string &function) const {
  std::string words;
  for (const pb::Subprogram &subprogram : message.subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions())
      if (subprogram.name() == function)
        words += (words.empty() ? "" : " ") + message.locations(instruction.location()).op();
  return words;
}

void Compiled::check(const std::string &name, const Surroundings &surroundings, double tolerance,
                     const std::map<std::string, Numbers> &given) {
  func::FuncOp wanted;
  for (auto function : source->getOps<func::FuncOp>())
    if (function.getSymName() == name)
      wanted = function;
  ASSERT_TRUE(wanted) << name;
  std::vector<Place> argumentPlaces, resultPlaces;
  for (unsigned i = 0; i < wanted.getNumArguments(); ++i)
    argumentPlaces.push_back(placeOf(wanted.getArgAttrDict(i), /*isResult=*/false));
  for (unsigned i = 0; i < wanted.getNumResults(); ++i)
    resultPlaces.push_back(placeOf(wanted.getResultAttrDict(i), /*isResult=*/true));
  std::vector<Numbers> evaluated, results; // the arguments of the last evaluation, which most levels share
  for (const std::string &level : allLevels()) {
    Machine machine(plan(level), level, surroundings);
    int scalars = static_cast<int>(exec::Region::Scalars);
    machine.write(scalars, 0, pb::F32, Numbers(surroundings.slots.begin(), surroundings.slots.end()));
    machine.write(scalars, 4 * rt::Step, pb::I32, {static_cast<double>(surroundings.step)});
    std::mt19937 random(11);
    std::vector<Numbers> arguments;
    for (auto argument : wanted.getArguments()) {
      auto attribute = wanted.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "model.name");
      auto found = given.find(attribute.str());
      Numbers numbers = found != given.end() ? found->second : randomNumbers(argument.getType(), random);
      Place place = argumentPlaces[argument.getArgNumber()];
      machine.write(static_cast<int>(place.region), place.offset, typeOf(argument.getType()), numbers);
      // The reference uses the values rounded to their storage type, as the program reads them.
      arguments.push_back(
          machine.read(static_cast<int>(place.region), place.offset, typeOf(argument.getType()), numbers.size()));
    }
    if (results.empty() || arguments != evaluated) {
      results = evaluate(wanted, arguments, surroundings);
      evaluated = arguments;
    }
    machine.run(name);
    for (size_t i = 0; i < results.size(); ++i) {
      Type type = wanted.getResultTypes()[i];
      Numbers got = machine.read(static_cast<int>(resultPlaces[i].region), resultPlaces[i].offset, typeOf(type),
                                 results[i].size());
      int wrong = 0;
      double squares = 0;
      for (double number : results[i])
        squares += number * number;
      double scale = 1 + std::sqrt(squares / results[i].size());
      for (size_t j = 0; j < got.size() && wrong < 5; ++j)
        if (!(std::abs(got[j] - results[i][j]) <= tolerance * (scale + std::abs(results[i][j])))) {
          ++wrong;
          ADD_FAILURE() << name << " at " << level << ", result " << i << ", element " << j << ": got " << got[j]
                        << ", wanted " << results[i][j];
        }
    }
  }
}

} // namespace espalier::test
