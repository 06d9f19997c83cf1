// The text model of a folder whose model also reads images or sounds.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"

namespace espalier::rt {

/// If the tensors include a text model under a prefix, `language_model.` or `model.language_model.`, returns a source
/// of these tensors with the names that they have in the text model alone. `note` then says which tensors are left out.
/// Otherwise returns `whole`.
std::unique_ptr<WeightSource> textModelOf(std::unique_ptr<WeightSource> whole, std::string &note);

} // namespace espalier::rt
