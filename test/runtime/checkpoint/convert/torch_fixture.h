// Fixture for tests that read torch.save files.
#pragma once

#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/zip.h"
#include "test/runtime/checkpoint/convert/convert_fixture.h"

namespace espalier::rt {

class TorchTest : public ConvertTest {
protected:
  /// Writes a zip file with these entries.
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
  /// Returns the error of reading the whole file, or an empty string.
  static std::string says(const Path &file) {
    return errorOf([&] {
      auto source = openTorchFile(file);
      for (const auto &[name, tensor] : source->tensors())
        source->read(name);
    });
  }
};

} // namespace espalier::rt
