// A report as one HTML file that needs no network. report.js draws its sections. The file holds the script, the style
// and the data.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace espalier {

/// Returns the file. `sections` is a list of objects with `type`, `title` and the members that report.js names for the
/// type.
std::string reportPage(const std::string &title, const std::string &subtitle, const nlohmann::ordered_json &sections);

} // namespace espalier
