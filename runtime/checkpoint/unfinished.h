// Saves whose files were written when a process of their run was lost. A lost process leaves the bytes that it has
// written in the memory of the system, so the supervisor of an elastic run can complete such a save, although the files
// were not flushed. A lost host may lose bytes; then the save is not completed, and the checkpoint before it is the
// latest.
//
//   .step-00000020.TOKEN.partial/draft.json    the manifest without its shards, written by rank 0 when the save begins
//   .step-00000020.TOKEN.partial/proven.json   the same after a step has given a finite loss with the saved weights
#pragma once

#include "runtime/checkpoint/manifest.h"

namespace espalier::rt {

/// Writes the draft of a save into its hidden folder. Throws DataError.
void writeDraft(const std::filesystem::path &partial, const Manifest &manifest);

/// Marks the draft as proven. Returns false if it is not written yet.
bool proveDraft(const std::filesystem::path &partial);

/// Removes the draft before the save is completed.
void removeDraft(const std::filesystem::path &partial);

/// Completes a save in a folder of checkpoints if its draft is proven and the files and notes of all ranks are there.
/// Flushes them to the disk first. Called while no process of the run lives. Returns the name of the checkpoint; empty
/// if there is no such save.
std::string completeSave(const std::filesystem::path &folder);

} // namespace espalier::rt
