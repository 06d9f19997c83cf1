// Weights that are NaN or infinite: a run that loads them trains nothing, and a model with them writes nothing of use.
#pragma once

#include "runtime/checkpoint/pieces.h"

#include <filesystem>
#include <span>

namespace espalier::rt {

/// Whether loaded values may be NaN or infinite (--allow-nan).
enum class NonFinite { Refused, Accepted };

/// Throws PlanError, with the tensor's name, if one of the values is NaN or infinite. `piece` describes the values, and
/// `place` is the checkpoint or folder that they are from.
void requireFinite(std::span<const std::byte> values, const Piece &piece, const std::filesystem::path &place);

} // namespace espalier::rt
