// Imports Megatron's flags as the script x.sh for tests.
#pragma once

#include "compiler/import/megatron/import_args.h"
#include "compiler/import/run/import_run.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier {

inline ImportedArgs importText(const std::string &text, const std::string &cluster = "a100_80g_selene:1x4") {
  ArgsOptions options;
  options.cluster = cluster;
  return importArgs("x.sh", text, options);
}

/// Returns the model of the run file that the import writes. The test fails if a file has errors.
inline ModelDescription modelOf(const std::string &text) {
  ImportedArgs args = importText(text);
  EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  auto file = std::filesystem::temp_directory_path() / fmt::format("espalier-script-{}.yaml", getpid());
  std::ofstream(file) << args.yaml;
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  ImportedRun run = importRun(file, options);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render() << args.yaml;
  std::filesystem::remove(file);
  return run.config.model;
}

} // namespace espalier
