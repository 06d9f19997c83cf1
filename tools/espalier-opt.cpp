// espalier-opt: runs passes one by one on IR files, for lit tests and debugging.
#include "compiler/passes.h"
#include "dialects/register.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  espalier::registerDialects(registry);
  espalier::registerEspalierPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Espalier pass driver\n", registry));
}
