# environment: SET=value
# environment: EMPTY=
unset GONE
: ${ASSIGNED:=first} "${ASSIGNED:=second}"
torchrun pretrain_gpt.py ${SET:-d} ${EMPTY:-d1} "${EMPTY-d2}" ${GONE:-d3} ${GONE-d4} ${NEVER:-d5} ${NEVER-d6} \
  $ASSIGNED ${SET:+alt} "${EMPTY:+alt}" ${EMPTY+alt2} ${GONE+alt3} ${NEVER:+alt4} ${SET:?message} \
  ${NEVER:-"a b"} ${NEVER:-a b} "${NEVER:-a b}" ${NEVER:-$SET} ${NEVER:-${GONE:-"${SET} x"}} ${NEVER:-'s q'} "${NEVER:-'s q'}" \
  "${NEVER:-"in ner"}" ${NEVER:-a\ b} ${NEVER:-} "${NEVER:-}" pre${NEVER:-mid}post ${1:-one} ${10:-ten} "${@:-all}"
