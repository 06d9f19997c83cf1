// Frames from strangers, and from a member with the right key: cut anywhere, they are refused or opened, never more.
// Seeds: none; a frame begins "ESPC".
#include "runtime/launch/control_channel.h"

using namespace espalier::rt;
using namespace espalier::rt::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char *>(data), size);
  Digest key = helloKey("token");
  FrameOpener opener(key, Direction::ToServer);
  try {
    for (size_t at = 0; at < bytes.size(); at += 7) {
      opener.feed(bytes.substr(at, 7));
      while (opener.next())
        ;
    }
  } catch (const FrameError &) {
  }
  // What a member says of itself, sealed rightly.
  try {
    FrameOpener trusted(key, Direction::ToServer);
    trusted.feed(FrameSealer(key, Direction::ToServer).seal({MessageKind::Join, std::string(bytes)}));
    if (auto message = trusted.next())
      parseMembers(message->payload);
  } catch (const FrameError &) {
  }
  return 0;
}
