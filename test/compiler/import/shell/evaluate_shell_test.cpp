// Evaluates scripts without running them. The truth is what bash passes to a recorder that stands in for the launcher.
#include "compiler/import/shell/evaluate_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace espalier;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::optional<std::string> readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return stream.is_open() ? std::optional(text.str()) : std::nullopt;
}

/// Returns the values of the comment lines `# NAME: VALUE` of a script.
Words header(const std::string &text, const std::string &name) {
  Words values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("# " + name + ": "))
      values.push_back(line.substr(name.size() + 4));
  return values;
}

std::string quoted(const std::string &word) {
  std::string result = "'";
  for (char c : word)
    result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// A folder with recorders in place of `torchrun` and `python`. Bash finds no other program.
class Sandbox {
public:
  Sandbox() {
    fs::create_directories(folder / "bin");
    for (const char *name : {"torchrun", "python"}) {
      fs::path program = folder / "bin" / name;
      std::ofstream(program) << "#!/bin/bash\nprintf '%s\\0' \"${0##*/}\" \"$@\" > \"$RECORD\"\n";
      fs::permissions(program, fs::perms::owner_all);
    }
  }
  ~Sandbox() { fs::remove_all(folder); }

  /// Returns the words of the last command that the script starts.
  Words wordsOf(const fs::path &script, const Words &arguments, const Words &environment) const {
    fs::path record = folder / "record";
    fs::remove(record);
    std::string command = "cd " + quoted(script.parent_path()) +
                          " && timeout 20 env -i PATH=" + quoted(folder / "bin") + " RECORD=" + quoted(record);
    for (const std::string &given : environment)
      command += " " + quoted(given);
    command += " /bin/bash " + quoted(script);
    for (const std::string &argument : arguments)
      command += " " + quoted(argument);
    command += " > /dev/null 2>&1 < /dev/null";
    (void)std::system(command.c_str()); // many scripts end with the status of a missing program
    Words words;
    std::istringstream recorded(readFile(record).value_or(""));
    for (std::string word; std::getline(recorded, word, '\0');)
      words.push_back(word);
    return words;
  }

private:
  fs::path folder = fs::path(testing::TempDir()) / "evaluate_shell_sandbox";
};

struct Evaluated {
  ShellRun run;
  std::string text; ///< the diagnostics
  bool hasErrors = false;
};

Evaluated evaluate(const std::string &script, const ShellInputs &inputs = {}) {
  Evaluated result;
  Diagnostics diagnostics;
  result.run = evaluateShell("x.sh", script, inputs, diagnostics);
  result.text = diagnostics.render();
  result.hasErrors = diagnostics.hasErrors();
  return result;
}

Words textsOf(const ShellCommand &command) {
  Words words;
  for (const ShellWord &word : command)
    words.push_back(word.unknown.empty() ? word.text : word.text + "<" + word.unknown + ">");
  return words;
}

/// The words of the last command.
Words wordsOfLast(const std::string &script) {
  Evaluated result = evaluate(script);
  EXPECT_EQ(result.text, "");
  return result.run.commands.empty() ? Words() : textsOf(result.run.commands.back());
}

/// The words of the launch behind `torchrun x.py`. Words that are unknown stand as <CAUSE>.
Words launch(const std::string &script, const ShellInputs &inputs = {}) {
  Evaluated result = evaluate(script, inputs);
  EXPECT_FALSE(result.hasErrors) << result.text;
  if (!result.run.launch)
    return {"no launch"};
  Words words = textsOf(*result.run.launch);
  words.erase(words.begin(), words.begin() + 2);
  return words;
}

std::string errorsOf(const std::string &script, const ShellInputs &inputs = {}) {
  Evaluated result = evaluate(script, inputs);
  EXPECT_TRUE(result.hasErrors) << script;
  return result.text;
}

ShellInputs given(std::map<int, std::string> arguments, std::map<std::string, std::string> environment = {}) {
  ShellInputs inputs;
  inputs.arguments = std::move(arguments);
  inputs.environment = std::move(environment);
  return inputs;
}

} // namespace

