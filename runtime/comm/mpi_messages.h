// Messages of one operation over MPI.
#pragma once

#include "runtime/comm/mpi_library.h"

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace espalier::rt {

/// MPI's context of this run: its ranks are the run's.
struct MpiContext {
  const MpiLibrary &library;
  MpiLibrary::Handle communicator;
};

/// A message that came has another size than was waited for.
struct MpiMismatch : std::runtime_error {
  MpiMismatch(int peer, size_t bytes, size_t expected, bool isLonger)
      : std::runtime_error("sizes differ"), peer(peer), bytes(bytes), expected(expected), isLonger(isLonger) {}
  int peer;
  size_t bytes, expected;
  bool isLonger; ///< by how much is not known
};

/// Messages in flight together. Between two ranks those with one tag arrive in the order of their starts.
class MpiMessages {
public:
  /// `isSynchronous`: a send lasts until its receive has begun, so that nothing piles up where nobody receives yet.
  MpiMessages(const MpiContext &context, bool isSynchronous)
      : context(context), startSend(isSynchronous ? context.library.startSynchronousSend : context.library.startSend) {}

  /// Of any number of bytes, of none too.
  void send(int peer, int tag, const void *data, size_t bytes);
  void receive(int peer, int tag, void *data, size_t bytes);

  /// Whether all are through; then more can be started. Throws MpiMismatch, or std::runtime_error in MPI's words.
  bool areDone();

  /// Gives up receives that wait for a message still.
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
  std::vector<MpiLibrary::Status> statuses; ///< of those found through at one look
  std::vector<int> indices;                 ///< which these are
  int through = 0;
};

} // namespace espalier::rt
