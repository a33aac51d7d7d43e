//! Sizes in bytes, as people write them.

/// Reads `512`, `64k`, `2G`, `1.5G`, `300MiB`; units are powers of 1024. `None` for anything else and for what does not fit.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let value = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (value.is_finite() && value < 9e18).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("64k", 65536),
            ("2G", 2 << 30),
            ("1.5G", 3 << 29),
            ("300MiB", 300 << 20),
            ("4gb", 4 << 30),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1x", "1..2", "99999999999999999999", "20000000T", "1 G"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
