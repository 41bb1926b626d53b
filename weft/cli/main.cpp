#include <string>
#include <vector>

#include "weft/cli/cli_parse.h"

int main(int argc, char** argv) {
  return weft::run_weft(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
