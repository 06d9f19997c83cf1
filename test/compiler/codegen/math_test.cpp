// Compares exp, log, tanh and erf of kernels with libm over their whole range, at all levels. On GPUs, kernels use
// approximate instructions. The emulator rounds these correctly; a device has an additional error of up to 2^-22.
#include "dialects/exec/dialect.h"
#include "test/compiler/codegen/harness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace espalier::test {
namespace {

namespace pb = rt::pb;

constexpr int count = 4099; // not a multiple of any vector width

std::string unary(const std::string &op) {
  return "!x = tensor<" + std::to_string(count) + "xf32, #model.dims<hidden>>\n" +
         "func.func @f.forward(%x: !x {model.role = \"stream\", model.name = \"x\"}) -> (!x {model.role = "
         "\"stream\", " +
         "model.name = \"x\"}) {\n%y = model." + op + " %x : (!x) -> !x\nreturn %y : !x\n}\n";
}

/// Checks the largest relative error of `op` on [low, high] against `reference`. Denormal results are checked by
/// absolute error.
void checkUnary(const std::string &op, double (*reference)(double), double low, double high, double tolerance,
                double gpuTolerance) {
  Compiled compiled(unary(op));
  for (const std::string &level : allLevels()) {
    Machine machine(compiled.plan(level), level, {});
    Numbers x;
    for (int i = 0; i < count; ++i)
      x.push_back(static_cast<float>(low + (high - low) * i / (count - 1)));
    machine.write(static_cast<int>(exec::Region::StreamIn), 0, pb::F32, x);
    machine.run("f.forward");
    Numbers got = machine.read(static_cast<int>(exec::Region::StreamOut), 0, pb::F32, count);
    double worst = 0, at = 0;
    for (int i = 0; i < count; ++i) {
      double wanted = static_cast<float>(reference(x[i]));
      if (got[i] == wanted)
        continue;
      double error = std::abs(got[i] - wanted) / std::max(std::abs(wanted), 1e-38);
      if (!(error <= worst)) {
        worst = error;
        at = x[i];
      }
    }
    EXPECT_LE(worst, level == gpuLevel ? gpuTolerance : tolerance) << op << " at " << level << ", x = " << at;
  }
}

TEST(KernelMath, ExpIsAccurateFromSubnormalToOverflow) {
  // On GPUs, the argument of ex2 is rounded, which gives an absolute error of the exponent of 2^-24 times the argument.
  // Denormals are 0.
  checkUnary("exp", std::exp, -87, 88.7, 2.5e-7, 6e-6);
  checkUnary("exp", std::exp, -1, 1, 2.5e-7, 2e-7);
  checkUnary("exp", std::exp, -300, -87, 2e-7, 1.2);
  checkUnary("exp", std::exp, 88.8, 1000, 0, 0);
}

TEST(KernelMath, LogIsAccurateOverAllMagnitudes) {
  checkUnary("log", std::log, 1e-3, 4, 4e-7, 4e-7);
  checkUnary("log", std::log, 1, 1e30, 3e-7, 3e-7);
  checkUnary("log", std::log, 1e-44, 1e-38, 3e-7, 3e-7);
}

TEST(KernelMath, TanhSaturatesAndKeepsSmallArguments) {
  checkUnary("tanh", std::tanh, -1, 1, 4e-7, 4e-7);
  checkUnary("tanh", std::tanh, -200, 200, 3e-7, 3e-7);
  checkUnary("tanh", std::tanh, -1e-6, 1e-6, 2e-7, 2e-7);
}

TEST(KernelMath, ErfSaturatesAndKeepsSmallArguments) {
  checkUnary("erf", std::erf, -4, 4, 4e-7, 4e-7);
  checkUnary("erf", std::erf, -1000, 1000, 2e-7, 2e-7);
  checkUnary("erf", std::erf, -1e-6, 1e-6, 3e-7, 3e-7);
}

// Infinities, zeros and NaNs give the same results as libm.
TEST(KernelMath, SpecialValues) {
  double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (auto &[op, reference] : std::vector<std::pair<std::string, double (*)(double)>>{
           {"exp", std::exp}, {"log", std::log}, {"tanh", std::tanh}, {"erf", std::erf}}) {
    Compiled compiled(unary(op));
    for (const std::string &level : allLevels()) {
      Machine machine(compiled.plan(level), level, {});
      Numbers x(count, 1.0);
      Numbers special = {infinity, -infinity, nan, 0.0, -0.0, -1.0, 3e38, -3e38};
      std::copy(special.begin(), special.end(), x.begin());
      machine.write(static_cast<int>(exec::Region::StreamIn), 0, pb::F32, x);
      machine.run("f.forward");
      Numbers got = machine.read(static_cast<int>(exec::Region::StreamOut), 0, pb::F32, special.size());
      for (size_t i = 0; i < special.size(); ++i) {
        auto wanted = static_cast<float>(reference(static_cast<float>(special[i])));
        if (std::isnan(wanted))
          EXPECT_TRUE(std::isnan(got[i])) << op << "(" << special[i] << ") at " << level << " is " << got[i];
        else if (std::isinf(wanted))
          EXPECT_EQ(got[i], wanted) << op << "(" << special[i] << ") at " << level;
        else
          EXPECT_NEAR(got[i], wanted, 3e-7 * std::abs(wanted)) << op << "(" << special[i] << ") at " << level;
      }
    }
  }
}

} // namespace
} // namespace espalier::test
