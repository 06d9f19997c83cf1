// Fixture with a folder for files and a small model: two layers with grouped-query attention.
#pragma once

#include "runtime/checkpoint/convert/convert.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

namespace espalier::rt {

class ConvertTest : public testing::Test {
protected:
  using Path = std::filesystem::path;

  ConvertTest() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    Path place = std::filesystem::is_directory("/dev/shm") ? Path("/dev/shm") : std::filesystem::temp_directory_path();
    folder = place / fmt::format("espalier-{}-{}-{}", info->test_suite_name(), info->name(), getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~ConvertTest() override { std::filesystem::remove_all(folder); }

  /// vocab 5, hidden 6, 2 groups of 3 queries, head_dim 2, ffn 4. No two sizes are equal.
  static WeightModel smallModel(bool isTied = false) {
    WeightModel model;
    model.name = "small";
    model.layers = 2;
    model.dims = {{"vocab", 5}, {"hidden", 6}, {"kv_heads", 2}, {"group", 3}, {"head_dim", 2}, {"ffn", 4}};
    auto add = [&](const std::string &segment, int64_t layer, const std::string &local,
                   const std::vector<std::string> &dims) {
      std::vector<int64_t> sizes;
      for (const std::string &dim : dims)
        sizes.push_back(model.dims.at(dim));
      std::string index = layer < 0 ? "" : fmt::format("{}.", layer);
      model.parameters.push_back({segment + "." + index + local, local, layer, dims, sizes});
    };
    add("embed", -1, "wte", {"vocab", "hidden"});
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      add("block", layer, "norm_weight", {"hidden"});
      add("block", layer, "q_weight", {"hidden", "kv_heads", "group", "head_dim"});
      add("block", layer, "k_weight", {"hidden", "kv_heads", "head_dim"});
      add("block", layer, "v_weight", {"hidden", "kv_heads", "head_dim"});
      add("block", layer, "gate_weight", {"hidden", "ffn"});
      add("block", layer, "up_weight", {"hidden", "ffn"});
    }
    if (isTied)
      model.ties["lm_head_weight"] = "embed.wte";
    else
      add("head", -1, "lm_head_weight", {"vocab", "hidden"});
    return model;
  }

  static ConvertedModel smallConversion(bool isTied = false) {
    ConvertedModel converted{smallModel(isTied), {}, "small.yaml"};
    converted.rules["hf"] = {{"(model.|)embed.weight", "wte"},
                             {"(model.|)h.{i}.norm.weight", "norm_weight"},
                             {"(model.|)h.{i}.q.weight", "q_weight = (kv_heads group head_dim) hidden"},
                             {"(model.|)h.{i}.kv.weight", "k_weight v_weight = hidden (| kv_heads head_dim)"},
                             {"(model.|)h.{i}.mask", "derived"},
                             {"(model.|)h.{i}.gate.weight", "gate_weight"},
                             {"(model.|)h.{i}.up.weight", "up_weight"},
                             {"head.weight", "lm_head_weight"}};
    converted.rules["mcore"] = {
        {"embedding.weight", "wte = vocab* hidden"},
        {"layers.{i}.norm.weight", "norm_weight"},
        {"layers.{i}.qkv.weight", "q_weight k_weight v_weight = (kv_heads* | group head_dim) hidden"},
        {"layers.{i}.fc1.weight", "gate_weight up_weight = (| ffn*) hidden"},
        {"output.weight", "lm_head_weight = vocab* hidden"}};
    converted.rules["legacy"] = {
        {"language_model/embedding/weight", "wte = vocab* hidden"},
        {"language_model/(encoder|transformer)/layers.{i}.norm.weight", "norm_weight"},
        {"language_model/(encoder|transformer)/layers.{i}.qkv.weight",
         "q_weight k_weight v_weight = (kv_heads* | group head_dim) hidden"},
        {"language_model/(encoder|transformer)/layers.{i}.fc1.weight", "gate_weight up_weight = (| ffn*) hidden"},
        {"again/weight", "tied lm_head_weight = vocab* hidden"},
        {"language_model/output/weight", "lm_head_weight = vocab* hidden"}};
    return converted;
  }

  /// Element e of parameter p is 1000 p + e, so that every element has another value.
  static std::vector<std::byte> values(const WeightModel &model, size_t parameter) {
    std::vector<float> numbers(model.parameters[parameter].elements());
    for (size_t e = 0; e < numbers.size(); ++e)
      numbers[e] = static_cast<float>(1000 * parameter + e);
    auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
  }

  /// Writes a checkpoint of these values and returns its folder.
  Path writeSmall(const WeightModel &model, const std::string &name = "ours") const {
    std::vector<NewParameter> parameters;
    for (size_t i = 0; i < model.parameters.size(); ++i)
      parameters.push_back({pb::F32, [&model, i] { return values(model, i); }});
    return writeNative(model, folder / name, parameters);
  }

  /// Expects that a checkpoint has these values.
  static void expectSmall(const WeightModel &model, const Path &checkpoint) {
    NativeSource source(model, checkpoint);
    for (size_t i = 0; i < model.parameters.size(); ++i)
      EXPECT_EQ(*source.read(i), values(model, i)) << model.parameters[i].name;
  }

  static void write(const Path &file, const std::string &text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  static std::string readAll(const Path &file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  /// Returns the user error that `action` throws, or an empty string if it throws none.
  template <typename Action> static std::string errorOf(const Action &action) {
    try {
      action();
      return "";
    } catch (const PlanError &error) {
      return error.what();
    }
  }

  Path folder;
};

} // namespace espalier::rt
