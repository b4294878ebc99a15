//! How much faster than recorded a trace is replayed, in exact arithmetic.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The last µs that a steady clock of 64-bit nanoseconds can tell. A due time beyond it cannot be waited for.
pub const CLOCK_LIMIT_US: u64 = i64::MAX as u64 / 1_000;

/// A speed that is not finite and positive.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("replay at speed {text}: not a finite number above 0")]
pub struct SpeedError {
    /// What was asked for.
    pub text: String,
}

/// How much faster than recorded a trace is replayed.
///
/// A due time is the timestamp divided by the speed, exactly, and then cut to whole µs. The divisor is the double
/// itself, not the decimal it was written as:
///
/// ```
/// use master_replay::Speed;
///
/// let speed = Speed::new(0.1)?; // the double is slightly above one tenth
/// assert_eq!(speed.due_us(3), Some(29));
/// assert_eq!(speed.due_us(7), Some(69));
/// assert_eq!(Speed::ONE.due_us(1 << 63), None); // beyond any clock
/// # Ok::<(), master_replay::SpeedError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    value: f64,
    /// An odd number.
    mantissa: u64,
    /// `value` is `mantissa * 2^exponent`.
    exponent: i32,
}

impl Speed {
    /// As recorded.
    pub const ONE: Speed = Speed { value: 1.0, mantissa: 1, exponent: 0 };

    /// Takes a finite number above 0.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn new(value: f64) -> Result<Self, SpeedError> {
        if !value.is_finite() || value <= 0.0 {
            return Err(SpeedError { text: value.to_string() });
        }
        let bits = value.to_bits();
        let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) & 0x7FF);
        let (mantissa, exponent) = match biased {
            0 => (fraction, -1074),
            _ => (fraction | 1 << 52, i32::try_from(biased).unwrap_or(0) - 1075),
        };
        let zeros = mantissa.trailing_zeros();
        let exponent = exponent + i32::try_from(zeros).unwrap_or(0);
        Ok(Speed { value, mantissa: mantissa >> zeros, exponent })
    }

    /// The number.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.value
    }

    /// When a timestamp is due, after the origin of its phase; nothing when no clock goes that far.
    #[must_use]
    pub fn due_us(self, timestamp_us: u64) -> Option<u64> {
        let due = if self.exponent >= 0 {
            let shifted = u32::try_from(self.exponent).ok().and_then(|shift| timestamp_us.checked_shr(shift));
            u128::from(shifted.unwrap_or(0) / self.mantissa)
        } else {
            self.divide_shifted(timestamp_us)?
        };
        u64::try_from(due).ok().filter(|due| *due <= CLOCK_LIMIT_US)
    }

    /// `timestamp * 2^-exponent / mantissa`, or nothing when that is far beyond any clock.
    fn divide_shifted(self, timestamp_us: u64) -> Option<u128> {
        let divisor = u128::from(self.mantissa);
        let mut left = self.exponent.unsigned_abs();
        let mut quotient = u128::from(timestamp_us / self.mantissa);
        let mut rest = u128::from(timestamp_us % self.mantissa);
        while left > 0 {
            // The rest is below 2^53 and the quotient below 2^64: both have room for as many bits more.
            let bits = left.min(63);
            left -= bits;
            rest <<= bits;
            quotient = (quotient << bits) + rest / divisor;
            rest %= divisor;
            if quotient > u128::from(CLOCK_LIMIT_US) {
                return None;
            }
            if quotient == 0 && rest == 0 {
                return Some(0);
            }
        }
        Some(quotient)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let value = text.parse().map_err(|_| SpeedError { text: text.to_owned() })?;
        Speed::new(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn due_times_are_exact_and_cut() {
        for (speed, timestamp, due) in [
            (1.0, 0, Some(0)),
            (1.0, CLOCK_LIMIT_US, Some(CLOCK_LIMIT_US)),
            (1.0, CLOCK_LIMIT_US + 1, None),
            (0.1, 3, Some(29)),
            (0.1, 7, Some(69)),
            (2.0, 7, Some(3)),
            (3.0, 10, Some(3)),
            (10.0, 1000, Some(100)),
            (0.5, u64::MAX, None),
            (4096.0, u64::MAX, Some(u64::MAX / 4096)),
            (f64::MAX, u64::MAX, Some(0)),
            (f64::MIN_POSITIVE, 0, Some(0)),
            (f64::MIN_POSITIVE, 1, None),
            (5e-324, 1, None),
            (5e-324, 0, Some(0)),
            (1e-9, 9_000_000, Some(8_999_999_999_999_999)),
        ] {
            assert_eq!(Speed::new(speed).expect("positive").due_us(timestamp), due, "{timestamp} / {speed}");
        }
    }

    #[test]
    fn only_finite_positive_speeds_exist() {
        for text in ["0", "-1", "-0", "inf", "NaN", "fast", ""] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
        assert_eq!("2.5".parse::<Speed>().map(Speed::value), Ok(2.5));
    }

    proptest! {
        /// Against the definition: `due` is the largest whole number with `due * speed <= timestamp`.
        #[test]
        fn due_is_the_floor(timestamp in 0_u64..1 << 40, mantissa in 1_u64..1 << 20, shift in 0_u32..12) {
            #[expect(clippy::cast_precision_loss, reason = "20 bits fit a double")]
            let speed = Speed::new(mantissa as f64 / f64::from(1_u32 << shift)).expect("positive");
            let due = (u128::from(timestamp) << shift) / u128::from(mantissa);
            prop_assert_eq!(speed.due_us(timestamp).map(u128::from), Some(due));
        }
    }
}
