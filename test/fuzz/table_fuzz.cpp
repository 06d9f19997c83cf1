// Parses any bytes as a table of published runs and reads its first rows as runs. Seeds: any such table.
#include "tools/published/run_of_row.h"

#include <algorithm>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  espalier::PublishedTable table = espalier::readTable({reinterpret_cast<const char *>(data), size});
  table.rows.resize(std::min<size_t>(table.rows.size(), 2));
  for (const espalier::PublishedRow &row : table.rows)
    espalier::runOf(row);
  return 0;
}
