//! Floats as integers: no instruction here can raise a floating-point exception.

const SIGN: u64 = 1 << 63;
const EXPONENT: u64 = 0x7ff << 52;

/// Whether the bits are those of a NaN.
pub(crate) fn is_nan(bits: u64) -> bool {
    bits & !SIGN > EXPONENT
}

/// A number whose order is that of the floats. Both zeros have one number.
pub(crate) fn rank(bits: u64) -> i64 {
    if bits & SIGN == 0 { bits as i64 } else { ((bits & !SIGN) as i64).wrapping_neg() }
}

/// The bits of a 32-bit float as those of a 64-bit float, exactly.
pub(crate) fn widen(bits: u32) -> u64 {
    let sign = u64::from(bits >> 31) << 63;
    let exponent = u64::from(bits >> 23 & 0xff);
    let fraction = u64::from(bits & 0x7f_ffff);
    let (exponent, fraction) = match (exponent, fraction) {
        (0, 0) => (0, 0),
        (0, _) => {
            // Subnormal: the highest bit that is set becomes the implicit one.
            let up = u64::from(fraction.leading_zeros()).saturating_sub(40);
            (1023_u64.saturating_sub(126 + up), fraction << up & 0x7f_ffff)
        }
        (0xff, _) => (0x7ff, fraction),
        (exponent, _) => (exponent + (1023 - 127), fraction),
    };
    sign | exponent << 52 | fraction << 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widened_floats_are_those_of_the_processor() {
        let mut bits = 1_u32;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Every third one is subnormal.
            let bits = if bits.is_multiple_of(3) { bits & 0x807f_ffff } else { bits };
            let float = f32::from_bits(bits);
            if float.is_nan() {
                assert!(is_nan(widen(bits)), "{bits:x}");
            } else {
                assert_eq!(widen(bits), f64::from(float).to_bits(), "{bits:x}");
            }
        }
        for float in [0.0, -0.0, f32::MIN_POSITIVE, 1e-45, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            assert_eq!(widen(float.to_bits()), f64::from(float).to_bits(), "{float}");
        }
    }

    #[test]
    fn ranks_have_the_order_of_floats() {
        let floats = [f64::NEG_INFINITY, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e300, f64::INFINITY];
        for a in floats {
            for b in floats {
                assert_eq!(rank(a.to_bits()) < rank(b.to_bits()), a < b, "{a} {b}");
                assert_eq!(rank(a.to_bits()) == rank(b.to_bits()), a == b, "{a} {b}");
            }
        }
        assert!(is_nan(f64::NAN.to_bits()) && !is_nan(f64::INFINITY.to_bits()));
    }
}
