. ./beside/common.sh
source beside/common.sh && from_common more
torchrun pretrain_gpt.py "${COMMON[@]}" $FROM
