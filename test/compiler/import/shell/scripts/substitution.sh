P=/data/llama/llama_text_document.bin.gz
S="a_b_c"
L="one two  three"
T=MixedCase
torchrun pretrain_gpt.py ${P#*/} ${P##*/} ${P%.*} ${P%%.*} ${P#/none} ${P%/*} ${S//_/-} ${S/_/-} ${S//_} ${S/#a/x} ${S/%c/x} ${S/#b/x} \
  ${S//[ab]/z} ${L// /,} "${L/two/2 2}" ${#P} ${#S} ${T^^} ${T,,} ${S^} ${T,} ${P:1} ${P:1:4} "${P: -3}" ${P:(-6):3} ${P:0:-7} ${S:2:1}${S:4} \
  "${L%% *}" "${L##* }" ${P//\//_} ${P/\/data/X} ${S//b/"$T"} ${S%"_c"} ${S#[[:alpha:]]_} "${S/*/all}" ${S//?/.} ${S%\?} \
  ${P//l*a/L} ${S^^[a]} ${P:$((${#P} - 2))} ${T:${#S}:2} ${S/_*_/+} "${S//_/ }" ${S//_/ }
