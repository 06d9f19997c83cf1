A=1
cat > /dev/null <<EOF1
A=2
it's "quoted" $A `true` $(true) torchrun wrong.py --x
EOF1
cat <<'EOF2' >/dev/null
A=3
EOF2
cat <<-EOF3 > /dev/null
	A=4
	EOF3
cat <<ONE >/dev/null; B=2
first
ONE
read -r C D <<< "x y z"
IFS=: read -ra PARTS <<< "p:q r:s"
read -r E <<EOF4
from $A document
EOF4
torchrun pretrain_gpt.py $A $B $C "$D" ${#PARTS[@]} "${PARTS[@]}" "$E"
