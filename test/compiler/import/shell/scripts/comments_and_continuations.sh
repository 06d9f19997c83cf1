#!/bin/bash
#SBATCH --nodes=2
set -euo pipefail
set -x; set +e
A=1 # comment with 'quote
B=a#b
# C=3 \
C=4 \
;
ARGS=( # a comment
  --one 1   # why "
  # --not-this
  --two \
  2

  "#three"
)
torchrun \
    pretrain_gpt.py \
    "${ARGS[@]}" \
    $B \
  $A $C `# inline` \
    --end   # done
