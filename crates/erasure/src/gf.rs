//! The field GF(2^8) modulo `x^8 + x^4 + x^3 + x^2 + 1` (0x11d), with the generator `g = 2`, as in
//! Linux's RAID 6 and in ISA-L.

/// The polynomial without its `x^8`.
pub const REDUCTION: u8 = 0x1d;
/// For up to this many parities, row `r` of a code is `g^(r·j)`. A Vandermonde matrix of four rows
/// has singular submatrices, so larger codes use the rows of a Cauchy matrix.
pub const MAX_POWER_ROWS: usize = 3;
/// Number of nonzero elements: `g` to the power of this is 1.
const ORDER: usize = 255;

/// `a·b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// `g` to the power of `exponent`.
pub const fn power(exponent: usize) -> u8 {
    POWERS[exponent % ORDER]
}

/// `1/a`; `a` is not zero.
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    POWERS[(ORDER - LOGARITHMS[a as usize] as usize) % ORDER]
}

const POWERS: [u8; ORDER] = {
    let mut powers = [1; ORDER];
    let mut i = 1;
    while i < ORDER {
        powers[i] = double(powers[i - 1]);
        i += 1;
    }
    powers
};

const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut i = 0;
    while i < ORDER {
        logarithms[POWERS[i] as usize] = i as u8;
        i += 1;
    }
    logarithms
};

/// Lookup tables for a byte shuffle: for each factor its products with 0..16, then with 0, 16, ..,
/// 240.
pub static NIBBLES: [[u8; 32]; 256] = {
    let mut tables = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][nibble] = mul(factor as u8, nibble as u8);
            tables[factor][16 + nibble] = mul(factor as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        factor += 1;
    }
    tables
};

/// For each factor, its multiplication as a matrix over GF(2) in the format of `gf2p8affineqb`:
/// byte `7-i` selects the input bits whose sum is output bit `i`.
pub static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut input = 0;
        while input < 8 {
            let column = mul(factor as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                if column >> output & 1 != 0 {
                    matrices[factor] |= 1 << (8 * (7 - output) + input);
                }
                output += 1;
            }
            input += 1;
        }
        factor += 1;
    }
    matrices
};

/// The inverse of a square matrix; `None` if it is singular.
pub fn invert(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|j| u8::from(i == j)));
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        matrix[column].iter_mut().for_each(|value| *value = mul(*value, scale));
        let done = matrix[column].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != column) {
            let factor = row[column];
            for (value, pivot) in row.iter_mut().zip(&done) {
                *value ^= mul(factor, *pivot);
            }
        }
    }
    matrix.iter_mut().for_each(|row| drop(row.drain(..size)));
    Some(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_is_a_power_of_two_and_has_an_inverse() {
        let mut seen = [false; 256];
        (0..ORDER).for_each(|i| seen[power(i) as usize] = true);
        assert!(!seen[0] && seen[1..].iter().all(|&seen| seen));
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1);
        }
    }

    #[test]
    fn tables_and_matrices_multiply() {
        for (factor, byte) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            let (table, x) = (&NIBBLES[usize::from(factor)], usize::from(byte));
            assert_eq!(table[x & 15] ^ table[16 + (x >> 4)], mul(factor, byte));
            let rows = MATRICES[usize::from(factor)].to_be_bytes();
            let bits = rows.iter().enumerate().map(|(i, row)| ((row & byte).count_ones() % 2) << i);
            assert_eq!(bits.sum::<u32>(), u32::from(mul(factor, byte)));
        }
    }

    #[test]
    fn a_singular_matrix_has_no_inverse() {
        assert_eq!(invert(vec![vec![1, 2], vec![2, 4]]), None);
        assert_eq!(invert(vec![vec![0, 1], vec![1, 0]]), Some(vec![vec![0, 1], vec![1, 0]]));
    }
}
