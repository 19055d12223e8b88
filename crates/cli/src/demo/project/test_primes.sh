# Tests primes.sh: sh test_primes.sh
failed=0
check() {
    found=$(sh primes.sh "$2" | tr '\n' ' ')
    if [ "$found" = "$3" ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1: $found"
        failed=1
    fi
}
check "the first primes are found" 10 "2 3 5 7 "
check "the limit itself counts" 13 "2 3 5 7 11 13 "
check "squares of primes are no primes" 25 "2 3 5 7 11 13 17 19 23 "
check "nothing lies below two" 1 ""
exit "$failed"
