# Writes down after each step how far it is, and goes on from there when it is started again: sh train.sh
echo $$ >train.pid
step=0
[ ! -f checkpoint ] || read -r step <checkpoint
echo "begins after step $step"
while [ "$step" -lt 6 ]; do
    sleep 0.3
    step=$((step + 1))
    # Under another name first: a checkpoint is never half written.
    echo "$step" >checkpoint.new
    mv checkpoint.new checkpoint
    echo "step $step of 6"
done
echo "trained"
