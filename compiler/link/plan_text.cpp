#include "compiler/link/plan_text.h"

#include <google/protobuf/text_format.h>

#include <functional>

namespace espalier {

using namespace rt::pb;

namespace {

using google::protobuf::TextFormat;

/// Prints a comment behind the opening brace of a message.
class CommentPrinter : public TextFormat::FastFieldValuePrinter {
public:
  /// Returns the comment of a message. `index` counts the messages of a repeated field.
  using Comment = std::function<std::string(const google::protobuf::Message &message, int index)>;
  explicit CommentPrinter(Comment comment) : comment(std::move(comment)) {}

  void PrintMessageStart(const google::protobuf::Message &message, int index, int /*count*/, bool /*singleLine*/,
                         TextFormat::BaseTextGenerator *generator) const override {
    generator->PrintString(" {  # " + comment(message, index) + "\n");
  }

private:
  Comment comment;
};

/// Adds comments to the text of one plan.
class PlanPrinter {
public:
  explicit PlanPrinter(const Plan &plan) : plan(plan) {
    printer.SetUseShortRepeatedPrimitives(true);
    auto transfer = [this](const Flight &flight, int) { return transferName(flight.transfer()); };
    comment<Start, Flight>({Start::kFlightsFieldNumber}, transfer);
    comment<Wait, Flight>({Wait::kFlightsFieldNumber}, transfer);
    comment<Action, Run>({Action::kRunFieldNumber},
                         [this](const Run &run, int) { return this->plan.roles(run.role()); });
    comment<Stage, Actions>({Stage::kEntriesFieldNumber},
                            [this](const Actions &, int index) { return this->plan.entries(index).name(); });
    comment<Call, Binding>({Call::kBindingsFieldNumber},
                           [this](const Binding &binding, int) { return this->plan.regions(binding.region()); });
    comment<Call, BucketUse>({Call::kBucketsFieldNumber},
                             [this](const BucketUse &use, int) { return this->plan.buckets(use.bucket()).name(); });
    comment<Subprogram, Instruction>({Subprogram::kInstructionsFieldNumber},
                                     [this](const Instruction &instruction, int) { return nameOf(instruction); });
    comment<Plan, Transfer>({Plan::kTransfersFieldNumber}, [this](const Transfer &transfer, int) {
      return "on " + this->plan.queues(transfer.queue()).name();
    });
    auto buffer = [this](const Buffer &buffer, int) {
      return this->plan.values(buffer.value()).name() + " in " + this->plan.regions(buffer.region());
    };
    comment<Transfer, Buffer>({Transfer::kFromFieldNumber, Transfer::kToFieldNumber}, buffer);
    comment<Launch, Buffer>({Launch::kBuffersFieldNumber}, buffer);
    comment<LibraryCall, Buffer>({LibraryCall::kBuffersFieldNumber}, buffer);
    comment<Exchange, Buffer>({Exchange::kBufferFieldNumber}, buffer);
    comment<Bucket, Buffer>({Bucket::kStoredFieldNumber, Bucket::kGradientFieldNumber, Bucket::kStateFieldNumber,
                             Bucket::kWholeGradientFieldNumber, Bucket::kWholeStoredFieldNumber},
                            buffer);
  }

  std::string print() const {
    Plan shown = plan;
    for (Object &object : *shown.mutable_objects())
      object.clear_code();
    std::string text;
    printer.PrintToString(shown, &text);
    return text;
  }

private:
  /// Adds a comment to each message of type `Part` in fields of `Whole`.
  template <typename Whole, typename Part, typename TextOf>
  void comment(std::initializer_list<int> fields, TextOf textOf) {
    auto comment = [textOf](const google::protobuf::Message &message, int index) -> std::string {
      return textOf(static_cast<const Part &>(message), index);
    };
    for (int field : fields) // the printer owns what is registered
      printer.RegisterFieldValuePrinter(Whole::descriptor()->FindFieldByNumber(field), new CommentPrinter(comment));
  }

  std::string transferName(uint32_t index) const { return plan.transfers(static_cast<int>(index)).name(); }

  /// Returns the kernel or function that an instruction runs, or the transfer that it starts or waits for.
  std::string nameOf(const Instruction &instruction) const {
    if (instruction.has_start())
      return "start " + transferName(instruction.start());
    if (instruction.has_wait())
      return "wait for " + transferName(instruction.wait());
    return plan.locations(static_cast<int>(instruction.location())).op();
  }

  const Plan &plan;
  TextFormat::Printer printer;
};

} // namespace

std::string planText(const Plan &plan) { return PlanPrinter(plan).print(); }

} // namespace espalier
