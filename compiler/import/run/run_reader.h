// Typed access to a run file's values. The key checker reports wrong types once. Here they read as unset.
#pragma once

#include "compiler/import/model/adapters.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/yaml.h"

#include <optional>
#include <string>

namespace espalier {

/// The state that the parts of the import share while they read one run.
class RunReader {
public:
  /// Values in `above` override those of `root`; `above` may be null.
  RunReader(const YamlNode &root, ImportedRun &run, const YamlNode *above = nullptr)
      : root(root), above(above), run(run) {}

  /// Returns the node of a dotted path, or null. Null values count as absent.
  const YamlNode *find(const std::string &path) const;
  bool has(const std::string &path) const { return find(path) != nullptr; }
  /// Return the value of a dotted path, or nothing if it is absent or has another type.
  std::optional<int64_t> integer(const std::string &path) const;
  std::optional<double> number(const std::string &path) const;
  std::optional<bool> flag(const std::string &path) const;
  std::optional<std::string> text(const std::string &path) const;
  std::optional<double> bytes(const std::string &path) const;

  /// Returns the priority of a key, if two keys have the same meaning: 2 for --set, 1 for the run file, 0 for its
  /// bases, -1 if the key is not given.
  int nearness(const std::string &path) const;

  /// Returns a reader of the keys below a node of the same run.
  RunReader inside(const YamlNode &node) const { return RunReader(node, run); }

  /// Returns the location of a key's value, or of the file if the key is not given.
  SourceLocation where(const std::string &path) const;
  /// Report an error or a warning at a key's location.
  void error(const std::string &path, std::string message) const;
  void warning(const std::string &path, std::string message) const;
  /// Reports a key as rejected: an error for `compile` and a warning otherwise.
  void refuse(const std::string &path, const std::string &message) const;
  /// Replaces the report of a key and of all keys below it, if they are in the file.
  void report(const std::string &path, KeyAction action, const std::string &effect) const;
  /// Adds a derived value with the reason for it.
  void derive(const std::string &name, const std::string &value, const std::string &reason) const;

  RunConfig &config() const { return run.config; }
  Diagnostics &diagnostics() const { return run.diagnostics; }

private:
  const YamlNode &root;
  const YamlNode *above;
  ImportedRun &run;
};

// The parts of the import, each in a file of its name. `sizes` are the architecture's sizes after defaults.
void importTraining(const RunReader &reader);
void importOptimizer(const RunReader &reader);
/// Marks attentions and weights of the model. Must run after importOptimizer.
void importQkClip(const RunReader &reader);
/// Imports the learning rates of the run and of groups of parameters.
void importSchedules(const RunReader &reader);
void importData(const RunReader &reader);
void importDocumentTokens(const RunReader &reader); ///< after importData and importSystem
/// Adds the adapters of pet_config to the model. `modules` has MindFormers' names of the model's matrix products.
void importAdapters(const RunReader &reader, const NamedParameters &modules);
/// Refuses unsupported values of keys that have only one supported value. `architecture` is null if it is unknown.
void refuseUnbuilt(const RunReader &reader, const Architecture *architecture, const SizeTable &sizes);
void importDTypes(const RunReader &reader, const SizeTable &sizes);
void importCluster(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders);
/// Must run after importCluster, because the device selects the errors.
void importSystem(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders);
/// Imports the format of matrix products. Must run after importSystem, which has their rates, and importDTypes.
void importMatmulFormat(const RunReader &reader);
/// `pins` reads the command line's pins above the file.
void importParallel(const RunReader &reader, const RunReader &pins, const ImportOptions &options);

/// Must run after importParallel, because the ramp ends with the global batch.
void importRamp(const RunReader &reader);

} // namespace espalier
