//! The navaids of `data/navaids.csv`: every column of every row, as the file has it.
//!
//! Invariant: a row that cannot be read is an error with its number, never left out.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// Name of the file.
pub const FILE: &str = "navaids.csv";
/// Rows of a page.
pub const PAGE: usize = 20;

const NAVAIDS_CSV: &[u8] = include_bytes!("../../data/navaids.csv");

/// A radio navigation aid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Navaid {
    /// Number in the file.
    pub id: u32,
    /// Name that is fit for files.
    pub filename: String,
    /// What it sends.
    pub ident: String,
    /// Its name.
    pub name: String,
    /// Its kind: `NDB`, `VOR-DME` ..
    #[serde(rename = "type")]
    pub kind: String,
    /// Frequency in kHz; -1 if it is not known.
    pub frequency_khz: i32,
    /// Latitude in degrees, north is positive.
    pub latitude_deg: Decimal,
    /// Longitude in degrees, east is positive.
    pub longitude_deg: Decimal,
    /// Height above the sea in feet.
    pub elevation_ft: Option<i32>,
    /// Country by ISO 3166.
    pub iso_country: String,
    /// Frequency of its distance measuring equipment in kHz.
    pub dme_frequency_khz: Option<u32>,
    /// Channel of that.
    pub dme_channel: Option<String>,
    /// Latitude of that, where it stands apart.
    pub dme_latitude_deg: Option<Decimal>,
    /// Longitude of that.
    pub dme_longitude_deg: Option<Decimal>,
    /// Height of that.
    pub dme_elevation_ft: Option<i32>,
    /// Variation that it is set to, in degrees.
    pub slaved_variation_deg: Option<Decimal>,
    /// Magnetic variation at its place, in degrees.
    pub magnetic_variation_deg: Option<Decimal>,
    /// Who uses it.
    #[serde(rename = "usageType")]
    pub usage_type: Option<String>,
    /// How strong it is.
    pub power: Option<String>,
    /// The airport it belongs to.
    pub associated_airport: Option<String>,
}

/// All rows, in the order of the file.
///
/// # Errors
/// Only if the file compiled into the program is damaged.
pub fn all_rows() -> Result<Vec<Navaid>, csv::Error> {
    read_rows(NAVAIDS_CSV)
}

/// Reads rows in the format of the file.
///
/// # Errors
/// A row that does not parse; the message has its line.
pub fn read_rows(text: &[u8]) -> Result<Vec<Navaid>, csv::Error> {
    csv::Reader::from_reader(text).deserialize().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn count(of: impl Fn(&Navaid) -> &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for row in all_rows().expect("the example data are whole") {
            *counts.entry(of(&row).to_owned()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn the_whole_file_is_read() {
        let countries = count(|row| &row.iso_country);
        assert_eq!((countries.values().sum::<usize>(), countries.len()), (11_008, 231));
        for (country, rows) in [("US", 2_804), ("CA", 622), ("RU", 460), ("AU", 374), ("BR", 323)] {
            assert_eq!(countries[country], rows, "{country}");
        }
        let kinds = count(|row| &row.kind);
        let known =
            [("NDB", 6_609), ("VOR-DME", 2_601), ("VORTAC", 744), ("TACAN", 442), ("VOR", 308), ("DME", 167), ("NDB-DME", 137)];
        for (kind, rows) in known {
            assert_eq!(kinds[kind], rows, "{kind}");
        }
    }

    #[test]
    fn what_is_missing_is_none_and_numbers_keep_every_digit() {
        let rows = all_rows().expect("the example data are whole");
        let (harbour, island) = (&rows[0], &rows[1]);
        assert_eq!((harbour.elevation_ft, island.elevation_ft), (Some(70), None));
        assert_eq!((harbour.latitude_deg.to_string(), &*harbour.iso_country), ("52.55889892578125".to_owned(), "CA"));
        assert_eq!((harbour.associated_airport.as_deref(), island.associated_airport.as_deref()), (Some("CCA6"), None));
    }

    #[test]
    fn a_row_survives_json_unchanged() {
        for row in all_rows().expect("the example data are whole") {
            let text = serde_json::to_string(&row).expect("a row has only strings and numbers");
            assert_eq!(serde_json::from_str::<Navaid>(&text).expect("it was written a line ago"), row);
        }
    }

    #[test]
    fn a_damaged_row_is_named() {
        let text = String::from_utf8(NAVAIDS_CSV.to_vec()).expect("the file is UTF-8").replacen(",373,", ",many,", 1);
        let error = read_rows(text.as_bytes()).expect_err("a word is no frequency").to_string();
        assert!(error.contains("line: 2"), "{error}");
    }
}