TEST(EvaluateShell, ScriptsLaunchTheWordsThatBashLaunches) {
  if (!fs::exists("/bin/bash"))
    GTEST_SKIP() << "there is no /bin/bash to compare with";
  Sandbox sandbox;
  size_t scripts = 0;
  for (const auto &entry : fs::directory_iterator(ESPALIER_SOURCE_DIR "/test/compiler/import/shell/scripts")) {
    if (entry.path().extension() != ".sh")
      continue;
    ++scripts;
    std::string text = *readFile(entry.path());
    Words arguments = header(text, "argument"), environment = header(text, "environment");
    Words wanted = sandbox.wordsOf(entry.path(), arguments, environment);
    EXPECT_GE(wanted.size(), 3U) << entry.path();
    ShellInputs inputs;
    for (size_t i = 0; i < arguments.size(); ++i)
      inputs.arguments[static_cast<int>(i) + 1] = arguments[i];
    for (const std::string &value : environment)
      inputs.environment[value.substr(0, value.find('='))] = value.substr(value.find('=') + 1);
    inputs.readBeside = [&](const std::string &path) { return readFile(entry.path().parent_path() / path); };
    Evaluated result = evaluate(text, inputs);
    EXPECT_FALSE(result.hasErrors) << entry.path() << "\n" << result.text;
    EXPECT_EQ(result.run.launch ? textsOf(*result.run.launch) : Words(), wanted) << entry.path();
  }
  EXPECT_GE(scripts, 32U);
}

TEST(EvaluateShell, VariablesArraysQuotesAndContinuedLines) {
  EXPECT_THAT(wordsOfLast("A=1\nB=\"x y\"\nrun $A ${B} \"$B\" '$A' ${C:-d}"),
              ElementsAre("run", "1", "x", "y", "x y", "$A", "d"));
  EXPECT_THAT(wordsOfLast("L=( --a 1 # why\n --b \"2 3\" )\nL+=(--c)\nrun ${L[@]} \\\n end"),
              ElementsAre("run", "--a", "1", "--b", "2", "3", "--c", "end"));
  EXPECT_THAT(wordsOfLast("L=( --b \"2 3\" )\nrun \"${L[@]}\""), ElementsAre("run", "--b", "2 3"));
  EXPECT_THAT(wordsOfLast("N=8\nexport M=$((N * 2 + 1))\nrun $M > log 2>&1"), ElementsAre("run", "17"));
  EXPECT_THAT(wordsOfLast("run \"\" a#b # c"), ElementsAre("run", "", "a#b"));
  EXPECT_THAT(wordsOfLast("A=1\r\nrun $A \\\r\n end\r\n"), ElementsAre("run", "1", "end"));
}

TEST(EvaluateShell, DefaultsReplaceEmptyVariables) {
  EXPECT_THAT(wordsOfLast("N=8\nrun ${A:-$N} ${B:-\"x${N}\"} ${C:-${D:-${N}}} ${E-$((N / 2))}"),
              ElementsAre("run", "8", "x8", "8", "4"));
  EXPECT_THAT(wordsOfLast("X=\nY=''\nrun ${X:-1} ${Y:-2} a${X-3}"), ElementsAre("run", "1", "2", "a"));
  EXPECT_THAT(wordsOfLast(": ${N:=2} \"${M:=3}\"\nrun $N $((N * M))"), ElementsAre("run", "2", "6"));
  EXPECT_THAT(wordsOfLast("run $((${N:-8} * 2))"), ElementsAre("run", "16"));
  EXPECT_THAT(wordsOfLast("A=$1\nrun ${A:-d} ${A:+set}"), ElementsAre("run", "d"));
}

TEST(EvaluateShell, DivisionTruncates) {
  EXPECT_THAT(wordsOfLast("N=7\nrun $((N / 2 * 2)) $((N % 4)) $((-N / 2))"), ElementsAre("run", "6", "3", "-3"));
}

TEST(EvaluateShell, HereDocumentsAreNoCommands) {
  EXPECT_THAT(wordsOfLast("A=1\ncat > conf.json <<EOF\n{\"it's\": 1}\nA=2\nEOF\nrun $A"), ElementsAre("run", "1"));
  EXPECT_THAT(wordsOfLast("cat <<-'END' | tee x\n\tA=2\n\tEND\nrun b"), ElementsAre("run", "b"));
}

TEST(EvaluateShell, RedirectionsAreNotWords) {
  EXPECT_THAT(wordsOfLast("run a <b >c 2>d &>> e <<< f"), ElementsAre("run", "a"));
  EXPECT_THAT(wordsOfLast("run <b"), ElementsAre("run"));
}

