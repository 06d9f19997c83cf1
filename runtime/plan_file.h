// The .plan file: one protobuf message whose last field is a checksum over all bytes before it, so that any tool that
// knows the schema reads it and no damage goes unseen.
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::rt {

constexpr uint32_t planVersion = 2;

/// The file's bytes: equal for equal plans.
std::string planFileBytes(const pb::Plan &plan);

/// The bytes of a .plan file, or of any other file, with a checksum that fits them.
std::string resealed(std::string bytes);

/// Whether a regular file ends with a plan's checksum, be it the right one or not.
bool isSealed(const std::filesystem::path &file);

/// Reads and parses a .plan file. Throws PlanError if it is missing, too large, damaged or of another version.
pb::Plan readPlan(const std::filesystem::path &file);

/// A file's bytes, at most as many as a plan may have. Throws PlanError if it is missing or larger.
std::string readPlanBytes(const std::filesystem::path &file);

} // namespace espalier::rt
