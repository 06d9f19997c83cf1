// Files of torch.save for the tests of their reader.
#pragma once

#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/zip.h"
#include "test/runtime/checkpoint/convert/convert_fixture.h"

namespace espalier::rt {

class TorchTest : public ConvertTest {
protected:
  /// A zip of these entries.
  Path zipOf(const std::vector<std::pair<std::string, std::string>> &entries) const {
    Path path = folder / "z.pt";
    AtomicFile file(path.string());
    ZipWriter zip(file);
    for (const auto &[name, text] : entries)
      zip.add(name, std::as_bytes(std::span(text)));
    zip.finish();
    file.commit();
    return path;
  }
  /// What reading all of a file is refused with.
  static std::string says(const Path &file) {
    return errorOf([&] {
      auto source = openTorchFile(file);
      for (const auto &[name, tensor] : source->tensors())
        source->read(name);
    });
  }
};

} // namespace espalier::rt
