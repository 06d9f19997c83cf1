A=(--one 1 "two words" 'three $A')
A+=(--last)
B=("${A[@]}" extra)
C=(${A[*]})
declare -a D=([2]=two [5]=five six)
declare -A M=([tp]=2 ["p p"]=4)
M[dp]=8
M[tp]+=x
E=()
IDX=1
IFS_JOIN="${A[*]}"
A[IDX+1]=changed
A[-1]=end
unset NOTHING
torchrun pretrain_gpt.py "${A[@]}" ${#A[@]} ${#B[@]} ${#C[@]} "${C[3]}" ${A[1]} "${A[$IDX]}" "${D[@]}" "${!D[@]}" ${D[2]} ${#D[@]} ${#A[2]} \
  ${M[tp]} "${M[p p]}" ${M[dp]} ${#M[@]} "${E[@]}" ${E[@]} "x${E[@]}y" "pre${B[@]:0:2}post" "${A[@]:1:2}" "${A[@]: -1}" "$IFS_JOIN" "${A[*]}" \
  $A "${A[@]/#--/-}" "${A[@]%d*}" "${#A}" "${E[@]:-none}" ${A[@]:0:1} "${B[@]^}" "${NOTHING[@]}" end
