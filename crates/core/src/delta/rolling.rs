//! A sum over a window of bytes that follows the window cheaply, equal to Adler-32.

/// The largest prime below 2^16.
const PRIME: u32 = 65_521;

/// The sum of a window of fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    low: u32,
    high: u32,
}

impl Sum {
    /// The sum of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let value = simd_adler32::adler32(&bytes);
        Sum {
            low: value & 0xffff,
            high: value >> 16,
        }
    }

    /// The number that the host computes.
    pub(super) fn value(self) -> u32 {
        self.high << 16 | self.low
    }
}

/// A sum that is made piece by piece.
#[derive(Clone, Default)]
pub struct Checksum(simd_adler32::Adler32);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Checksum({:08x})", self.value())
    }
}

impl Checksum {
    /// The sum of nothing.
    pub fn new() -> Self {
        Checksum::default()
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The number that the host computes.
    pub(super) fn value(&self) -> u32 {
        self.0.finish()
    }
}

/// Moves sums of windows of one length.
#[derive(Debug)]
pub(super) struct Roller {
    /// For each byte, what it takes off the high half when it leaves.
    leaving: [u32; 256],
}

impl Roller {
    /// For windows of this length.
    pub(super) fn new(length: u32) -> Self {
        let mut leaving = [0; 256];
        for (value, byte) in leaving.iter_mut().zip(0_u64..) {
            *value = (byte * u64::from(length) % u64::from(PRIME)) as u32;
        }
        Roller { leaving }
    }

    /// The sum one byte further on.
    #[inline]
    pub(super) fn roll(&self, sum: Sum, out: u8, into: u8) -> Sum {
        let low = below(below(sum.low + PRIME + u32::from(into) - u32::from(out)));
        let taken = self
            .leaving
            .get(usize::from(out))
            .copied()
            .unwrap_or_default();
        // The sum begins at one, which leaves with every step.
        let high = below(below(sum.high + PRIME - taken) + low + PRIME - 1);
        Sum {
            low,
            high: below(high),
        }
    }
}

#[inline]
fn below(value: u32) -> u32 {
    if value >= PRIME { value - PRIME } else { value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sum_is_adler_32() {
        assert_eq!(Sum::of(b"Wikipedia").value(), 0x11e6_0398);
        assert_eq!(Sum::of(&[255; 100_000]).value(), 0x149a302c);
    }

    #[test]
    fn sum_of_pieces_is_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|at| ((at * 7) >> 2) as u8).collect();
        let mut whole = Checksum::new();
        bytes.chunks(9_001).for_each(|piece| whole.update(piece));
        assert_eq!(whole.value(), Sum::of(&bytes).value());
    }

    proptest! {
        #[test]
        fn rolled_sum_is_the_sum_of_the_moved_window(
            bytes in proptest::collection::vec(any::<u8>(), 2..400), length in 1_usize..300,
        ) {
            prop_assume!(length < bytes.len());
            let roller = Roller::new(length as u32);
            let mut sum = Sum::of(&bytes[..length]);
            for at in 1..=bytes.len() - length {
                sum = roller.roll(sum, bytes[at - 1], bytes[at + length - 1]);
                prop_assert_eq!(sum, Sum::of(&bytes[at..at + length]));
            }
        }
    }

    #[test]
    fn rolled_sum_is_right_for_windows_longer_than_the_prime() {
        let bytes: Vec<u8> = (0..200_000_u32)
            .map(|at| ((at * 31) >> 3) as u8 | 0xf0)
            .collect();
        let length = 131_072;
        let roller = Roller::new(length as u32);
        let mut sum = Sum::of(&bytes[..length]);
        for at in 1..1000 {
            sum = roller.roll(sum, bytes[at - 1], bytes[at + length - 1]);
        }
        assert_eq!(sum, Sum::of(&bytes[999..999 + length]));
    }
}
