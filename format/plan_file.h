// The .plan file: one protobuf message whose last field is a checksum of all bytes before it. Any protobuf tool can
// read it, and damage is detected.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::rt {

constexpr uint32_t planVersion = 2;

/// Serializes a plan. Equal plans give equal bytes.
std::string planFileBytes(const pb::Plan &plan);

/// Returns the bytes of a file with a valid checksum at the end.
std::string resealed(std::string bytes);

/// Parses the bytes of a .plan file. Throws PlanError if they are damaged or of another version.
pb::Plan parsePlan(std::string_view bytes, const std::filesystem::path &file);

/// Reads and parses a .plan file. Throws PlanError if it is missing, too large, damaged or of another version.
pb::Plan readPlan(const std::filesystem::path &file);

/// Reads a file of at most maxPlanBytes bytes. Throws PlanError if it is missing or larger.
std::string readPlanBytes(const std::filesystem::path &file);

} // namespace espalier::rt
