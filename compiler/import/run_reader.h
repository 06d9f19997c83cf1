// Typed access to a run file's values. Wrong types are reported once, by the key checker; here they
// read as unset.
#pragma once

#include "compiler/import/import_run.h"
#include "compiler/import/yaml.h"

#include <optional>
#include <string>

namespace espalier {

/// What the parts of the import share while one run is read.
class RunReader {
public:
  /// What `above` holds wins over `root`; it may be null.
  RunReader(const YamlNode &root, ImportedRun &run, const YamlNode *above = nullptr)
      : root(root), above(above), run(run) {}

  /// The node of a dotted path, or null; null values count as absent.
  const YamlNode *find(const std::string &path) const;
  bool has(const std::string &path) const { return find(path) != nullptr; }
  std::optional<int64_t> integer(const std::string &path) const;
  std::optional<double> number(const std::string &path) const;
  std::optional<bool> flag(const std::string &path) const;
  std::optional<std::string> text(const std::string &path) const;
  std::optional<double> bytes(const std::string &path) const;

  /// Which of two keys that say the same holds: 2 of --set, 1 of the run file, 0 of its bases, -1 of a key not given.
  int nearness(const std::string &path) const;

  /// Place of a key's value, or of the file when it is not given.
  SourceLocation where(const std::string &path) const;
  void error(const std::string &path, std::string message) const;
  void warning(const std::string &path, std::string message) const;
  /// What `compile` must not pass over: reported as rejected, an error there and a warning to others.
  void refuse(const std::string &path, const std::string &message) const;
  /// Replaces what is reported about a key, and about all keys below it, if they are in the file.
  void report(const std::string &path, KeyAction action, const std::string &effect) const;
  void derive(const std::string &name, const std::string &value, const std::string &reason) const;

  RunConfig &config() const { return run.config; }
  Diagnostics &diagnostics() const { return run.diagnostics; }

private:
  const YamlNode &root;
  const YamlNode *above;
  ImportedRun &run;
};

// The parts, each in a file of its own name. `sizes` are the architecture's after defaults.
void importTraining(const RunReader &reader);
void importData(const RunReader &reader);
/// Refuses what keys with one possible value ask for.
void refuseUnbuilt(const RunReader &reader, const SizeTable &sizes);
void importDTypes(const RunReader &reader, const SizeTable &sizes);
void importCluster(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders);
/// After the cluster, whose device decides the errors.
void importSystem(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders);
/// `pins` reads what the command line pins above the file.
void importParallel(const RunReader &reader, const RunReader &pins, const ImportOptions &options);

} // namespace espalier
