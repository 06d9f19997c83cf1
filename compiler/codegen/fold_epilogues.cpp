// Folds ops that are free as the epilogue of a matrix product: a bias, another addend, gelu or its derivative. Also
// folds the bias gradient, a sum over rows, into the product that computes the weight gradient. The last folded op
// becomes an exec.product. Ops that fuse-kernels finds after it read the library's output.
#include "compiler/codegen/fusion_graph.h"
#include "compiler/codegen/matrix_product.h"
#include "compiler/codegen/target.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FOLDEPILOGUES
#include "compiler/passes.h.inc"

using namespace codegen;

namespace {

/// The library requires rows of gelu's saved operand to be a multiple of this number of elements.
constexpr int64_t keptColumns = 8;

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

bool isHalf(Value value) { return elementOf(value).isF16() || elementOf(value).isBF16(); }

/// Returns the other operand of an addition.
Value otherOf(model::AddOp add, Value one) { return add.getA() == one ? add.getB() : add.getA(); }

/// Returns the only user of a value if that is an `Op` whose result has the value's type, else null.
template <typename Op> Op followerOf(Value value) {
  auto user = value.hasOneUse() ? dyn_cast<Op>(*value.user_begin()) : Op();
  return user && user.getType() == value.getType() ? user : Op();
}

/// Folds the ops that follow a product into it.
class EpilogueFolder {
public:
  /// `folds` returns whether the library should do an epilogue.
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
  /// Creates an exec.product at the position of the first op of `taken` and erases all ops of `taken`. `taken` lists
  /// the last op first and ends with the product. The remaining uses of `kept` become uses of the second result.
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

  /// Moves gelu directly after the addition, because the saved operand may be read before gelu.
  void foldGelu(Value bias, model::AddOp add, Operation *gelu) {
    gelu->moveAfter(add);
    replace("bias_gelu", {bias}, {gelu, add, op}, add->hasOneUse() ? nullptr : add);
  }

  /// Folds the sum of dy over rows into the weight gradient x' dy. Does not fold if a kernel makes or reads dy, because
  /// that kernel can compute the sum without another read. The library sums the rows of an operand that it does not
  /// transpose.
  void foldBiasGradient() {
    if (!isHalf(product.b) || !elementOf(op.getResult()).isF32() || product.transposeB || isRounded())
      return;
    Operation *maker = product.b.getDefiningOp();
    bool isAtHand = (maker && isFusable(maker)) || llvm::any_of(product.b.getUsers(), isFusable);
    for (Operation *user : product.b.getUsers()) {
      auto sum = dyn_cast<model::ReduceSumOp>(user);
      if (isAtHand || !sum || dimNames(sum.getType()) != ArrayRef(product.n) || !elementOf(sum.getResult()).isF32())
        continue;
      // The folded product may be at either op's position, if the users of the earlier op come after the later op.
      Operation *last = sum->isBeforeInBlock(op) ? op.getOperation() : sum;
      Operation *first = last == sum ? op.getOperation() : sum;
      if (llvm::any_of(first->getUsers(), [&](Operation *next) { return next->isBeforeInBlock(last); }))
        continue;
      op->moveBefore(last->getNextNode());
      sum->moveBefore(op);
      return replace("bias_gradient", {}, {op, sum}, sum);
    }
  }

  /// Returns whether an accumulator of another type than f32 takes the product. The library sums rows in c's type.
  bool isRounded() {
    return llvm::any_of(op->getUsers(), [](Operation *user) {
      return isa<model::AccumulateOp>(user) && !elementOf(user->getResult(0)).isF32();
    });
  }

  bool keepsRows() { return isHalf(op.getResult()) && elements(product.n, product.b) % keptColumns == 0; }

  /// Returns the number of elements in the dimensions `names` of `of`.
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
    auto unfused = exec::unfusedEpiloguesAttr.of(getOperation());
    const codegen::Target &target = codegen::targetOf(getOperation());
    // The run file lists epilogues that libraries of devices leave out.
    auto folds = [&](StringRef epilogue) {
      bool isUnfused = unfused && llvm::is_contained(unfused.getAsValueRange<StringAttr>(), epilogue);
      return target.hasEpilogue(epilogue) && (target.isHost() || !isUnfused);
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
