#include "dialects/register.h"

#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace espalier {

void registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<model::ModelDialect, dist::DistDialect, exec::ExecDialect, mlir::func::FuncDialect,
                  mlir::arith::ArithDialect, mlir::math::MathDialect>();
}

} // namespace espalier
