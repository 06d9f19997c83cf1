// Files of torch.save, with the tensors in their order.
#include "runtime/checkpoint/convert/pickle_writer.h"
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/zip.h"
#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// Writes tensors [begin, end), which share the first `depth` characters of their names, as a dict. Neighbours that
/// share the next name component, up to `/`, become a nested dict. The order does not change.
void writeDict(PickleWriter &pickle, std::span<const WrittenTensor> tensors, size_t begin, size_t end, size_t depth) {
  pickle.beginDict();
  for (size_t i = begin; i < end;) {
    const std::string &name = tensors[i].name;
    size_t slash = name.find('/', depth);
    if (slash == std::string::npos) {
      pickle.name(name.substr(depth));
      pickle.tensor(tensors[i], i);
      ++i;
      continue;
    }
    size_t same = i;
    while (same < end && tensors[same].name.compare(0, slash + 1, name, 0, slash + 1) == 0)
      ++same;
    pickle.name(name.substr(depth, slash - depth));
    writeDict(pickle, tensors, i, same, slash + 1);
    i = same;
  }
  pickle.endDict();
}

void writeZip(const std::filesystem::path &path, const std::string &pickle, std::span<const WrittenTensor> tensors) {
  AtomicFile file(path.string());
  ZipWriter zip(file);
  const std::string folder = path.stem().string() + "/";
  auto bytesOf = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  zip.add(folder + "data.pkl", bytesOf(pickle));
  zip.add(folder + "byteorder", bytesOf("little"));
  for (size_t i = 0; i < tensors.size(); ++i)
    zip.add(fmt::format("{}data/{}", folder, i), tensors[i].make());
  zip.add(folder + "version", bytesOf("3\n"));
  zip.finish();
  file.commit();
}

} // namespace

void writeTorchFile(const std::filesystem::path &path, std::span<const WrittenTensor> tensors) {
  PickleWriter pickle;
  pickle.beginDict();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle.name(tensors[i].name);
    pickle.tensor(tensors[i], i);
  }
  pickle.endDict();
  writeZip(path, pickle.finish(), tensors);
}

void writeTorchModel(const std::filesystem::path &path, std::span<const TorchNumber> numbers,
                     std::span<const WrittenTensor> tensors) {
  PickleWriter pickle;
  pickle.beginDict();
  for (const TorchNumber &number : numbers) {
    pickle.name(number.name);
    number.isWhole ? pickle.whole(static_cast<int64_t>(number.value)) : pickle.real(number.value);
  }
  pickle.name("model");
  writeDict(pickle, tensors, 0, tensors.size(), 0);
  pickle.endDict();
  writeZip(path, pickle.finish(), tensors);
}

} // namespace espalier::rt
