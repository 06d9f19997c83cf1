#include "compiler/import/model/build_types.h"

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {
namespace {

/// The arguments that share the storage of one parameter.
struct Stored {
  SmallVector<BlockArgument> arguments;
  Type read;            ///< the type in which they are read; null: not read yet
  bool isFixed = false; ///< whether an op reads the stored type itself, or two types are read
};

/// Adds the types in which an argument is read. An embedding converts the elements that it gathers.
void addReads(BlockArgument argument, Stored &stored) {
  stored.arguments.push_back(argument);
  for (Operation *user : argument.getUsers()) {
    Type type =
        isa<model::ConvertOp, model::EmbedOp>(user) ? getElementTypeOrSelf(user->getResult(0).getType()) : Type();
    stored.isFixed |= !type || (stored.read && stored.read != type);
    stored.read = type;
  }
}

void changeType(BlockArgument argument, Type element) {
  argument.setType(cast<RankedTensorType>(argument.getType()).clone(element));
  for (Operation *user : llvm::make_early_inc_range(argument.getUsers()))
    if (isa<model::ConvertOp>(user)) {
      user->getResult(0).replaceAllUsesWith(argument);
      user->erase();
    }
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  function.setType(
      function.getFunctionType().clone(argument.getOwner()->getArgumentTypes(), function.getResultTypes()));
}

} // namespace

void storeAsRead(ModuleOp module, const ModelDescription &model) {
  std::map<std::string, std::string> owners; // of tied parameters
  for (const SegmentDescription &segment : model.segments)
    for (const ParameterDescription &parameter : segment.parameters)
      if (!parameter.tiedTo.empty())
        owners[segment.kind + "." + parameter.name] = parameter.tiedTo;
  std::map<std::string, Stored> parameters;
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments()) {
      if (model::roleAttr.ofArgument(function, argument.getArgNumber()).getValue() != "parameter")
        continue;
      std::string name = (function.getSymName().split('.').first + "." +
                          model::nameAttr.ofArgument(function, argument.getArgNumber()).getValue())
                             .str();
      auto owner = owners.find(name);
      addReads(argument, parameters[owner == owners.end() ? name : owner->second]);
    }
  for (auto &[name, stored] : parameters)
    if (stored.read && !stored.isFixed)
      for (BlockArgument argument : stored.arguments)
        changeType(argument, stored.read);
}

} // namespace espalier