TEST(EvaluateShell, ValuesThatOnlyTheShellKnowsAreMarked) {
  ShellRun run = evaluate("P=$1\nrun $P $(date) `pwd` $NONE $@ \"a${X}b\"").run;
  ASSERT_EQ(run.commands.size(), 1U);
  ASSERT_EQ(run.commands[0].size(), 6U);
  EXPECT_EQ(run.commands[0][1].unknown, "$1");
  EXPECT_EQ(run.commands[0][1].remedy, "give --arg 1=VALUE");
  EXPECT_EQ(run.commands[0][1].where.line, 1);
  EXPECT_EQ(run.commands[0][2].unknown, "the output of a command, $(date)");
  EXPECT_EQ(run.commands[0][3].unknown, "the output of a command, `pwd`");
  EXPECT_EQ(run.commands[0][4].unknown, "$NONE");
  EXPECT_EQ(run.commands[0][5].text, "ab");
  EXPECT_EQ(run.commands[0][5].remedy, "give --env X=VALUE");
  EXPECT_EQ(run.commands[0][5].unknownAt.column, 33);
}

// Each value names what it depends on, through other variables, arithmetic and arrays.
TEST(EvaluateShell, UnknownValuesNameTheirCause) {
  EXPECT_THAT(
      launch("S=$((TOKENS / 4096))\nO=$ROOT/out\nA=(--s $S --o $O/c $O/t)\ntorchrun x.py \"${A[@]}\" ${S//_} ${O%/*}"),
      ElementsAre("--s", "<$TOKENS>", "--o", "/out/c<$ROOT>", "/out/t<$ROOT>", "<$TOKENS>", "<$ROOT>"));
  EXPECT_THAT(launch("N=$(nproc)\nM=$((N * 2))\ntorchrun x.py $M ${#N} ${N:-4} $((0 ? N : 3)) ${N:0:1}"),
              ElementsAre("<the output of a command, $(nproc)>", "<the output of a command, $(nproc)>",
                          "<the output of a command, $(nproc)>", "3", "<the output of a command, $(nproc)>"));
  EXPECT_THAT(launch("torchrun x.py $((1 / 0)) $((2 + ))"),
              ElementsAre("<$((1 / 0)), which bash refuses: division by 0>",
                          "<$((2 + )), which bash refuses: an operand is missing>"));
}

// A variable that the script sets itself is empty before; another one may come from the environment.
TEST(EvaluateShell, VariablesOfTheScriptAreEmptyUntilTheyAreSet) {
  EXPECT_THAT(launch("if false; then X=--x; fi\ntorchrun x.py $X \"$X\" $Y"), ElementsAre("", "<$Y>"));
  EXPECT_THAT(launch("[ -z \"$N\" ] && N=4\ntorchrun x.py $N"), ElementsAre("4"));
  EXPECT_THAT(launch("X=a$X\nN=${M:-$N}\ntorchrun x.py $X $N"), ElementsAre("a<$X>", "<$N>"));
}

TEST(EvaluateShell, UsersGiveArgumentsAndEnvironment) {
  const std::string script = "N=$(nproc)\ntorchrun x.py $1 $2 \"$X\" $N ${Z:-z}";
  EXPECT_THAT(launch(script, given({{1, "a b"}}, {{"X", "x y"}, {"N", "16"}, {"Z", "1"}})),
              ElementsAre("a", "b", "<$2>", "x y", "16", "1"));
  EXPECT_THAT(launch("X=own\ntorchrun x.py $X", given({}, {{"X", "other"}})), ElementsAre("own"));
  EXPECT_THAT(launch("torchrun x.py $# \"$@\"", given({{2, "b"}})), ElementsAre("2", "<$1>", "b"));
}

// A usage check leaves the script without arguments. The launch behind it is the one that is meant.
TEST(EvaluateShell, AScriptThatNeedsArgumentsIsEvaluatedWithUnknownOnes) {
  EXPECT_THAT(launch("if [ $# -lt 2 ]; then echo usage; exit 1; fi\ntorchrun x.py --load $1"),
              ElementsAre("--load", "<$1>"));
  EXPECT_THAT(launch("[ -n \"$1\" ] || exit 1\ntorchrun x.py --load $1"), ElementsAre("--load", "<$1>"));
  EXPECT_THAT(launch("D=${1:?usage}\ntorchrun x.py --load $D"), ElementsAre("--load", "<$1>"));
  EXPECT_FALSE(evaluate("torchrun() { :; }\nexit 0\ntorchrun x.py").run.launch);
}

