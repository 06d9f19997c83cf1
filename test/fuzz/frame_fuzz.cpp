// Parses any bytes as frames of a stranger, and as frames of a member with the right key. Frames are refused or opened.
// There are no seeds; a frame begins with "ESPC".
#include "runtime/launch/control_channel.h"

using namespace espalier::rt;
using namespace espalier::rt::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char *>(data), size);
  Digest key = joinKey("token", Digest{});
  FrameOpener opener(key, Direction::ToServer);
  try {
    for (size_t at = 0; at < bytes.size(); at += 7) {
      opener.feed(bytes.substr(at, 7));
      while (opener.next())
        ;
    }
  } catch (const FrameError &) {
  }
  // Parses the payload of a correctly sealed Join message.
  try {
    FrameOpener trusted(key, Direction::ToServer);
    trusted.feed(FrameSealer(key, Direction::ToServer).seal({MessageKind::Join, std::string(bytes)}));
    if (auto message = trusted.next())
      parseMembers(message->payload);
  } catch (const FrameError &) {
  }
  return 0;
}
