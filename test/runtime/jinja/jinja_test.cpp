// Tests the interpreter of chat templates: the texts that jinja2 renders, and the words of its faults.
#include "runtime/jinja/template.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>

namespace espalier::rt::jinja {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

constexpr std::time_t now = 1700000000; // as in test/golden/jinja/make_cases.py

std::string render(const std::string &source, const Json &variables = Json::object()) {
  return Template(source).render(variables, now).text;
}

/// Returns the fault of a template; empty if it renders.
std::string faultOf(const std::string &source, const Json &variables = Json::object()) {
  try {
    render(source, variables);
  } catch (const TemplateError &error) {
    return error.what();
  }
  return "";
}

TEST(Jinja, RendersWhatJinja2Renders) {
  ::setenv("TZ", "UTC", 1);
  std::ifstream file(ESPALIER_SOURCE_DIR "/test/golden/jinja/cases.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  Json variables = Json::parse(line);
  int rendered = 0, refused = 0;
  while (std::getline(file, line)) {
    Json row = Json::parse(line);
    auto source = row["template"].get<std::string>();
    if (row.contains("refused")) {
      EXPECT_NE(faultOf(source, variables), "") << source;
      ++refused;
      continue;
    }
    try {
      Rendered result = Template(source).render(variables, now);
      EXPECT_EQ(result.text, row["text"].get<std::string>()) << source;
      EXPECT_EQ(Json(result.generated), row["generated"]) << source;
      ++rendered;
    } catch (const TemplateError &error) {
      ADD_FAILURE() << source << ": " << error.what();
    }
  }
  EXPECT_GT(rendered, 400);
  EXPECT_GT(refused, 200);
}

TEST(Jinja, NamesTheLineOfAFault) {
  EXPECT_EQ(faultOf("a\n\n{{ 1 + }}"), "line 3: unexpected }}");
  EXPECT_EQ(faultOf("a\n{% if x %}\nb"), "line 3: the template ends inside a tag or a block");
  EXPECT_EQ(faultOf("a\n{{ x|nosuch }}\n{{"), "line 3: the template ends inside a tag or a block");
  EXPECT_EQ(faultOf("a\n{{ x|nosuch }}\nb"), "line 2: unknown filter 'nosuch'");
  EXPECT_EQ(faultOf("{% for x in [1] %}\n{{ x is nosuch }}{% endfor %}"), "line 2: unknown test 'nosuch'");
  EXPECT_EQ(faultOf("\n{{ raise_exception('Roles must alternate') }}"), "line 2: Roles must alternate");
  EXPECT_EQ(faultOf("{% set x = 1 %}\n\n{{ y.z }}"), "line 3: 'y' is undefined");
  try {
    render("{{ raise_exception('own words') }}");
  } catch (const TemplateError &error) {
    EXPECT_EQ(error.reason, "own words");
  }
}

TEST(Jinja, RefusesWhatIsNotConstantOrNotText) {
  EXPECT_THAT(faultOf("{{ [1]|map('upper') }}"), HasSubstr("a generator is printed, which would print an address"));
  EXPECT_THAT(faultOf("{{ range }}"), HasSubstr("a function is printed"));
  EXPECT_EQ(faultOf("{% include 'x' %}"), "line 1: `include` is refused: a chat template has no other templates");
  EXPECT_EQ(faultOf("{{ [].append(1) }}"), "line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(faultOf("{{ ''.__class__.x }}"), "line 1: access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(faultOf("{{ [1]|random }}"), "line 1: unknown filter 'random'"); // is not deterministic
  EXPECT_EQ(faultOf("{{ 9223372036854775807 + 1 }}"), "line 1: an integer does not fit into 64 bits");
  EXPECT_EQ(faultOf("{{ 9223372036854775808 }}"), "line 1: the integer 9223372036854775808 does not fit into 64 bits");
  EXPECT_EQ(faultOf("{{ x }}", {{"x", uint64_t{1} << 63}}), "line 1: an integer does not fit into 64 bits");
}

TEST(Jinja, NeverDividesBeyondItsIntegers) {
  const std::string smallest = "(-9223372036854775807 - 1)";
  EXPECT_EQ(render("{{ " + smallest + " % -1 }}"), "0");
  for (const char *operation : {" // -1", " * -1", "|abs", " - 1"})
    EXPECT_NE(faultOf("{{ " + smallest + operation + " }}"), "") << operation;
  EXPECT_NE(faultOf("{{ -" + smallest + " }}"), "");
  EXPECT_NE(faultOf("{{ 10 ** 19 }}"), "");
  EXPECT_EQ(render("{{ 'abc'[::9223372036854775807] }}{{ 'abc'[" + smallest + ":] }}{{ [1, 2][::" + smallest + "] }}"),
            "aabc[2]");
}

TEST(Jinja, TellsTheTimeOfItsCaller) {
  ::setenv("TZ", "UTC", 1);
  EXPECT_EQ(render("{{ strftime_now('%d %B %Y') }}"), "14 November 2023");
}

TEST(Jinja, KnowsItsNames) {
  Template chat("{% if enable_thinking %}{{ messages[0].tool_calls }}{% endif %}");
  EXPECT_TRUE(chat.names("enable_thinking"));
  EXPECT_TRUE(chat.names("tool_calls"));
  EXPECT_FALSE(chat.names("tools"));
  EXPECT_FALSE(chat.hasGeneration());
  EXPECT_TRUE(Template("{% if x %}{% generation %}{% endgeneration %}{% endif %}").hasGeneration());
}

} // namespace
} // namespace espalier::rt::jinja