TEST(EvaluateShell, UnknownBranchesWithEqualFlagsAreFine) {
  for (const char *script : {"if [ -f $X ]; then echo found; else mkdir -p x; fi\ntorchrun x.py --a",
                             "if [ $MODE = a ]; then A=--a; else A=--a; fi\ntorchrun x.py $A",
                             "case $MODE in a) A=--a; B=1 ;; *) A=--a; B=2 ;; esac\ntorchrun x.py $A",
                             "cd /x && A=--a || exit 1\ntorchrun x.py $A", "grep x y || exit 1; torchrun x.py --a",
                             "if [ $MODE = a ]; then torchrun x.py --a; else torchrun x.py --a; fi",
                             "if [ $MODE = a ]; then torchrun x.py --a; exit; fi; torchrun x.py --a",
                             "f() { [ $MODE = a ] && return; B=2; }\nf\ntorchrun x.py --a",
                             "while read line; do B=$line; done < list\ntorchrun x.py --a",
                             "for f in $FILES; do [ -f $f ] || continue; B=$f; break; done\ntorchrun x.py --a",
                             "[ $RANK = 0 ] && torchrun x.py --a"})
    EXPECT_THAT(launch(script), ElementsAre("--a")) << script;
}

TEST(EvaluateShell, UnknownBranchesMakeValuesUnknown) {
  for (const char *script :
       {"if [ $SIZE = 7b ]; then L=32; else L=24; fi\ntorchrun x.py --l $L",
        "L=24; [ $SIZE = 7b ] && L=32\ntorchrun x.py --l $L", "L=1; [[ $SIZE == 7* ]] || L=2\ntorchrun x.py --l $L",
        "case $SIZE in 7b) L=32 ;; 13b) L=40 ;; *) exit 1 ;; esac\ntorchrun x.py --l $L",
        "L=1; ((SIZE > 7)) && L=2\ntorchrun x.py --l $L",
        "L=1; for s in $SIZE; do L=$((L + 1)); done\ntorchrun x.py --l $L",
        "L=1; while [ $SIZE = a ]; do L=2; done\ntorchrun x.py --l $L",
        "f() { [ $SIZE = a ] && return 1; return 0; }\nf && L=1 || L=2\ntorchrun x.py --l $L",
        "for i in 1 2 3; do [ $SIZE = $i ] && break; done\ntorchrun x.py --l $i",
        "for i in 1 2; do [ $SIZE = $i ] && continue; L=$i$L; done\ntorchrun x.py --l $L",
        "A=(1 2); [ $SIZE = a ] && A[1]=3\ntorchrun x.py --l ${A[1]}",
        "if [ $SIZE = a ]; then torchrun x.py --l 1; else torchrun x.py --l 2; fi"})
    EXPECT_THAT(launch(script), ElementsAre("--l", "<$SIZE>")) << script;
  EXPECT_THAT(launch("if [ $SIZE = 7b ]; then L=32; else L=24; fi\ntorchrun x.py --l $L", given({}, {{"SIZE", "7b"}})),
              ElementsAre("--l", "32"));
}

