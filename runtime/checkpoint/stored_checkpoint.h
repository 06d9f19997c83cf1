// One of our checkpoints, opened to be loaded under a plan that may differ from the writing plan.
#pragma once

#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/parameter_block.h"

#include <set>

namespace espalier::rt {

/// The run that continues from a checkpoint.
struct Continuation {
  Fingerprint fingerprint; ///< of the new run
  int64_t steps = 0;       ///< total steps of the new run
  bool acceptChanges = false;
  bool isAloud = false; ///< whether this process prints accepted changes
};

/// An open checkpoint.
class StoredCheckpoint {
public:
  /// Reads the manifest and the shards' names, sizes and headers. Throws PlanError if they are not valid.
  explicit StoredCheckpoint(std::filesystem::path folder);
  StoredCheckpoint(const StoredCheckpoint &) = delete;

  const std::filesystem::path &path() const { return folder; }
  const Manifest &manifest() const { return theManifest; }

  /// Returns the plan's low-rank adapters if the checkpoint has none of them.
  std::set<std::string> missingAdapters(const pb::Plan &plan) const;
  /// Throws PlanError unless the checkpoint has exactly the parameters of the plan, in their shapes. It may lack those
  /// in `without`.
  void requireParameters(const pb::Plan &plan, const std::set<std::string> &without = {}) const;

  /// Also checks that a run may continue here: the training is the same or its changes are accepted, and the optimizer
  /// state is complete. An accepted change of the optimizer starts its state anew. A checkpoint without any optimizer
  /// state starts a new training with its weights.
  void requireContinuation(const pb::Plan &plan, const Continuation &run) const;

  /// Returns whether the checkpoint has a piece's tensor for a run with these settings. It lacks the state tensors of
  /// another optimizer, even if they have the same name.
  bool has(const Piece &piece, const pb::Settings &settings) const;

  /// A piece to read, and the memory of its elements.
  struct Target {
    Piece wanted;
    std::span<std::byte> values;
  };

  /// Fills the values of pieces, several threads at a time; padding is zero. Throws PlanError if the data read is
  /// damaged, or not finite where that is refused.
  void read(std::span<const Target> targets, ThreadPool &pool, NonFinite nonFinite) const;

  /// Returns the state at which a run continues: the saved state, or the initial state if there is no optimizer state.
  ScalarState state(const pb::Settings &settings, const Continuation &run) const;

private:
  void requireSameTraining(const pb::Plan &plan, const Continuation &run) const;
  void requireSources(const pb::Plan &plan, const Continuation &run) const;
  bool hasOtherState(const NamedParameter &named, const pb::Settings &settings) const;
  /// Returns whether the optimizer of the run with these settings wrote the state tensors of this kind.
  bool isOfSameOptimizer(std::string_view kind, const pb::Settings &settings) const;

  const std::filesystem::path folder;
  const Manifest theManifest;
  const Sources sources;
};

/// Fills pieces in the memory of their rank with elements of the checkpoint, or with zeros if `isRead` is false for the
/// piece. Throws PlanError like StoredCheckpoint::read().
void loadPieces(const StoredCheckpoint &from, const std::vector<HeldPiece> &pieces,
                const std::function<bool(const Piece &)> &isRead, Executor &executor, ThreadPool &pool,
                NonFinite nonFinite);

/// Returns whether a piece belongs to the weights and not to the rest of the optimizer's state.
inline bool isWeight(const Piece &piece) { return piece.kind == "value" || piece.kind == "master"; }

/// Converts elements and writes them to an array of another type, from element `to` on.
void convertElements(std::span<const std::byte> from, pb::DataType type, std::span<std::byte> array,
                     pb::DataType wanted, int64_t to);

} // namespace espalier::rt
