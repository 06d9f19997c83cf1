// The published formats of chats that have a name.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// One format; see ChatTemplate.
struct NamedTemplate {
  const char *name, *source, *bos, *eos;
  std::vector<std::string> stops, specials;
};

std::span<const NamedTemplate> namedTemplates();

} // namespace espalier::rt
