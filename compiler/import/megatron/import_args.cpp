// Each part of the run file reads its own flags.
#include "compiler/import/megatron/import_args.h"

#include "compiler/import/megatron/section_flags.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <iterator>

namespace espalier {

namespace {

/// Writes the general keys of the run file and calls the writers of its sections.
class ArgsImporter : FlagWriter {
public:
  ArgsImporter(const std::string &file, const ArgsOptions &options, GivenFlags &given, RunFileWriter &yaml,
               ImportedArgs &result)
      : FlagWriter(given, yaml), file(file), options(options), result(result) {}

  void run(const std::string &text) {
    if (!given.read(text, options.shell))
      return;
    given.ignore(options.ignoredFlags);
    if (hasBase())
      put("base_config", quotedYaml(options.base));
    std::vector<std::string> built = biasedRouterFlags(given);
    std::ranges::move(hybridFlags(given), std::back_inserter(built));
    given.refuse(built);
    if (given.isGiven("--seed") || !hasBase())
      put("seed", given.number("--seed", "seed").value_or("1234"), "--seed");
    put("use_parallel", "True");
    int64_t devices = readDevices();
    ScriptDType dtype = readDType();
    writeStart(given, yaml);
    ScriptSizes sizes = writeParallel(given, yaml, devices, options.baseLayers);
    TokenizerFlags tokenizer(given, options);
    writeModel(given, yaml, tokenizer, dtype, sizes.layers, hasBase());
    writeData(given, yaml, tokenizer.endOfDocument());
    writeOptimizer(given, yaml, dtype, sizes, hasBase());
    std::string line = startLine(given, sizes);
    given.reportRest();
    result.yaml = yaml.text();
    if (!line.empty())
      result.yaml = fmt::format("# The script's run, once this file is compiled to RUN.plan; --resume continues it:\n"
                                "#   {}\n{}",
                                line, result.yaml);
  }

private:
  bool hasBase() const { return !options.base.empty(); }

  ScriptDType readDType() {
    bool isHalf = given.isSet("--fp16", "model.model_config.compute_dtype");
    bool isBrain = given.isSet("--bf16", "model.model_config.compute_dtype");
    if (isHalf && isBrain)
      given.error("--bf16", "--fp16 and --bf16 contradict each other");
    return {isHalf ? "float16" : isBrain ? "bfloat16" : "float32", isHalf || isBrain || !hasBase()};
  }

  /// Returns the number of devices from --cluster, the launcher or the base, and writes `cluster` to the run file.
  int64_t readDevices() {
    // Without counts, torch's launchers use one process on one host, and DeepSpeed's launcher uses one host. Under
    // srun, torch's counts take precedence. -1 means not given, 0 means that only the shell knows the value.
    bool isTorch = given.isStartedByTorchOrPython();
    int64_t perNode = given.launcherCount({"--nproc_per_node", "--nproc-per-node", "--num_gpus"}, -1);
    if (perNode < 0 && isTorch)
      perNode = 1;
    int64_t nodes = given.launcherCount({"--nnodes", "--num_nodes", "--nodes", "-N"}, perNode > 0 ? 1 : 0);
    if (perNode <= 0)
      perNode = given.launcherCount({"--ntasks-per-node"});
    int64_t stated = perNode * nodes;
    size_t colon = options.cluster.rfind(':');
    int hosts = 0, perHost = 0, consumed = 0;
    if (colon != std::string::npos &&
        std::sscanf(options.cluster.c_str() + colon, ":%6dx%6d%n", &hosts, &perHost, &consumed) == 2 &&
        colon + consumed == options.cluster.size()) {
      put("cluster", quotedYaml(options.cluster));
      return int64_t(hosts) * perHost;
    }
    if (!options.cluster.empty() && stated > 0) {
      put("cluster", quotedYaml(fmt::format("{}:{}x{}", options.cluster, nodes, perNode)));
      return stated;
    }
    if (options.baseDevices > 0)
      return options.baseDevices;
    if (stated > 0) {
      result.diagnostics.error({file, 0, 0},
                               "a script does not say on which devices it runs; give --cluster NAME, such "
                               "as h100_dgx, a100_80g_selene or ascend_910b_64g");
      return stated;
    }
    if (const ShellWord *word =
            given.unknownLauncherWord({"--nproc_per_node", "--nproc-per-node", "--num_gpus", "--nnodes", "--num_nodes",
                                       "--nodes", "-N", "--ntasks-per-node"})) {
      result.diagnostics.error(word->where,
                               fmt::format("the number of devices depends on {}, which only the shell "
                                           "knows; {}{}--cluster NAME:HOSTSxDEVICES",
                                           word->unknown, word->remedy, word->remedy.empty() ? "give " : ", or "));
      return 0;
    }
    result.diagnostics.error(
        {file, 0, 0}, "the number of devices is not stated: no torchrun with --nproc_per_node and "
                      "--nnodes, nor srun with --ntasks-per-node and --nodes; give --cluster NAME:HOSTSxDEVICES");
    return 0;
  }

  const std::string &file;
  const ArgsOptions &options;
  ImportedArgs &result;
};

} // namespace

ImportedArgs importArgs(const std::string &file, const std::string &text, const ArgsOptions &options) {
  ImportedArgs result;
  RunFileWriter yaml;
  GivenFlags given(file, result);
  ArgsImporter(file, options, given, yaml, result).run(text);
  return result;
}

} // namespace espalier
