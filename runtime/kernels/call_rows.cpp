#include "runtime/kernels/call_rows.h"

namespace espalier::rt {

// Asserts that plan.proto and functions.def number the functions and epilogues equally.
#define FUNCTION(number, name, signature) static_assert(pb::LibraryCall::name == number);
#define EPILOGUE(number, name, signature) static_assert(pb::LibraryCall::name == number);
#include "format/functions.def"

CallRows::CallRows(const pb::LibraryCall &call) : function(findFunction(call.function())) {
  if (!function)
    return;
  sizes = allSizes(*function, std::span(call.sizes().data(), static_cast<size_t>(call.sizes_size())));
  if (function->hasFlag("epilogue"))
    epilogue = findEpilogue(call.epilogue());
}

} // namespace espalier::rt
