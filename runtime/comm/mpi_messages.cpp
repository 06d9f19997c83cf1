// MPI counts bytes as int, so both ends cut longer messages into the same pieces.
#include "runtime/comm/mpi_messages.h"

#include <algorithm>

namespace espalier::rt {
namespace {

constexpr size_t mostBytes = size_t{1} << 30;

} // namespace

MpiLibrary::Handle *MpiMessages::add(int peer, size_t bytes, bool isReceive) {
  expected.push_back({peer, bytes, isReceive});
  return &requests.emplace_back(nullptr);
}

void MpiMessages::send(int peer, int tag, const void *data, size_t bytes) {
  const auto *at = static_cast<const std::byte *>(data);
  size_t sent = 0;
  do {
    size_t piece = std::min(mostBytes, bytes - sent);
    int code = startSend(at + sent, static_cast<int>(piece), context.library.byte, peer, tag, context.communicator,
                         add(peer, piece, /*isReceive=*/false));
    context.library.check(code, "a send");
    sent += piece;
  } while (sent < bytes);
}

void MpiMessages::receive(int peer, int tag, void *data, size_t bytes) {
  auto *at = static_cast<std::byte *>(data);
  size_t received = 0;
  do {
    size_t piece = std::min(mostBytes, bytes - received);
    int code = context.library.startReceive(at + received, static_cast<int>(piece), context.library.byte, peer, tag,
                                            context.communicator, add(peer, piece, /*isReceive=*/true));
    context.library.check(code, "a receive");
    received += piece;
  } while (received < bytes);
}

/// Tests each message separately, because after a failure other messages may never arrive.
bool MpiMessages::areDone() {
  if (requests.empty())
    return true;
  statuses.resize(requests.size());
  indices.resize(requests.size());
  int found = 0;
  int code = context.library.testSome(static_cast<int>(requests.size()), requests.data(), &found, indices.data(),
                                      statuses.data());
  if (code != MpiLibrary::errorInStatus)
    context.library.check(code, "a test of messages");
  for (int i = 0; i < found; ++i) {
    if (code == MpiLibrary::errorInStatus && statuses[i].error == MpiLibrary::truncated)
      throw MpiMismatch(expected[indices[i]].peer, 0, expected[indices[i]].bytes, /*isLonger=*/true);
    if (code == MpiLibrary::errorInStatus)
      context.library.check(statuses[i].error, "a message");
    checkThrough(statuses[i], indices[i]);
    ++through;
  }
  if (through < static_cast<int>(requests.size()))
    return false;
  requests.clear();
  expected.clear();
  through = 0;
  return true;
}

void MpiMessages::cancel() {
  int found = 0;
  statuses.resize(requests.size());
  indices.resize(requests.size());
  for (MpiLibrary::Handle &request : requests)
    context.library.check(context.library.cancel(&request), "the cancellation of a receive");
  context.library.testSome(static_cast<int>(requests.size()), requests.data(), &found, indices.data(), statuses.data());
  requests.clear();
  expected.clear();
}

void MpiMessages::checkThrough(const MpiLibrary::Status &status, int index) {
  const Expected &message = expected[index];
  if (!message.isReceive)
    return;
  int bytes = 0;
  context.library.check(context.library.countOf(&status, context.library.byte, &bytes), "a message's size");
  if (static_cast<size_t>(bytes) != message.bytes)
    throw MpiMismatch(message.peer, bytes, message.bytes, /*isLonger=*/false);
}

} // namespace espalier::rt
