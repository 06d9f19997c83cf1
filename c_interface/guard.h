// What C++ exceptions become at the border of the C interface.
#pragma once

#include "c_interface/espalier.h"

#include <functional>

namespace espalier::c_interface {

/// Calls `body`. Returns ESPALIER_OK, or the status of the exception that it throws, which espalier_last_error() then
/// describes.
espalier_status guarded(const std::function<void()> &body);

} // namespace espalier::c_interface
