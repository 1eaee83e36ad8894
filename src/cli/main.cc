#include "cli/cli.h"

int main(int argc, char** argv) { return lapidary::cli::run(argc, argv); }
