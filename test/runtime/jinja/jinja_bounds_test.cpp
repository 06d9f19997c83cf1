// Tests that a template of a stranger ends in bounded time and memory, with one sentence.
#include "runtime/jinja/template.h"

#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

namespace espalier::rt::jinja {
namespace {

std::string repeat(const std::string &text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i)
    all += text;
  return all;
}

/// Returns the fault of a template with small bounds, which must come within two seconds.
std::string faultOf(const std::string &source) {
  auto begin = std::chrono::steady_clock::now();
  std::string fault;
  try {
    nlohmann::ordered_json variables = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
    (void)Template(source).render(variables, 0, {.steps = 1'000'000, .bytes = 16 << 20, .seconds = 5});
  } catch (const TemplateError &error) {
    fault = error.reason;
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 2) << source.substr(0, 80);
  return fault;
}

constexpr const char *steps = "the template takes more than 1000000 steps";
constexpr const char *bytes = "the template makes more than 16 MB of values";
constexpr const char *deep = "the template nests its calls more than 1000 levels deep";

TEST(JinjaBounds, Steps) {
  EXPECT_EQ(faultOf("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"), steps);
  EXPECT_EQ(faultOf(repeat("{% for a in range(100) %}", 12) + repeat("{% endfor %}", 12)), steps);
  EXPECT_EQ(faultOf("{% set l = range(99999)|list %}{% for a in l %}{{ 1 if -1 in l }}{% endfor %}"), steps);
  EXPECT_EQ(faultOf("{% macro m(n) %}{% for i in range(n) %}{{ m(n - 1) }}{% endfor %}{% endmacro %}{{ m(60) }}"),
            bytes);
  EXPECT_EQ(faultOf("{% for a in range(99999) %}{{ range(99999)|select('gt', 1)|first }}{% endfor %}"), steps);
}

TEST(JinjaBounds, Bytes) {
  const std::string twice = "{% set ns = namespace(x='ab', l=[1]) %}{% for i in range(64) %}";
  EXPECT_EQ(faultOf(twice + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf(twice + "{% set ns.x = ns.x + ns.x %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf(twice + "{% set ns.x = ns.x|replace('a', 'aa') %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf(twice + "{% set ns.l = ns.l + ns.l %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf(twice + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf(twice + "{% set ns.x = [ns.x, ns.x]|join(ns.x) %}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf("{{ 'a' * 9223372036854775807 }}"), bytes);
  EXPECT_EQ(faultOf("{{ 'abc' * 3074457345618258603 }}"), bytes);
  EXPECT_EQ(faultOf("{{ [1] * 99999999 }}"), bytes);
  EXPECT_EQ(faultOf("{{ 'a'.center(9223372036854775807) }}{{ 'a'|center(99999999) }}"), bytes);
  EXPECT_EQ(faultOf("{{ 'a'.zfill(99999999) }}"), bytes);
  EXPECT_EQ(faultOf("{{ [1]|batch(99999999, 'x')|list }}"), bytes);
  EXPECT_EQ(faultOf("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"), bytes);
  EXPECT_EQ(faultOf("{{ '%1048577d' % 1 }}"), "a format is wider than 1048576 characters");
  EXPECT_EQ(faultOf("{{ '{:99999999999}'.format(1) }}"), "a format is wider than 1048576 characters");
}

// A value that holds another one twice has a text of exponential size.
TEST(JinjaBounds, SharedValues) {
  const std::string dag =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  for (const char *use : {"{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x ~ '' }}", "{{ ns.x|string|length }}", "{{ ns }}",
                          "{% set y = ns.x %}{{ '%r' % y }}"})
    EXPECT_THAT(faultOf(dag + use), testing::AnyOf(steps, bytes)) << use;
  const std::string other =
      "{% set o = namespace(x=[1]) %}{% for i in range(60) %}{% set o.x = [o.x, o.x] %}{% endfor %}";
  EXPECT_EQ(faultOf(dag + other + "{{ ns.x == o.x }}"), steps);
  EXPECT_EQ(faultOf(dag + other + "{{ ns.x < o.x }}"), steps);
}

TEST(JinjaBounds, Depth) {
  EXPECT_EQ(faultOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), deep);
  EXPECT_EQ(faultOf("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"), deep);
  EXPECT_EQ(faultOf("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), deep);
  EXPECT_EQ(faultOf("{% macro m(a=m()) %}{% endmacro %}{{ m() }}"), deep);
  const char *nested = "a value nests more than 200 levels deep";
  EXPECT_EQ(faultOf("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
            nested);
  EXPECT_EQ(faultOf("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x|map('upper') %}"
                    "{% endfor %}{{ ns.x|list }}"),
            nested);
  EXPECT_EQ(faultOf("{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}"),
            nested);
  const char *nests = "the template nests more than 200 levels deep";
  EXPECT_EQ(faultOf("{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}"), nests);
  EXPECT_EQ(faultOf("{{ " + repeat("[", 100'000)), nests);
  EXPECT_EQ(faultOf("{{ " + repeat("not ", 100'000) + "1 }}"), nests);
  EXPECT_EQ(faultOf("{{ " + repeat("-", 100'000) + "1 }}"), nests);
  EXPECT_EQ(faultOf("{{ " + repeat("a if b else ", 50'000) + "1 }}"), nests);
  EXPECT_EQ(faultOf(repeat("{% if x %}", 50'000)), nests);
  EXPECT_EQ(faultOf("{% set " + repeat("(", 100'000) + "a"), nests);
  const char *levels = "an expression has more than 400 levels";
  EXPECT_EQ(faultOf("{{ 1" + repeat(" + 1", 100'000) + " }}"), levels);
  EXPECT_EQ(faultOf("{{ a" + repeat(".b", 100'000) + " }}"), levels);
  EXPECT_EQ(faultOf("{{ a" + repeat("|upper", 100'000) + " }}"), levels);
  EXPECT_EQ(faultOf("{{ a" + repeat("()", 100'000) + " }}"), levels);
}

TEST(JinjaBounds, LongTemplates) {
  std::string megabyte = repeat("{{ messages }}{# #}", (1 << 20) / 19);
  EXPECT_EQ(faultOf("{% if false %}" + megabyte.substr(0, megabyte.size() - 100) + "{% endif %}"), "");
  EXPECT_EQ(faultOf(std::string(1 << 20, '\n') + " "), "the template has 1048577 bytes, at most 1048576 are read");
  EXPECT_EQ(faultOf(std::string((1 << 20) - 4, '{')), "the template nests more than 200 levels deep");
  EXPECT_NE(faultOf(repeat("{% raw %}", (1 << 20) / 9)), "");
  EXPECT_NE(faultOf("{{ '" + repeat("\\", 1'000'000)), "");
  EXPECT_EQ(faultOf(repeat("{", 500'000).substr(0, 1) + repeat(" {", 400'000)), "");
}

TEST(JinjaBounds, Time) {
  Template slow("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  try {
    (void)slow.render({}, 0, {.steps = int64_t{1} << 50, .bytes = int64_t{1} << 50, .seconds = 1});
    FAIL() << "the template ends";
  } catch (const TemplateError &error) {
    EXPECT_EQ(error.reason, "the template takes more than 1 s");
  }
}

// Macros and namespaces that hold themselves are freed.
TEST(JinjaBounds, FreesItsValues) {
  Template cyclic(
      "{% set ns = namespace() %}{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.m = m %}{% set ns.x = ns %}"
      "{% set ns.text = 'x' * 1000000 %}{% for i in [1, 2] %}{% set ns.l = loop %}{{ loop.index }}{% endfor %}");
  auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  (void)cyclic.render({});
  long before = peak();
  for (int i = 0; i < 300; ++i)
    (void)cyclic.render({});
  EXPECT_LT(peak() - before, 100'000) << "kB more after 300 renderings of 1 MB each";
}

} // namespace
} // namespace espalier::rt::jinja
