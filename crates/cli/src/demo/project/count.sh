# Takes a few seconds, tells how far it is, and leaves a result: sh count.sh
for limit in 100 200 300; do
    count=$(sh primes.sh "$limit" | wc -l | tr -d ' ')
    echo "up to $limit: $count primes"
    sleep 1
done
echo "$count primes up to $limit, the largest is $(sh primes.sh "$limit" | tail -n 1)" >result.txt
echo "result.txt is written"
