# argument: 13B
# argument: fp8
MODEL=${1,,}
case "$MODEL" in
  7b) L=32; H=4096 ;;
  13b | 14b)
    L=40
    H=5120
    ;;
  *) echo "unknown model $MODEL"; exit 1 ;;
esac
case $2 in (bf16) D=--bf16;; ([fF]p[0-9]*) D="--fp8-format hybrid";; esac
case "a*b" in a\*b) Q=1;; *) Q=2;; esac
case "axb" in "a*b") R=1;; a[!y-z]b) R=2;& x) R+=3;; *) R=4;; esac
case word in w*) S=a;;& *d) S+=b;;& [[:upper:]]*) S+=c;; "") S+=d;; esac
case "" in ?) T=1;; "") T=2;; esac
torchrun pretrain_gpt.py --num-layers $L --hidden-size $H $D --q $Q --r $R --s $S --t $T
