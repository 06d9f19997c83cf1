# Prints what bash completes for some lines. Usage: bash complete.sh COMPLETION
. "$1"
try() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _espalier
  echo "$* => ${COMPREPLY[*]}"
}
try espalier pl
try espalier data to
try espalier data tokenize --tokenizer g
try espalier inspect --js
try espalier data inspect --docu
try espalier run x.plan --save s
try espalier run data.txt --max-r
try espalier run ./x
