# argument: a
# argument: b c
# argument: d
# argument: e
# argument: f
# argument: g
# argument: h
# argument: i
# argument: j
# argument: k
# argument: 
# argument: m
first=$1; shift
set -- "$@" tail
shift 3
n=$#
count() { echo; torchrun pretrain_gpt.py $# "$1" "$2" ${10} "${11}" "$first" $n "${@: -2:1}" "${!n}" "$3"; }
count "$@" "$*"
