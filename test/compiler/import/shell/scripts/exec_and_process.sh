run() ( LOCAL=inside; torchrun pretrain_gpt.py --first "$LOCAL" "$@"; )
run a
LOCAL=${LOCAL:-outside}
[ 1 = 1 ] && exec torchrun pretrain_gpt.py --local "$LOCAL" "$@" 2> >(cat) > /dev/null
torchrun pretrain_gpt.py --not-reached
