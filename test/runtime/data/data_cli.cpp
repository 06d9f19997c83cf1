// The data verbs alone, for measurements that should not wait for the whole command to build.
#include "tools/data_command.h"

int main(int argc, char **argv) {
  CLI::App app("data verbs");
  espalier::addDataCommands(app);
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
