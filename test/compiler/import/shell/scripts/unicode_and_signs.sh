A='größe "x" \ $y `z`' B="#no comment" C=a=b=c
torchrun pretrain_gpt.py "$A" "$B" $C --key=value=2 "--moe-layer-freq" "([0]*3+[1]*58)" '([1]*48)' "\$HOME" "a;b|c&d" 'e>f<g' "!x" -- - + \; \# %d @x ^ "${C//=/ = }"
