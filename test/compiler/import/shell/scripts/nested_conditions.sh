# environment: WORLD_SIZE=16
# environment: PRECISION=bf16
# environment: FSDP=0
PP=$(( WORLD_SIZE >= 16 ? 4 : 1 ))
if [[ $PRECISION == bf16 ]]; then
  P=--bf16
  if [ $PP -gt 1 ]; then
    if [[ "$FSDP" -ne 0 ]]; then P+=" --fsdp"
    elif [ "$WORLD_SIZE" -ge 32 ]; then P+=" --large"
    else
      case $PP in
        [2-4]) P="$P --vpp $((PP / 2))" ;;
        *) P=wrong ;;
      esac
    fi
  fi
elif [[ $PRECISION = fp16 ]]; then P=--fp16; fi
if [ "${FSDP}" = "1" ] ; then P=""; fi
if ((FSDP)); then P=""; fi; if ! ((FSDP)) && [[ ! ( $PP -lt 4 || -z $P ) ]]; then Q=--ok; fi
[ $((WORLD_SIZE % PP)) -eq 0 ] && { [ "$P" ] && Q="$Q --divides" ; } ; [ -z "$P" ] || [ $PP != 4 ] || Q="$Q --four"
torchrun pretrain_gpt.py $P $Q
