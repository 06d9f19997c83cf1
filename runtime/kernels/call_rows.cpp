#include "runtime/kernels/call_rows.h"

namespace espalier::rt {

// The numbers of plan.proto are those of functions.def.
#define FUNCTION(number, name, signature) static_assert(pb::LibraryCall::name == number);
#define EPILOGUE(number, name, signature) static_assert(pb::LibraryCall::name == number);
#include "runtime/functions.def"

CallRows::CallRows(const pb::LibraryCall &call) : function(findFunction(call.function())) {
  if (!function)
    return;
  sizes = allSizes(*function, std::span(call.sizes().data(), static_cast<size_t>(call.sizes_size())));
  if (function->hasFlag("epilogue"))
    epilogue = findEpilogue(call.epilogue());
}

} // namespace espalier::rt
