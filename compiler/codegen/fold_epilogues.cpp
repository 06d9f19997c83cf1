// What follows a matrix product and costs nothing there: a bias, another sum, gelu or its derivative, and beside a
// gradient of weights the sum over the rows that is the gradient of their bias. The op that is the last of them becomes
// an exec.product; what fuse-kernels finds behind it reads what the library has written.
#include "compiler/codegen/fusion_graph.h"
#include "compiler/codegen/matrix_product.h"
#include "compiler/passes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FOLDEPILOGUES
#include "compiler/passes.h.inc"

using namespace codegen;

namespace {

/// The library keeps gelu's operand in rows of a multiple of so many elements.
constexpr int64_t keptColumns = 8;

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

bool isHalf(Value value) { return elementOf(value).isF16() || elementOf(value).isBF16(); }

/// The other operand of an addition.
Value otherOf(model::AddOp add, Value one) { return add.getA() == one ? add.getB() : add.getA(); }

/// The only user of a value that is used once, where it is an `Op` with a result like the value.
template <typename Op> Op followerOf(Value value) {
  auto user = value.hasOneUse() ? dyn_cast<Op>(*value.user_begin()) : Op();
  return user && user.getType() == value.getType() ? user : Op();
}

/// Folds into one product what follows it.
class EpilogueFolder {
public:
  /// `folds`: the epilogues that the library is to do.
  EpilogueFolder(model::ContractOp op, MatrixProduct product, function_ref<bool(StringRef)> folds)
      : op(op), product(std::move(product)), folds(folds) {}

  void fold() {
    if (auto add = followerOf<model::AddOp>(op.getResult()))
      return foldAdd(add);
    if (auto grad = followerOf<model::GeluGradOp>(op.getResult()); grad && folds("gelu_gradient") &&
                                                                   grad.getX().getType() == op.getType() &&
                                                                   keepsRows() && elements(product.k, product.a) > 1)
      return replace("gelu_gradient", {grad.getX()}, {grad, op});
    if (folds("bias_gradient"))
      foldBiasGradient();
  }

private:
  /// An exec.product where the first of `taken` stands, the last op that it takes up; the product is the last one. What
  /// is used of `kept` becomes the second result.
  void replace(StringRef epilogue, ValueRange others, ArrayRef<Operation *> taken, Operation *kept = nullptr) {
    OpBuilder builder(taken.front());
    SmallVector<Type> types = {taken.front()->getResult(0).getType()};
    if (kept)
      types.push_back(kept->getResult(0).getType());
    SmallVector<Value> operands = {product.a, product.b};
    llvm::append_range(operands, others);
    OperationState state(op.getLoc(), exec::ProductOp::getOperationName(), operands, types);
    state.addAttribute("epilogue", builder.getStringAttr(epilogue));
    Operation *folded = builder.create(state);
    taken.front()->getResult(0).replaceAllUsesWith(folded->getResult(0));
    if (kept)
      kept->getResult(0).replaceAllUsesWith(folded->getResult(1));
    for (Operation *gone : taken)
      gone->erase();
  }

  void foldAdd(model::AddOp add) {
    Value other = otherOf(add, op.getResult());
    bool isBias = dimNames(other.getType()) == ArrayRef(product.n) && elementOf(other) == elementOf(op.getResult());
    if (!isBias) {
      if (folds("add") && other.getType() == op.getType())
        replace("add", {other}, {add, op});
      return;
    }
    auto gelu = llvm::find_if(add->getUsers(), [&](Operation *user) {
      return isa<model::GeluOp>(user) && user->getResult(0).getType() == add.getType();
    });
    if (folds("bias_gelu") && gelu != add->user_end() && keepsRows())
      return foldGelu(other, add, *gelu);
    auto next = followerOf<model::AddOp>(add.getResult());
    Value addend = next ? otherOf(next, add.getResult()) : Value();
    if (folds("bias_add") && next && addend.getType() == op.getType())
      return replace("bias_add", {other, addend}, {next, add, op});
    if (folds("bias"))
      replace("bias", {other}, {add, op});
  }

  /// Where gelu's operand is kept for its derivative it may be read before gelu.
  void foldGelu(Value bias, model::AddOp add, Operation *gelu) {
    gelu->moveAfter(add);
    replace("bias_gelu", {bias}, {gelu, add, op}, add->hasOneUse() ? nullptr : add);
  }

  /// Of the gradient of weights x' dy the sum of dy over the rows, where no kernel makes or reads dy: that would have
  /// it at hand. The library sums up the rows of what it does not transpose.
  void foldBiasGradient() {
    if (!isHalf(product.b) || !elementOf(op.getResult()).isF32() || product.transposeB)
      return;
    Operation *maker = product.b.getDefiningOp();
    bool isAtHand = (maker && isFusable(maker)) || llvm::any_of(product.b.getUsers(), isFusable);
    for (Operation *user : product.b.getUsers()) {
      auto sum = dyn_cast<model::ReduceSumOp>(user);
      if (isAtHand || !sum || dimNames(sum.getType()) != ArrayRef(product.n) || !elementOf(sum.getResult()).isF32())
        continue;
      // The product may stand where either stood, if what follows the other stands behind that.
      Operation *last = sum->isBeforeInBlock(op) ? op.getOperation() : sum;
      Operation *first = last == sum ? op.getOperation() : sum;
      if (llvm::any_of(first->getUsers(), [&](Operation *next) { return next->isBeforeInBlock(last); }))
        continue;
      op->moveBefore(last->getNextNode());
      sum->moveBefore(op);
      return replace("bias_gradient", {}, {op, sum}, sum);
    }
  }

  bool keepsRows() { return isHalf(op.getResult()) && elements(product.n, product.b) % keptColumns == 0; }

  /// Of the dimensions `names`, which `of` has.
  static int64_t elements(ArrayRef<StringAttr> names, Value of) {
    int64_t count = 1;
    for (StringAttr name : names)
      count *= cast<RankedTensorType>(of.getType()).getDimSize(dimIndex(of.getType(), name));
    return count;
  }

  model::ContractOp op;
  MatrixProduct product;
  function_ref<bool(StringRef)> folds;
};

struct FoldEpiloguesPass : impl::FoldEpiloguesBase<FoldEpiloguesPass> {
  void runOnOperation() override {
    auto unfused = getOperation()->getAttrOfType<ArrayAttr>("exec.unfused_epilogues");
    bool isCuda = exec::isCuda(getOperation());
    // A CPU's product adds a bias, nothing else.
    auto folds = [&](StringRef epilogue) {
      bool isUnfused = unfused && llvm::is_contained(unfused.getAsValueRange<StringAttr>(), epilogue);
      return isCuda ? !isUnfused : epilogue == "bias";
    };
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      SmallVector<model::ContractOp> products;
      if (!function.isDeclaration())
        llvm::append_range(products, function.getOps<model::ContractOp>());
      for (model::ContractOp op : products)
        if (std::optional<MatrixProduct> product = collapse(op);
            product && product->batch.empty() && !product->n.empty())
          EpilogueFolder(op, std::move(*product), folds).fold();
    }
  }
};

} // namespace
} // namespace espalier
