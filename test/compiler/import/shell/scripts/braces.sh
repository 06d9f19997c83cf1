A=x
torchrun pretrain_gpt.py {a,b}c pre{1,2}{x,y}post {1..4} {01..03} {5..1..2} {c..e} a{b} {} {a,b {$A,y} "{q,r}" x{,1} --l={1,2} {a,{b,c}d} \{a,b\}
for i in {1..3}; do LAST=$i; done
torchrun pretrain_gpt.py $LAST ${A}{1,2} {a,b}c pre{1,2}{x,y}post {1..4} {01..03} {5..1..2} {c..e} a{b} {} {$A,y} "{q,r}" x{,1} --l={1,2} {a,{b,c}d} \{a,b\} ${A:-{x,y}}
