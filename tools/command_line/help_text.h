// The text of `--help`: options in groups, wrapped to the width of the terminal, and an example.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace espalier {

/// Returns the columns of the terminal that standard output is connected to, else $COLUMNS, else 80; 40 to 120.
int helpColumns();

/// Returns the help of a verb. `name` is its full name, such as "espalier data tokenize".
std::string helpText(const CLI::App &verb, const std::string &name, int columns);

} // namespace espalier
