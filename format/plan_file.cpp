// The size is checked before reading, and the checksum before parsing.
#include "format/plan_file.h"

#include "format/checksum.h"
#include "format/file_marks.h"
#include "format/path_kind.h"
#include "messages/plan_error.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <string_view>

namespace espalier::rt {
namespace {

constexpr uint64_t maxPlanBytes = uint64_t(256) << 20;

static_assert(pb::Plan::kChecksumFieldNumber == 2047); // whose tag is sealTag

std::string sealOf(std::string_view content) {
  uint64_t sum = checksum(std::as_bytes(std::span(content)));
  std::string seal(sealTag);
  for (int byte = 0; byte < 8; ++byte)
    seal.push_back(static_cast<char>(sum >> (8 * byte)));
  return seal;
}

} // namespace

std::string planFileBytes(const pb::Plan &plan) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    plan.SerializeToCodedStream(&coded);
  }
  return resealed(std::move(bytes));
}

std::string resealed(std::string bytes) {
  if (hasSeal(bytes))
    bytes.resize(bytes.size() - sealBytes);
  return bytes + sealOf(bytes);
}

std::string readPlanBytes(const std::filesystem::path &file) {
  std::error_code error;
  uint64_t size = std::filesystem::file_size(file, error);
  if (error)
    refuseOther(file, whyNotOpened(file, error.value()));
  if (size > maxPlanBytes)
    throw PlanError(fmt::format("{}: {} bytes, a plan has at most {}", file.string(), size, maxPlanBytes));
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(size, '\0');
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size)))
    throw PlanError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  return bytes;
}

pb::Plan readPlan(const std::filesystem::path &file) { return parsePlan(readPlanBytes(file), file); }

pb::Plan parsePlan(std::string_view bytes, const std::filesystem::path &file) {
  if (!hasSeal(bytes))
    refuseOther(file, "not a run plan, or a damaged one: it does not end with a checksum; compile it again");
  std::string_view content = bytes.substr(0, bytes.size() - sealBytes);
  if (!bytes.ends_with(sealOf(content)))
    throw PlanError(fmt::format("{}: damaged: its bytes do not fit its checksum; compile it again", file.string()));
  pb::Plan plan;
  google::protobuf::LogSilencer silencer; // the PlanError below is the only message
  if (!plan.ParseFromArray(content.data(), static_cast<int>(content.size())))
    throw PlanError(fmt::format("{}: not a run plan", file.string()));
  if (plan.version() != planVersion)
    throw PlanError(fmt::format("{}: plan version {}, this runtime reads {}; compile it again", file.string(),
                                plan.version(), planVersion));
  return plan;
}

} // namespace espalier::rt
