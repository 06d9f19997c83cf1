// A model of an oracle as joint functions, run by the interpreter. This tests import, build_model, every derivative and
// the interpreter together.
#pragma once

#include "compiler/import/model/build_model.h"
#include "compiler/import/run/import_run.h"
#include "compiler/interpret/eval.h"
#include "compiler/passes.h"
#include "dialects/register.h"
#include "format/model_inputs.h"
#include "runtime/dataset/further_labels.h"
#include "runtime/train/initial_value.h"

#include "mlir/Pass/PassManager.h"
#include "gmock/gmock.h"
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fstream>

namespace espalier {

using Values = std::map<std::string, std::vector<double>>;

inline const std::string folder = ESPALIER_SOURCE_DIR "/test/golden/";

/// One model of the oracle: its recorded numbers, and the model as joint functions.
class GoldenModel {
public:
  explicit GoldenModel(const std::string &name)
      : GoldenModel(nlohmann::json::parse(std::ifstream(folder + name + ".json")), folder + name + ".yaml") {}

  /// Uses the values in `given`, by checkpoint names, instead of initial values. `sets` changes the run file.
  GoldenModel(nlohmann::json numbers, const std::string &runFile, Values given = {}, std::vector<std::string> sets = {})
      : golden(std::move(numbers)), given(std::move(given)) {
    ImportOptions options;
    options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
    options.sets = std::move(sets);
    run = importRun(runFile, options);
    if (!run.ok())
      throw std::runtime_error(run.diagnostics.render());
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    ModelSizes sizes;
    sizes.batch = golden["training"]["batch"];
    sizes.vocabularyMultiple = 8; // pads 19 rows to 24; the padding must not change results
    module = buildModel(context, run.config.model, run.config.dtypes, sizes);
    mlir::PassManager manager(&context);
    manager.addPass(createDifferentiate());
    if (!module || failed(manager.run(*module)))
      throw std::runtime_error("the model cannot be built");
    fillInputs();
  }

  /// Runs the first step. Returns the mean loss and fills `gradients` with its gradients, without padding.
  double firstStep(bool isExact) {
    evalContext.isExact = isExact;
    evalContext.scalars["loss_scale"] = 1;
    std::vector<std::string> layers = layerNames();
    std::vector<Tensor> streams(layers.size() + 1); // streams[i] is the input of layer i
    for (size_t i = 0; i < layers.size(); ++i)
      streams[i + 1] = call(layers[i], streams[i])[0];
    for (size_t i = layers.size(); i-- > 0;) {
      std::vector<Tensor> results = call(layers[i], streams[i]);
      collect(layers[i], results);
    }
    for (auto &[name, values] : gradients)
      for (double &value : values)
        value /= statistics.at("token_count");
    return statistics.at("loss_sum") / statistics.at("token_count");
  }

  nlohmann::json golden;
  Values gradients;

private:
  /// Returns the names "embed", "block.0", .., "head".
  std::vector<std::string> layerNames() const {
    std::vector<std::string> names;
    const auto &runs = run.config.model.runs;
    int layer = 0; // counts over all kinds
    for (size_t i = 0; i < runs.size(); ++i)
      for (int repeat = 0; repeat < runs[i].count; ++repeat)
        names.push_back(i == 0 || i + 1 == runs.size() ? runs[i].kind : runs[i].kind + "." + std::to_string(layer++));
    return names;
  }

  mlir::func::FuncOp functionOf(const std::string &layer) {
    return module->lookupSymbol<mlir::func::FuncOp>(layer.substr(0, layer.find('.')));
  }

  const ParameterDescription &describe(const std::string &layer, llvm::StringRef name) {
    for (const auto &parameter : run.config.model.segment(layer.substr(0, layer.find('.'))).parameters)
      if (parameter.name == name)
        return parameter;
    throw std::runtime_error("no parameter " + name.str());
  }

  std::string globalName(const std::string &layer, llvm::StringRef name) {
    const std::string &tied = describe(layer, name).tiedTo;
    return tied.empty() ? layer + "." + name.str() : tied;
  }

