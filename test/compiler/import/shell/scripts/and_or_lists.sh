true && A=1 || A=2
false && B=1 || B=2
false || false || C=3
true && false && D=1
: && { E=5; F=6; } || E=7
! false && G=7
[ "$A" = 1 ] && [ "$B" = 2 ] && H=8; [ "$A" = 2 ] || I=9
true | false || J=10
true & K=11
( L=12; M=13 )
M=outer; ( M=inner )
{ N=14; }
if true && { false || true; }; then O=15; fi
torchrun pretrain_gpt.py a$A b$B c$C ${D:-unset} e$E f$F g$G h$H i$I j$J k$K ${L:-none} $M n$N o$O