TEST(EvaluateShell, UnknownBranchesWithOtherFlagsAreErrors) {
  for (const char *script :
       {"if [ $MODE = a ]; then A=(--x 1); fi\ntorchrun x.py \"${A[@]}\" --l 1",
        "A=(--y); [ $MODE = a ] && A+=(--x)\ntorchrun x.py ${A[@]}", "[ $MODE = a ] && A=--x\ntorchrun x.py --y 1 $A",
        "case $MODE in a) A=--x ;; b) A=--y ;; esac\ntorchrun x.py $A",
        "if [ $MODE = a ]; then torchrun x.py --a; else torchrun x.py --a --b; fi",
        "if [ $MODE = a ]; then torchrun x.py --a --b; exit; fi\ntorchrun x.py --a",
        "torchrun x.py --a; [ $MODE = a ] && torchrun x.py --a --b",
        "f() { if [ $MODE = a ]; then F=--a; return; fi; F=--b; }\nf\ntorchrun x.py $F",
        "set -- --a\n[ $MODE = a ] && set -- --a --b\ntorchrun x.py \"$@\"",
        "cd /x && [ $MODE = a ] && A=--a; torchrun x.py $A"})
    EXPECT_THAT(errorsOf(script),
                AllOf(HasSubstr("the flags of the launch depend on $MODE, which only the shell knows; "
                                "give --env MODE=VALUE"),
                      HasSubstr("x.sh:"), HasSubstr("error: ")))
        << script;
  EXPECT_THAT(
      errorsOf("\nif [ -d /data ]; then A=--x; else A=--y; fi\ntorchrun x.py $A"),
      HasSubstr("x.sh:2:4: error: the flags of the launch depend on the test -d /data, which only the shell knows; "
                "write the branch that you mean into the script"));
  EXPECT_THAT(errorsOf("M=$(mode); torchrun x.py ${M:+--a}"),
              HasSubstr("depend on the output of a command, $(mode), which only the shell knows; give --env M=VALUE"));
  EXPECT_THAT(errorsOf("if nvidia-smi; then A=--x; fi\ntorchrun x.py --y 1 $A"),
              HasSubstr("depend on the status of the command nvidia-smi"));
  EXPECT_THAT(errorsOf("[[ $1 =~ ^a ]] && A=--x; torchrun x.py $A", given({{1, "b"}})),
              HasSubstr("depend on the regular expression of =~"));
}

TEST(EvaluateShell, LaunchersAndInnerShells) {
  auto words = [](const std::string &script) { return textsOf(evaluate(script).run.launch.value_or(ShellCommand())); };
  EXPECT_THAT(words("srun -N 2 bash -c \"python x.py --a $((1 + 1))\""),
              ElementsAre("srun", "-N", "2", "python", "x.py", "--a", "2"));
  EXPECT_THAT(words("export A=1; B=2; docker run image sh -lc 'cd /x && torchrun x.py --a $A \"${B:-none}\"'"),
              ElementsAre("docker", "run", "image", "torchrun", "x.py", "--a", "1", "none"));
  EXPECT_THAT(words("ssh host \"cd /x; torchrun x.py --a 'b c'\""),
              ElementsAre("ssh", "host", "torchrun", "x.py", "--a", "b c"));
  EXPECT_THAT(words("sbatch --wrap=\"torchrun x.py --a\""), ElementsAre("sbatch", "torchrun", "x.py", "--a"));
  EXPECT_THAT(words("srun bash <<EOF\ntorchrun x.py --a\nEOF"), ElementsAre("srun", "torchrun", "x.py", "--a"));
  EXPECT_THAT(words("torchrun x.py --a | tee log; python report.py"), ElementsAre("torchrun", "x.py", "--a"));
  EXPECT_THAT(words("torchrun x.py --a & wait; echo python y.py --b"), ElementsAre("torchrun", "x.py", "--a"));
}

TEST(EvaluateShell, SourcedFilesAreReadBesideTheScript) {
  ShellInputs inputs;
  inputs.readBeside = [](const std::string &path) {
    return path == "env.sh" ? std::optional<std::string>("A=\"--a 1\"\nB=$((") : std::nullopt;
  };
  EXPECT_THAT(errorsOf("source env.sh\ntorchrun x.py", inputs),
              HasSubstr("env.sh:2:3: error: this bracket is not closed"));
  inputs.readBeside = [](const std::string &path) {
    return path == "env.sh" ? std::optional<std::string>("A=\"--a 1\"\nB=$X") : std::nullopt;
  };
  EXPECT_THAT(launch("DIR=$(dirname $0)\n. $DIR/env.sh\ntorchrun x.py $A $B", inputs), ElementsAre("--a", "1", "<$X>"));
  EXPECT_THAT(evaluate("source env.sh", inputs).text, HasSubstr("x.sh:1:1: warning: env.sh is read beside the script"));
  EXPECT_THAT(
      evaluate("source /opt/env.sh; torchrun x.py $A", inputs).text,
      HasSubstr("x.sh:1:1: warning: /opt/env.sh is not found beside the script: what it sets is unknown, unless "
                "you give it by --env NAME=VALUE"));
}

