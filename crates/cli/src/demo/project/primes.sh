# Prints the primes up to a limit: sh primes.sh 30
limit=${1:-10}
number=2
while [ "$number" -le "$limit" ]; do
    divisor=2
    while [ $((divisor * divisor)) -le "$number" ] && [ $((number % divisor)) -ne 0 ]; do
        divisor=$((divisor + 1))
    done
    [ $((divisor * divisor)) -le "$number" ] || echo "$number"
    number=$((number + 1))
done
