// The header of a .npy file depends only on type and shape, which are known in advance. So a cached file is accepted
// only if its first bytes equal the header that this program would write.
#include "runtime/dataset/index_cache.h"

#include "messages/data_error.h"
#include "runtime/digest.h"
#include "runtime/files/atomic_file.h"

#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

namespace espalier::rt {

namespace {

std::string npyHeader(const std::string &type, const std::string &shape) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

struct ArrayFile {
  std::string path;
  std::string header;
};

/// The three files for one description.
struct CacheFiles {
  ArrayFile document, sample, shuffle;
  std::string description, descriptionPath;
};

CacheFiles cacheFiles(const TokenSource &source, const GptIndexRequest &request, const EpochPlan &plan,
                      const std::string &folder) {
  CacheFiles files;
  files.description = fmt::format("{{\"class\": \"GPTDataset\", \"dataset\": \"{}\", \"first_sequence\": {}, "
                                  "\"end_sequence\": {}, \"num_samples\": {}, \"seq_length\": {}, \"seed\": {}, "
                                  "\"keep_last_partial\": {}}}\n",
                                  source.fingerprint(), request.firstSequence, request.endSequence, request.samples,
                                  request.seqLength, request.seed, request.keepLastPartial);
  std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t *>(files.description.data()), files.description.size());
  std::string stem = (std::filesystem::path(folder) / (sha256(bytes).substr(0, 32) + "-GPTDataset-")).string();
  int64_t documents = (request.endSequence - request.firstSequence) * plan.epochs;
  files.descriptionPath = stem + "description.txt";
  files.document = {stem + "document_index.npy", npyHeader("<i4", fmt::format("({},)", documents))};
  files.sample = {stem + "sample_index.npy", npyHeader("<i4", fmt::format("({}, 2)", plan.sampleCount + 1))};
  files.shuffle = {stem + "shuffle_index.npy", npyHeader("<u4", fmt::format("({},)", plan.sampleCount))};
  return files;
}

/// Returns the values of a cached array, or nothing if the file is missing or holds another array.
template <typename T>
std::optional<std::span<const T>> mapArray(const ArrayFile &array, size_t count, GptIndex &index) {
  if (!isRegularFile(array.path))
    return std::nullopt;
  MappedFile file(array.path);
  std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() != array.header.size() + count * sizeof(T) ||
      std::memcmp(bytes.data(), array.header.data(), array.header.size()) != 0)
    return std::nullopt;
  index.mapped.push_back(std::move(file));
  // The cast is aligned, because mappings start at a page and headers are multiples of 64 bytes.
  return std::span<const T>(reinterpret_cast<const T *>(bytes.data() + array.header.size()), count);
}

/// Returns whether every entry is valid: documents lie in the split, samples are in order and inside their documents,
/// and shuffle is a permutation.
bool isSound(const GptIndex &index, const TokenSource &source, const GptIndexRequest &request) {
  for (int32_t document : index.document)
    if (document < request.firstSequence || document >= request.endSequence)
      return false;
  SampleStart before{0, 0};
  for (SampleStart start : index.sample) {
    if (start.position < before.position || static_cast<size_t>(start.position) >= index.document.size())
      return false;
    if (start.position == before.position && start.offset < before.offset)
      return false;
    if (start.offset < 0 || start.offset >= source.sequenceLength(index.document[start.position]))
      return false;
    before = start;
  }
  std::vector<bool> seen(index.shuffle.size());
  for (uint32_t sample : index.shuffle) {
    if (sample >= seen.size() || seen[sample])
      return false;
    seen[sample] = true;
  }
  return true;
}

std::unique_ptr<GptIndex> load(const CacheFiles &files, const TokenSource &source, const GptIndexRequest &request,
                               const EpochPlan &plan) {
  auto index = std::make_unique<GptIndex>();
  index->epochs = plan.epochs;
  index->separateFinalEpoch = plan.separateFinalEpoch;
  size_t documents = (request.endSequence - request.firstSequence) * plan.epochs;
  auto document = mapArray<int32_t>(files.document, documents, *index);
  auto sample = mapArray<SampleStart>(files.sample, plan.sampleCount + 1, *index);
  auto shuffle = mapArray<uint32_t>(files.shuffle, plan.sampleCount, *index);
  if (!document || !sample || !shuffle)
    return nullptr;
  index->document = *document;
  index->sample = *sample;
  index->shuffle = *shuffle;
  return isSound(*index, source, request) ? std::move(index) : nullptr;
}

template <typename T> void store(const ArrayFile &array, std::span<const T> values) {
  AtomicFile file(array.path);
  file.write(array.header.data(), array.header.size());
  file.write(values);
  file.commit();
}

} // namespace

std::unique_ptr<GptIndex> loadOrBuildGptIndex(const TokenSource &source, const GptIndexRequest &request,
                                              const std::string &folder) {
  EpochPlan plan = planEpochs(source.name(), request, countTokens(source, request));
  CacheFiles files = cacheFiles(source, request, plan, folder);
  if (auto cached = load(files, source, request, plan))
    return cached;
  auto index = buildGptIndex(source, request);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw DataError(folder, "cannot make the index folder: " + error.message());
  store(files.document, index->document);
  store(files.sample, index->sample);
  store(files.shuffle, index->shuffle);
  writeWhole(files.descriptionPath, files.description);
  return index;
}

} // namespace espalier::rt
