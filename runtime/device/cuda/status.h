// A failed library call as an exception that names the call, its source location and the library's error text.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::rt::cuda {

/// Message: "cuMemAlloc_v2 at memory.cpp:41: out of memory". The executor adds rank, action and op.
class CallError : public std::runtime_error {
public:
  CallError(const char *call, const std::string &text, const std::source_location &where);
};

/// A library function that returns a status. `Texts` defines the status type, its success value and the error texts.
template <typename Texts, typename Signature> class Call;

template <typename Texts, typename... Arguments> class Call<Texts, void(Arguments...)> {
public:
  using Status = typename Texts::Status;
  using Function = Status (*)(Arguments...);

  /// Calls the function. Throws CallError if it fails.
  void operator()(Arguments... arguments, std::source_location where = std::source_location::current()) const {
    Status status = function(arguments...);
    if (status != Texts::success)
      throw CallError(symbol, texts->text(status), where);
  }

  /// Calls the function and returns its status, for callers to which another status than success is no failure.
  Status answer(Arguments... arguments) const { return function(arguments...); }

  Function function = nullptr;
  const char *symbol = "";
  const Texts *texts = nullptr;
};

} // namespace espalier::rt::cuda
