// The point-to-point messages of one operation over MPI.
#pragma once

#include "runtime/comm/mpi_library.h"

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace espalier::rt {

/// The MPI communicator of this run. Its ranks are the ranks of the run.
struct MpiContext {
  const MpiLibrary &library;
  MpiLibrary::Handle communicator;
};

/// A received message has another size than expected.
struct MpiMismatch : std::runtime_error {
  MpiMismatch(int peer, size_t bytes, size_t expected, bool isLonger)
      : std::runtime_error("sizes differ"), peer(peer), bytes(bytes), expected(expected), isLonger(isLonger) {}
  int peer;
  size_t bytes, expected;
  bool isLonger; ///< the exact size is then unknown
};

/// A set of in-flight messages. Messages between two ranks with one tag arrive in the order of their starts.
class MpiMessages {
public:
  /// With `isSynchronous`, a send completes after its receive has begun, so unexpected messages do not pile up.
  MpiMessages(const MpiContext &context, bool isSynchronous)
      : context(context), startSend(isSynchronous ? context.library.startSynchronousSend : context.library.startSend) {}

  /// Start one message of any number of bytes, also zero.
  void send(int peer, int tag, const void *data, size_t bytes);
  void receive(int peer, int tag, void *data, size_t bytes);

  /// Returns whether all messages are complete; then more can be started. Throws MpiMismatch, or std::runtime_error
  /// with MPI's error text.
  bool areDone();

  /// Cancels receives whose message has not arrived.
  void cancel();

private:
  MpiLibrary::Handle *add(int peer, size_t bytes, bool isReceive);
  void checkThrough(const MpiLibrary::Status &status, int index);

  struct Expected {
    int peer;
    size_t bytes;
    bool isReceive;
  };
  const MpiContext &context;
  MpiLibrary::Send *startSend;
  std::vector<MpiLibrary::Handle> requests;
  std::vector<Expected> expected;
  std::vector<MpiLibrary::Status> statuses; ///< of the messages that one test found complete
  std::vector<int> indices;                 ///< the indices of these messages
  int through = 0;
};

} // namespace espalier::rt