  /// Fills tokens, labels and weights with the formulas of reference.py.
  void fillInputs() {
    int64_t batch = golden["training"]["batch"], seq = golden["config"]["seq"], vocab = golden["config"]["vocab"];
    auto token = [&](int64_t i, int64_t t) { return (5 * i * i + 3 * t * t + 7 * i * t + 2 * i + t) % vocab; };
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t t = 0; t < seq; ++t) {
        inputs["tokens"].push_back(token(i, t));
        inputs["labels"].push_back(token(i, t + 1));
        inputs["positions"].push_back(t);
        inputs["loss_weights"].push_back((i + t) % 5 == 0 ? 0 : 1);
      }
    for (int further = 1; further <= rt::mostFurtherTokens; ++further) {
      std::vector<double> &labels = inputs[fmt::format("labels_{}", further)];
      std::vector<double> &weights = inputs[fmt::format("loss_weights_{}", further)];
      const std::vector<double> visibleFrom(seq);
      labels.resize(batch * seq);
      weights.resize(batch * seq);
      for (int64_t i = 0; i < batch; ++i) {
        auto sample = [&](std::vector<double> &all) { return std::span(all).subspan(i * seq, seq); };
        rt::fillFurther<double, double, double>(further, sample(inputs["labels"]), sample(inputs["loss_weights"]),
                                                visibleFrom, sample(labels), sample(weights));
      }
    }
  }

  /// Returns a parameter. Padded rows are zero; only the first dimension is padded here.
  Tensor parameter(const std::string &layer, llvm::StringRef name, mlir::RankedTensorType type) {
    const Initializer &initializer = initializerOf(layer, name);
    int64_t elements = unpaddedElements(layer, name);
    Tensor tensor(type);
    if (auto own = given.find(globalName(layer, name)); own != given.end()) {
      std::ranges::copy(own->second, tensor.values.begin());
      return tensor;
    }
    for (int64_t i = 0; i < elements; ++i)
      tensor.values[i] =
          rt::initialValue(run.config.seed, globalName(layer, name), initializer.kind, initializer.stddev, i);
    return tensor;
  }

  const Initializer &initializerOf(const std::string &layer, llvm::StringRef name) {
    const ParameterDescription &own = describe(layer, name);
    if (own.tiedTo.empty())
      return own.initializer;
    size_t dot = own.tiedTo.find('.');
    return describe(own.tiedTo.substr(0, dot), own.tiedTo.substr(dot + 1)).initializer;
  }

  int64_t unpaddedElements(const std::string &layer, llvm::StringRef name) {
    int64_t elements = 1;
    for (const std::string &dim : describe(layer, name).dims)
      elements *= run.config.model.dims.at(dim);
    return elements;
  }

  std::vector<Tensor> call(const std::string &layer, const Tensor &stream) {
    mlir::func::FuncOp function = functionOf(layer);
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto type = llvm::cast<mlir::RankedTensorType>(function.getArgumentTypes()[i]);
      llvm::StringRef role = function.getArgAttrOfType<mlir::StringAttr>(i, "model.role").getValue();
      llvm::StringRef name = function.getArgAttrOfType<mlir::StringAttr>(i, "model.name").getValue();
      arguments.push_back(role == "stream"      ? stream
                          : role == "input"     ? Tensor(type, inputs.at(name.str()))
                          : role == "parameter" ? parameter(layer, name, type)
                                                : Tensor(type));
    }
    auto results = evaluate(function, arguments, evalContext);
    if (!results)
      throw std::runtime_error(llvm::toString(results.takeError()));
    return std::move(*results);
  }

  /// Collects a layer's gradients and statistics. Its stream gradient becomes the cotangent of the preceding layer.
  void collect(const std::string &layer, const std::vector<Tensor> &results) {
    mlir::func::FuncOp function = functionOf(layer);
    evalContext.cotangent.reset();
    for (unsigned i = 0; i < results.size(); ++i) {
      llvm::StringRef role = function.getResultAttrOfType<mlir::StringAttr>(i, "model.role").getValue();
      llvm::StringRef name = function.getResultAttrOfType<mlir::StringAttr>(i, "model.name").getValue();
      if (role == "cotangent")
        evalContext.cotangent = results[i];
      else if (role == "statistic")
        statistics[name.str()] += results[i].values[0]; // each segment's statistic begins at zero
      else if (role == "accumulator") {
        std::vector<double> &sum = gradients[globalName(layer, name)];
        sum.resize(unpaddedElements(layer, name), 0.0);
        for (size_t e = 0; e < results[i].values.size(); ++e)
          if (e < sum.size())
            sum[e] += results[i].values[e];
          else
            EXPECT_EQ(results[i].values[e], 0) << "padding of " << name.str();
      }
    }
  }

  const Values given;
  ImportedRun run;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  EvalContext evalContext;
  Values inputs;
  std::map<std::string, double> statistics;
};

} // namespace espalier
