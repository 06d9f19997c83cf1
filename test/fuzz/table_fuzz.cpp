// Parses any bytes as a table of published runs and predicts its first rows. Seeds: any such table.
#include "tools/published/report.h"

#include <algorithm>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace espalier::planner;
  PublishedTable table = readTable({reinterpret_cast<const char *>(data), size});
  table.rows.resize(std::min<size_t>(table.rows.size(), 2));
  if (table.faults.empty())
    printReport(evaluateTable("table", table.rows), /*perRow=*/true);
  return 0;
}
