// Writes scalars in the event format of TensorBoard: TFRecords with one serialized tensorflow.Event each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::rt {

/// Returns the CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

/// Returns a TFRecord: length, its masked CRC, the data, and the masked CRC of the data.
std::string tfRecord(std::string_view data);

/// Returns a serialized tensorflow.Event with scalar summaries.
std::string scalarEvent(double wallTime, int64_t step, const std::vector<std::pair<std::string, double>> &scalars);

/// A new event file of a folder. A write error ends the file, prints a warning, and does not end the run.
class EventFile {
public:
  EventFile() = default;
  /// Creates the folder and a file in it, named as TensorBoard expects. Throws PlanError if that fails.
  void open(const std::filesystem::path &folder);
  /// Appends the scalars of a step and flushes. Values that are not finite are left out.
  void add(int64_t step, const std::vector<std::pair<std::string, double>> &scalars);

private:
  std::filesystem::path path;
  std::ofstream stream;
};

} // namespace espalier::rt