TEST(EvaluateShell, FaultsOfTheSyntaxHaveTheirPlace) {
  std::string deep = "run ";
  for (int i = 0; i < 40; ++i)
    deep += "${A:-";
  deep += std::string(40, '}');
  for (auto [script, message] :
       {std::pair<std::string, const char *>("run 'a", "x.sh:1:5: error: this quote is not closed"),
        {"run \"a", "x.sh:1:5: error: this quote is not closed"},
        {"run $'a", "this quote is not closed"},
        {"A=( b", "x.sh:1:3: error: this bracket is not closed"},
        {"run ${A", "x.sh:1:5: error: this bracket is not closed"},
        {"run ${A[1}", "this bracket is not closed"},
        {"run $(a", "this bracket is not closed"},
        {"run `a", "this bracket is not closed"},
        {"run ${A!b}", "this expansion is not one of bash"},
        {"\n(run a", "x.sh:2:1: error: this bracket is not closed"},
        {"[[ ( a ]]", "this bracket is not closed"},
        {"if true; then run a", "x.sh:1:1: error: 'if' has no 'fi'"},
        {"if true\nrun a\nfi", "a command cannot begin with"},
        {"while true; do run a", "'while' has no 'done'"},
        {"for a in b; run a", "'for' has no 'do'"},
        {"for 1 in b; do :; done", "'for' needs the name of a variable"},
        {"for ((i = 0)); do :; done", "'for ((' needs three expressions"},
        {"case a in b) :", "'case' has no 'esac'"},
        {"case a in b :; esac", "a command cannot begin with"},
        {"[[ a == b", "'[[' has no ']]'"},
        {"{ run a", "'{' has no '}'"},
        {"fi", "a command cannot begin with"},
        {"a ;; b", "a command cannot begin with ';' here"},
        {"run a(b)", "a command cannot hold '(' outside of quotes"},
        {"[[ a &&", "the script ends within a command"},
        {deep, "commands and expansions are nested deeper than 32 levels"}})
    EXPECT_THAT(errorsOf(script), HasSubstr(message)) << script;
}

TEST(EvaluateShell, ScriptsOfAnySizeEndSoon) {
  std::string doubling = "A=0123456789\n";
  for (int i = 0; i < 160; ++i)
    doubling += "A=$A$A\n";
  std::string large = "A=" + std::string(1 << 19, 'a') + "\n", copies = large, word = large + "run ",
              list = large + "L=( ";
  for (int i = 0; i < 160; ++i)
    copies += "B" + std::to_string(i) + "=$A\n";
  for (int i = 0; i < 100000; ++i) {
    word += "$A";
    list += "$A ";
  }
  for (const std::string &script :
       {doubling, copies, word, list + ")", std::string("A=x; while :; do A+=$A; done"),
        std::string("A=(x); while :; do A+=(\"${A[@]}\"); done"), std::string("run {1..99999999}"),
        "A=" + std::string(1 << 16, 'a') + "; A=${A//a/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb}"})
    EXPECT_THAT(errorsOf(script), HasSubstr("the script expands to more than 8 MiB")) << script.substr(0, 80);
  for (const std::string &script :
       {std::string("while :; do :; done"), std::string("for ((;;)); do :; done"),
        std::string("until false; do x=1; done"), "A=" + std::string(1 << 16, 'a') + "; B=${A//*b*c*d/}"})
    EXPECT_THAT(errorsOf(script), HasSubstr("takes more than 100000 commands")) << script.substr(0, 80);
  for (const char *script :
       {"f() { f; }; f", "f() { if [ $X = 1 ]; then f; else f; fi; }; f", "A='eval \"$A\"'; eval \"$A\""})
    EXPECT_THAT(errorsOf(script), HasSubstr("calls and commands are nested deeper than 200 levels")) << script;
  std::string parts;
  for (int i = 0; i < 210000; ++i)
    parts += "a;";
  EXPECT_THAT(errorsOf(parts), HasSubstr("the script has more than 200000 commands and parts of words"));
  EXPECT_THAT(errorsOf(std::string((1 << 20) + 1, 'a')), HasSubstr("at most 1048576 are read"));
  EXPECT_THAT(launch("A='B+B' B='C+C' C='A'; torchrun x.py $((A))"),
              ElementsAre(HasSubstr("which bash refuses: it is nested deeper than 64 levels")));
}
