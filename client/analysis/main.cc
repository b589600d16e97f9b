#include "client/analysis/commands.h"
#include "client/program.h"

int main(int argc, char** argv) {
  return sluice::client::RunProgram(argc, argv, sluice::client::Analyse);
}
