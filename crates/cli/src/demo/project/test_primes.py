"""The same program, tested by Python: python3 -m unittest"""
import subprocess
import unittest


def primes(limit):
    printed = subprocess.run(["sh", "primes.sh", str(limit)], capture_output=True, check=True)
    return [int(word) for word in printed.stdout.split()]


class Primes(unittest.TestCase):
    def test_agrees_with_trial_division(self):
        expected = [n for n in range(2, 60) if all(n % d for d in range(2, n))]
        self.assertEqual(primes(59), expected)

    def test_is_empty_below_two(self):
        self.assertEqual(primes(1), [])
