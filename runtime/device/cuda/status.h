// A call that fails, as an exception that names the call, where it stands and what the library says.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::rt::cuda {

/// "cuMemAlloc_v2 at memory.cpp:41: out of memory". The executor adds rank, action and op.
class CallError : public std::runtime_error {
public:
  CallError(const char *call, const std::string &text, const std::source_location &where);
};

/// A function of a library that answers with a status. `Texts` has the type of the status, the one value that means
/// success, and the library's words for the others.
template <typename Texts, typename Signature> class Call;

template <typename Texts, typename... Arguments> class Call<Texts, void(Arguments...)> {
public:
  using Status = typename Texts::Status;
  using Function = Status (*)(Arguments...);

  /// Calls, and throws CallError unless it succeeds.
  void operator()(Arguments... arguments, std::source_location where = std::source_location::current()) const {
    Status status = function(arguments...);
    if (status != Texts::success)
      throw CallError(symbol, texts->text(status), where);
  }

  /// Calls, where another answer than success is no failure.
  Status answer(Arguments... arguments) const { return function(arguments...); }

  Function function = nullptr;
  const char *symbol = "";
  const Texts *texts = nullptr;
};

} // namespace espalier::rt::cuda
