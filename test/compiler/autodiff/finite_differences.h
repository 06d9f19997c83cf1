// Checks the derivative of a segment against central differences in double precision.
#pragma once

#include "compiler/passes.h"
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {

/// One argument of the segment under test.
struct Input {
  std::string dims;                ///< "batch=2 seq=3"
  double low = -1, high = 1;       ///< its elements are random numbers in this interval
  std::vector<double> values = {}; ///< if set, an i32 argument with these elements, without a derivative
};

/// A segment with arguments %x0, %x1, ... Arguments have the role "stream", those listed in `parameters` the role
/// "parameter", and i32 arguments have no derivative. `body` computes the value %y of type `result`. In it, $0, $1, ...
/// are replaced by the types of the arguments and $y by the type of %y.
struct Segment {
  std::vector<Input> inputs;
  std::string body;
  std::string result; ///< dimensions of %y
  std::vector<unsigned> parameters = {};
  std::string element = "f32"; ///< storage type of the streams and of %y; parameters are f32
};

class DerivativeCheck {
public:
  explicit DerivativeCheck(const Segment &segment, double tolerance = 1e-6)
      : segment(segment), tolerance(tolerance), plain(text()), joint(text()) {
    exact.isExact = true;
    exact.seed = 3;
    exact.step = 4;
    exact.layer = 2;
    std::mt19937 random(17);
    for (size_t i = 0; i < segment.inputs.size(); ++i) {
      const Input &input = segment.inputs[i];
      arguments.push_back(draw(plain.argumentType(i), input.low, input.high, random));
      if (!input.values.empty())
        arguments.back().values = input.values;
    }
    cotangent = draw(llvm::cast<mlir::RankedTensorType>(plain.function().getResultTypes()[0]), -1, 1, random);
  }

  /// Compares every element of every gradient.
  void run() {
    ASSERT_TRUE(joint.run(createDifferentiate()));
    std::vector<Tensor> gradients = jointGradients();
    size_t next = 1; // result 0 is %y
    for (size_t i = 0; i < segment.inputs.size(); ++i) {
      if (!segment.inputs[i].values.empty())
        continue;
      ASSERT_LT(next, gradients.size());
      const Tensor &gradient = gradients[next++];
      ASSERT_EQ(textOf(gradient.type), textOf(plain.argumentType(i))) << "gradient of argument " << i;
      compare(i, gradient);
    }
    EXPECT_EQ(next, gradients.size());
  }

private:
  static std::string textOf(mlir::Type type) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return text;
  }

  static Tensor draw(mlir::RankedTensorType type, double low, double high, std::mt19937 &random) {
    Tensor tensor(type);
    for (double &value : tensor.values)
      value = low + (high - low) * (random() / 4294967296.0);
    return tensor;
  }

  std::string text() const {
    std::string result = tensorType(segment.result, segment.element), body = segment.body, arguments;
    auto replaceAll = [&](const std::string &from, const std::string &to) {
      for (size_t at = 0; (at = body.find(from, at)) != std::string::npos; at += to.size())
        body.replace(at, from.size(), to);
    };
    replaceAll("$y", result);
    for (size_t i = 0; i < segment.inputs.size(); ++i) {
      const Input &input = segment.inputs[i];
      bool isParameter = llvm::is_contained(segment.parameters, i);
      std::string element = !input.values.empty() ? "i32" : isParameter ? "f32" : segment.element;
      std::string type = tensorType(input.dims, element), index = std::to_string(i);
      std::string role = !input.values.empty() ? "input" : isParameter ? "parameter" : "stream";
      arguments += (i ? ", %x" : "%x") + index + ": " + type + " {model.role = \"" + role + "\", model.name = \"x" +
                   index + "\"}";
      replaceAll("$" + index, type);
    }
    return "func.func @f(" + arguments + ") -> " + result + " attributes {model.segment} {\n" + body +
           "\nreturn %y : " + result + "\n}";
  }

  /// Evaluates the joint function. Its results are in the order of the plain function's arguments, because the segments
  /// in these tests list streams before parameters.
  std::vector<Tensor> jointGradients() {
    std::vector<Tensor> all = arguments;
    for (size_t i = all.size(); i < joint.arguments(); ++i)
      all.emplace_back(joint.argumentType(i));
    EvalContext context = exact;
    // The two programs use different contexts, so the arguments are converted to the joint program's types.
    for (size_t i = 0; i < all.size(); ++i)
      all[i].type = joint.argumentType(i);
    context.cotangent = cotangent;
    context.cotangent->type = llvm::cast<mlir::RankedTensorType>(joint.function().getResultTypes()[0]);
    return joint.evaluate(all, context);
  }

  /// Returns the sum of cotangent * f(arguments).
  double value() {
    std::vector<double> y = plain.first(arguments, exact);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += cotangent.values[i] * y[i];
    return sum;
  }

  /// The error of central differences with step h is about h^2 |f'''| / 6 + 1e-16 |f| / h. With h = 1e-5, both terms
  /// are about 1e-10 for the functions and intervals of these tests.
  void compare(size_t index, const Tensor &gradient) {
    const double h = 1e-5;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < gradient.values.size(); ++i) {
      double &x = arguments[index].values[i];
      const double center = x;
      x = center + h;
      double above = value();
      x = center - h;
      double below = value();
      x = center;
      double numeric = (above - below) / (2 * h);
      largest = std::max(largest, std::abs(numeric));
      difference = std::max(difference, std::abs(numeric - gradient.values[i]));
    }
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-2)) << "gradient of argument " << index;
  }

  Segment segment;
  double tolerance;
  Program plain, joint;
  EvalContext exact;
  std::vector<Tensor> arguments;
  Tensor cotangent;
};

inline void checkDerivative(const Segment &segment, double tolerance = 1e-6) {
  DerivativeCheck check(segment, tolerance);
  check.run();
}

} // namespace espalier
